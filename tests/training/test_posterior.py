"""Posterior training: the bound falls, the prior stays, the numbers in the history are right."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from nonvacuous import bounds
from nonvacuous.data.examples import Examples
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.training import stochastic
from nonvacuous.training.events import EventLog, read_events
from nonvacuous.training.loop import Diverged
from nonvacuous.training.objectives import OBJECTIVES, Plan, bounded_cross_entropy
from nonvacuous.training.posterior import PosteriorSettings, TrainedPosterior, _Learner
from nonvacuous.training.stochastic import draw_noise, noisy_call
from tests.training.calls import train, train_posterior

from .worlds import blobs, everything_mlp, same_tensors, same_weights, small_cnn, small_mlp, stripes

FAILURE = 0.05


def bound(
    model: nn.Module, posterior: DiagonalGaussian, prior: DiagonalGaussian, examples: Examples
) -> float:
    """PAC-Bayes-kl at an honest average over 200 draws of all weights."""
    generator = torch.Generator().manual_seed(11)
    errors = 0
    with torch.no_grad():
        for _ in range(200):
            weights = posterior.sample(generator=generator)
            outputs = torch.func.functional_call(model, weights, (examples.inputs,))
            errors += int((outputs.argmax(1) != examples.labels).sum())
    return bounds.seeger(
        empirical_risk=errors / (200 * len(examples)),
        kl_nats=sum(posterior.kl_to(prior).values()),
        examples=len(examples),
        failure=FAILURE,
    )


def same_posterior(first: TrainedPosterior, second: TrainedPosterior) -> bool:
    return same_tensors(first.posterior.means, second.posterior.means) and same_tensors(
        first.posterior.scales, second.posterior.scales
    )


ON_A_GPU = pytest.param("images on a GPU", marks=pytest.mark.gpu)


@pytest.mark.parametrize("world", ["vectors", "images", "images in parts", ON_A_GPU])
def test_the_slopes_written_out_are_those_of_the_objective(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world == "images in parts":
        monkeypatch.setattr(stochastic, "_WORTH_SHARING", 0)
    vectors = world == "vectors"
    model, examples = (small_mlp(), blobs(60)) if vectors else (small_cnn(), stripes(60))
    prior = DiagonalGaussian.around(model, scale=0.2)
    start = DiagonalGaussian.around(model, scale=0.1)
    settings = PosteriorSettings(kl_penalty=0.7, bound_examples=60, scale_learning_rate=0.1)
    device = torch.device("cuda" if "GPU" in world else "cpu")
    learner = _Learner(model, prior, start, examples, settings, 0, device, record=None)
    examples = examples.to(device)
    with torch.no_grad():
        learner._means.add_(0.05 * torch.randn_like(learner._means))
    batch = torch.arange(32, device=device)
    learner._generator.manual_seed(3)
    learner._find_slopes(batch)
    slopes = [learner._pulls, learner._growth]
    assert learner._means.grad is slopes[0] and learner._log_ratios.grad is slopes[1]

    # The same by torch alone: from the definition of the KL, through exp and square.
    learner._generator.manual_seed(3)
    scales = learner._prior_scales * learner._log_ratios.exp()
    noise = draw_noise(learner._layout, learner._named(scales.square()), learner._generator)
    outputs = noisy_call(
        learner._module,
        examples.inputs[batch],
        layout=learner._layout,
        means=learner._named(learner._means),
        noise=noise,
        generator=learner._generator,
    )
    losses = bounded_cross_entropy(outputs, examples.labels[batch])
    ratio = scales / learner._prior_scales
    shift = (learner._means - learner._prior_means) / learner._prior_scales
    kl = (ratio.square() + shift.square() - 1 - 2 * ratio.log()).sum().double() / 2
    plan = Plan(60, settings.failure, learner.facts["free_parameter"])
    risk = losses.mean(dtype=torch.float64)
    value = OBJECTIVES[settings.objective].function(risk, 0.7 * kl, plan)
    expected = torch.autograd.grad(value, [learner._means, learner._log_ratios])
    for slope, other in zip(slopes, expected, strict=True):
        assert torch.allclose(slope, other, rtol=1e-4, atol=1e-6 * float(other.abs().max()))
    assert float(learner._sums[0]) == pytest.approx(32 * value.item(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_lowers_the_bound(objective: str) -> None:
    model, examples = small_mlp(), blobs(600)
    prior = DiagonalGaussian.around(model, scale=0.2)
    trained = train_posterior(
        model,
        prior,
        examples,
        objective=objective,
        minimum_probability=0.05,
        epochs=15,
        batch_size=50,
        learning_rate=0.1,
    )
    before = bound(model, prior, prior, examples)
    after = bound(model, trained.posterior, prior, examples)
    assert before > 0.7
    assert after < 0.5
    assert trained.history[-1]["objective"] < trained.history[0]["objective"]
    assert (trained.free_parameter is not None) == (objective in ("thiemann", "catoni"))


@pytest.mark.slow
def test_convolutional_networks_are_trained_too() -> None:
    examples = stripes(400)
    model = train(small_cnn(), stripes(100, seed=1), epochs=20, batch_size=16).module
    prior = DiagonalGaussian.around(model, scale=0.3)
    trained = train_posterior(
        model,
        prior,
        examples,
        minimum_probability=0.05,
        epochs=20,
        batch_size=50,
        learning_rate=0.05,
    )
    before = bound(model, prior, prior, examples)
    assert bound(model, trained.posterior, prior, examples) < before - 0.01


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_networks_that_flatten_by_a_view_are_trained(device: str) -> None:
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernels, self.head = nn.Conv2d(1, 4, 3), nn.Linear(64, 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.kernels(inputs))
            return self.head(hidden.view(hidden.size(0), -1))

    model = Viewed()
    prior = DiagonalGaussian.around(model, scale=0.1)
    trained = train_posterior(model, prior, stripes(40), epochs=1, device=device)
    assert not same_tensors(trained.posterior.to("cpu").means, prior.means)


@pytest.mark.slow
def test_scales_are_learned_where_it_pays() -> None:
    """A wide prior hurts the risk: the posterior narrows, unless the rate of its scales is 0."""
    model, examples = small_mlp(), blobs(600)
    prior = DiagonalGaussian.around(model, scale=1.0)
    options = {"epochs": 10, "batch_size": 50, "learning_rate": 0.02}
    free = train_posterior(model, prior, examples, scale_learning_rate=0.1, **options)
    fixed = train_posterior(model, prior, examples, scale_learning_rate=0.0, **options)
    assert same_tensors(fixed.posterior.scales, prior.scales)
    assert free.posterior.scales["2.weight"].mean() < 0.95
    assert bound(model, free.posterior, prior, examples) < bound(
        model, fixed.posterior, prior, examples
    )


@pytest.mark.slow
def test_kl_penalty_holds_the_posterior_back() -> None:
    model, examples = small_mlp(), blobs(300)
    prior = DiagonalGaussian.around(model, scale=0.1)
    kls = []
    for penalty in (0.01, 1.0, 10.0):
        trained = train_posterior(
            model,
            prior,
            examples,
            kl_penalty=penalty,
            epochs=8,
            batch_size=50,
            learning_rate=0.02,
        )
        kls.append(sum(trained.posterior.kl_to(prior).values()))
    assert kls[0] > kls[1] > kls[2] > 0


def test_warm_up_lets_the_posterior_go_further_at_first() -> None:
    model, examples = small_mlp(), blobs(300)
    prior = DiagonalGaussian.around(model, scale=0.1)
    options = {"epochs": 4, "batch_size": 50, "learning_rate": 0.05, "kl_penalty": 3.0}
    plain = train_posterior(model, prior, examples, **options)
    warmed = train_posterior(model, prior, examples, warm_up_epochs=4, **options)
    assert warmed.history[1]["kl"] > 1.2 * plain.history[1]["kl"]


def test_fewer_bound_examples_hold_the_posterior_back() -> None:
    model, examples = small_mlp(), blobs(300)
    prior = DiagonalGaussian.around(model, scale=0.1)
    kls = [
        sum(
            train_posterior(model, prior, examples, bound_examples=n, epochs=4, batch_size=50)
            .posterior.kl_to(prior)
            .values()
        )
        for n in (30, 300)
    ]
    assert kls[0] < kls[1]


def test_arguments_stay_untouched() -> None:
    model = everything_mlp().train()
    before, prior = copy.deepcopy(model), DiagonalGaussian.around(model, scale=0.05)
    digest = prior.digest()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    trained = train_posterior(model, prior, blobs(60), epochs=2, batch_size=16)
    assert torch.equal(state, torch.get_rng_state())
    assert same_weights(model, before) and model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert prior.digest() == digest
    assert trained.posterior.names == prior.names
    assert not same_tensors(trained.posterior.means, prior.means)


def test_the_network_runs_in_evaluation_mode() -> None:
    """Otherwise batch statistics or dropout would shape a predictor nobody certifies."""
    modes: list[bool] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            modes.append(self.training)
            return self.layer(inputs)

    model = Watched().train()
    train_posterior(model, DiagonalGaussian.around(model), blobs(30), epochs=1)
    assert modes and not any(modes)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_same_seed_same_bits_other_seed_other_bits(optimizer: str) -> None:
    results = []
    for seed, disturbance in ((1, 0), (1, 99), (2, 0)):
        torch.manual_seed(disturbance)
        model = small_cnn()
        results.append(
            train_posterior(
                model,
                DiagonalGaussian.around(model),
                stripes(40),
                epochs=2,
                batch_size=16,
                optimizer=optimizer,
                learning_rate=0.001,
                seed=seed,
            )
        )
    assert same_posterior(results[0], results[1])
    assert results[0].history == results[1].history
    assert not same_posterior(results[0], results[2])


def test_history_tells_the_kl_and_the_risk_as_they_were() -> None:
    model, examples = small_mlp(), blobs(64)
    prior = DiagonalGaussian.around(model, scale=0.1)
    start = DiagonalGaussian.around(small_mlp(seed=1), scale=0.07)
    trained = train_posterior(
        model,
        prior,
        examples,
        start=start,
        minimum_probability=1e-5,
        epochs=1,
        batch_size=64,
        learning_rate=1e-9,
    )
    record = trained.history[0]
    kl = sum(start.kl_to(prior).values())
    assert record["kl"] == pytest.approx(kl, rel=1e-5)
    generator = torch.Generator().manual_seed(0)
    risks = [
        bounded_cross_entropy(
            torch.func.functional_call(
                model, start.sample(generator=generator), (examples.inputs,)
            ),
            examples.labels,
            minimum_probability=1e-5,
        ).mean()
        for _ in range(500)
    ]
    assert record["risk"] == pytest.approx(torch.stack(risks).mean().item(), rel=0.05)
    assert record["objective"] == pytest.approx(
        bounds.quadratic(empirical_risk=record["risk"], kl_nats=kl, examples=64, failure=FAILURE)
        if record["objective"] < 1
        else record["objective"],
        rel=1e-5,
    )
    assert 0.0 <= record["error"] <= 1.0


def test_zero_epochs_return_the_start() -> None:
    model = small_mlp()
    prior = DiagonalGaussian.around(model, scale=0.03)
    trained = train_posterior(model, prior, blobs(), epochs=0)
    assert sum(trained.posterior.kl_to(prior).values()) == 0.0
    start = DiagonalGaussian.around(model, scale=0.01)
    trained = train_posterior(model, prior, blobs(), start=start, epochs=0)
    assert torch.allclose(trained.posterior.scales["0.weight"], start.scales["0.weight"])


def test_free_parameters_follow_their_best_value() -> None:
    model, examples = small_mlp(), blobs(300)
    prior = DiagonalGaussian.around(model, scale=0.1)
    options = {"objective": "thiemann", "epochs": 3, "batch_size": 50}
    free = train_posterior(model, prior, examples, **options)
    values = [record["free_parameter"] for record in free.history]
    assert values[0] == 1.0 and len(set(values)) == 3
    last = free.history[-1]
    assert free.free_parameter == pytest.approx(
        bounds.best_trade_off(
            empirical_risk=last["risk"], kl_nats=last["kl"], examples=300, failure=FAILURE
        )
    )


def test_divergence_names_the_epoch_and_what_to_try() -> None:
    model = small_mlp()
    with pytest.raises(Diverged, match=r"posterior .*epoch \d+ of 9.*scale_learning_rate"):
        train_posterior(
            model, DiagonalGaussian.around(model), blobs(), epochs=9, learning_rate=1e25
        )


@pytest.mark.slow
def test_float64_networks_and_tied_weights_work() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, dtype=torch.float64)
            self.second = nn.Linear(4, 4, dtype=torch.float64)
            self.second.weight = self.first.weight

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(inputs)))

    model = Tied()
    prior = DiagonalGaussian.around(model, scale=0.1)
    trained = train_posterior(
        model,
        prior,
        blobs(200),
        kl_penalty=0.1,
        minimum_probability=0.05,
        epochs=15,
        batch_size=20,
        learning_rate=0.1,
    )
    assert trained.posterior.names == ("first.weight", "first.bias", "second.bias")
    assert trained.posterior.means["first.weight"].dtype == torch.float64
    assert trained.history[-1]["error"] < trained.history[0]["error"] / 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objective": "bbb"}, "'bbb'"),
        ({"failure": 0.0}, r"failure .*0.0"),
        ({"bound_examples": 0}, r"bound_examples .*0"),
        ({"minimum_probability": 1.0}, r"minimum_probability .*1.0"),
        ({"kl_penalty": -1.0}, r"kl_penalty .*-1.0"),
        ({"warm_up_epochs": -1}, r"warm_up_epochs .*-1"),
        ({"batch_size": 0}, r"batch_size .*0"),
        ({"scale_learning_rate": -0.1}, r"scale_learning_rate .*-0.1"),
    ],
)
def test_bad_settings_are_refused_by_name(change: dict[str, object], words: str) -> None:
    model = small_mlp()
    with pytest.raises(BadInput, match=words):
        train_posterior(model, DiagonalGaussian.around(model), blobs(), **change)


def test_a_prior_of_another_network_is_refused() -> None:
    with pytest.raises(BadInput, match=r"3\.bias"):
        train_posterior(small_mlp(), DiagonalGaussian.around(small_cnn()), blobs())


def test_no_examples_are_refused() -> None:
    model = small_mlp()
    with pytest.raises(BadInput, match="examples is empty"):
        train_posterior(model, DiagonalGaussian.around(model), blobs().subset([]))


def test_events_of_both_phases_share_a_log(tmp_path: Path) -> None:
    model = small_mlp()
    log = tmp_path / "events.jsonl"
    for phase in ("posterior", "second posterior"):
        train_posterior(
            model,
            DiagonalGaussian.around(model),
            blobs(),
            epochs=2,
            phase=phase,
            events=EventLog(log),
        )
    events = read_events(log)
    assert [event["phase"] for event in events] == ["posterior"] * 2 + ["second posterior"] * 2
    assert {"objective", "risk", "error", "kl"} <= events[0]["metrics"].keys()


@pytest.mark.gpu
def test_training_on_a_gpu_is_close_to_training_on_a_cpu() -> None:
    model, examples = small_mlp(), blobs(600)
    prior = DiagonalGaussian.around(model, scale=0.2)
    trained = train_posterior(
        model,
        prior,
        examples,
        minimum_probability=0.05,
        epochs=15,
        batch_size=50,
        learning_rate=0.1,
        device="cuda",
    )
    assert trained.posterior.device.type == "cuda"
    assert bound(model, trained.posterior.to("cpu"), prior, examples) < 0.5


@pytest.mark.gpu
def test_images_on_a_gpu_have_their_channels_side_by_side() -> None:
    model, examples = small_cnn(), stripes(40)
    prior = DiagonalGaussian.around(model, scale=0.1)
    device, settings = torch.device("cuda"), PosteriorSettings(scale_learning_rate=0.1)
    learner = _Learner(model, prior, prior, examples, settings, 0, device, record=None)
    batch = torch.arange(8, device=device)
    assert learner._inputs[batch].stride() == (36, 1, 6, 1)
    learner._find_slopes(batch)
    assert bool(learner._pulls.isfinite().all()) and bool(learner._growth.isfinite().all())


@pytest.mark.gpu
@pytest.mark.parametrize("objective", ["seeger", "catoni"])
def test_a_recorded_step_gives_the_same_result(objective: str) -> None:
    model, examples = small_cnn(), stripes(90)
    prior = DiagonalGaussian.around(model, scale=0.1)
    options = {"objective": objective, "epochs": 3, "batch_size": 32, "warm_up_epochs": 1}
    plain = train_posterior(model, prior, examples, device="cuda", **options)
    recorded = train_posterior(model, prior, examples, device="cuda", record=True, **options)
    for name in prior.names:
        assert torch.allclose(
            plain.posterior.means[name], recorded.posterior.means[name], atol=1e-4
        )
        assert torch.allclose(
            plain.posterior.scales[name], recorded.posterior.scales[name], atol=1e-4
        )
    for one, other in zip(plain.history, recorded.history, strict=True):
        assert one == pytest.approx(other, rel=1e-3)


def test_recording_without_a_gpu_is_refused() -> None:
    model = small_mlp()
    with pytest.raises(BadInput, match="needs a CUDA device"):
        train_posterior(model, DiagonalGaussian.around(model), blobs(), record=True)
