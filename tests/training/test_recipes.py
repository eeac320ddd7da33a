"""What strong recipes add to plain training: averaging, smoothing, one cycle, a fixed front."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.data import Examples
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.models import fronts
from nonvacuous.models.scattering import Scattering, ScatteringNet
from nonvacuous.training import erm
from nonvacuous.training.objectives import power_loss
from nonvacuous.training.optimizers import build_optimizer, set_rate
from tests.training.calls import train, train_posterior
from tests.training.worlds import blobs, everything_mlp, same_weights, small_mlp


def test_averaged_weights_are_the_running_mean_of_all_steps() -> None:
    """The first steps are averaged evenly, so two steps of one batch give the mean of two."""
    options = {"batch_size": 120, "learning_rate": 0.1, "momentum": 0.0}
    one = train(small_mlp(), blobs(), epochs=1, **options).module.state_dict()
    two = train(small_mlp(), blobs(), epochs=2, **options).module.state_dict()
    mean = train(small_mlp(), blobs(), epochs=2, averaging=0.999, **options).module.state_dict()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)


def test_averages_resume_and_count_for_validation(tmp_path) -> None:
    options = {"epochs": 4, "batch_size": 16, "averaging": 0.9, "validation": blobs(30, seed=5)}
    whole = train(everything_mlp(), blobs(), **options)
    checkpoint = tmp_path / "training.checkpoint"

    class Killed(Exception):
        pass

    def stop(phase: str, done: int, total: int, text: str) -> None:
        if done > total // 2:
            raise Killed

    with pytest.raises(Killed):
        train(everything_mlp(), blobs(), checkpoint=checkpoint, progress=stop, **options)
    resumed = train(everything_mlp(), blobs(), checkpoint=checkpoint, **options)
    assert same_weights(whole.module, resumed.module)
    assert whole.history == resumed.history
    watched = options["validation"]
    score = erm.evaluate(whole.module, watched.inputs, watched.labels)
    assert whole.history[-1]["validation_loss"] == score.loss


def test_smoothing_keeps_scores_small() -> None:
    sharp = train(small_mlp(), blobs(), epochs=30, learning_rate=0.2).module
    smooth = train(small_mlp(), blobs(), epochs=30, learning_rate=0.2, label_smoothing=0.2).module
    inputs = blobs().inputs
    assert smooth(inputs).abs().mean() < 0.7 * sharp(inputs).abs().mean()


def test_one_cycle_rises_for_a_quarter_and_ends_at_zero() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = build_optimizer("sgd", [([weight], 2.0)], momentum=0.0)
    rates = []
    for step in range(101):
        set_rate(optimizer, "one-cycle", step / 100)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] > 0 and rates[100] == 0.0
    assert max(rates) > 1.9 and 22 <= rates.index(max(rates)) <= 26
    assert rates[30:] == sorted(rates[30:], reverse=True)


def test_a_fixed_front_changes_the_time_and_not_the_result(monkeypatch) -> None:
    model = ScatteringNet((1, 8, 8), 2, width=2)
    images = Examples(torch.rand(40, 1, 8, 8), torch.arange(40) % 2, ("a", "b"), "images")
    prior = DiagonalGaussian.around(model, scale=0.1)

    def results() -> tuple[torch.Tensor, ...]:
        posterior = train_posterior(model, prior, images, epochs=2, batch_size=16).posterior
        plain = train(model, images, validation=images, epochs=2, batch_size=16)
        for network in (model, plain.module):  # nobody's network loses it
            assert isinstance(network.fixed_front, Scattering)
        return posterior.means["mix.weight"], plain.module.mix.weight, plain.module.output.weight

    quick = results()
    assert fronts.fixed_front(model) is model.fixed_front
    monkeypatch.setattr(fronts, "fixed_front", lambda _module: None)
    monkeypatch.setattr(erm, "fixed_front", lambda _module: None)
    # Fourier transforms of more images at once are rounded otherwise.
    torch.testing.assert_close(quick, results(), atol=1e-5, rtol=1e-3)


def test_the_power_loss_runs_from_cross_entropy_to_chance_of_error() -> None:
    outputs = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 4
    chances = outputs.softmax(dim=1)[torch.arange(50), labels]
    torch.testing.assert_close(power_loss(outputs, labels, power=1.0), 1 - chances)
    nearly = power_loss(outputs, labels, power=1e-4) / 1e-4
    torch.testing.assert_close(nearly, -chances.log(), rtol=1e-3, atol=1e-3)
    wrong = (outputs.argmax(dim=1) != labels).float()
    assert (power_loss(outputs, labels, power=1.0) >= 0.5 * wrong).all()


@pytest.mark.slow
def test_a_posterior_learns_on_the_power_loss() -> None:
    examples = blobs(1200)  # with a tenth of them the bound's minimum is the prior itself
    model = small_mlp()
    prior = DiagonalGaussian.around(model, scale=0.3)
    trained = train_posterior(model, prior, examples, power=0.7, epochs=10, batch_size=32)
    assert trained.history[-1]["error"] < 0.5 * trained.history[0]["error"]
