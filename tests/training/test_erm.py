"""Plain training: learns, is deterministic, stops early, leaves its arguments alone."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.training.erm import evaluate
from nonvacuous.training.events import EventLog, read_events
from nonvacuous.training.loop import Diverged
from tests.training.calls import train

from .worlds import blobs, everything_mlp, same_weights, small_cnn, small_mlp, stripes


def test_training_learns_and_counts() -> None:
    examples = blobs()
    trained = train(small_mlp(), examples, epochs=20, batch_size=16, learning_rate=0.1)
    outputs = trained.module(examples.inputs)
    assert trained.train.errors == int((outputs.argmax(1) != examples.labels).sum()) <= 2
    assert trained.train.examples == len(examples)
    assert trained.train.loss == pytest.approx(
        nn.functional.cross_entropy(outputs, examples.labels).item(), rel=1e-5
    )
    assert trained.history[-1]["loss"] < trained.history[0]["loss"] / 4
    assert trained.best_epoch == len(trained.history) == 20
    assert "validation_loss" not in trained.history[0]
    assert not trained.module.training
    assert all(p.grad is None for p in trained.module.parameters())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_step_is_the_textbook_step(optimizer: str) -> None:
    examples, model = blobs(24), small_mlp()
    rate = 0.01
    trained = train(
        model, examples, epochs=1, batch_size=100, learning_rate=rate, optimizer=optimizer
    )
    loss = nn.functional.cross_entropy(model(examples.inputs), examples.labels)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    for before, after, gradient in zip(
        model.parameters(), trained.module.parameters(), gradients, strict=True
    ):
        change = gradient if optimizer == "sgd" else gradient / (gradient.abs() + 1e-8)
        assert torch.allclose(after, before - rate * change, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_same_seed_same_bits_other_seed_other_bits(optimizer: str) -> None:
    results = []
    for seed, disturbance in ((1, 0), (1, 99), (2, 0)):
        torch.manual_seed(disturbance)
        trained = train(
            everything_mlp(),
            blobs(50),
            epochs=3,
            batch_size=16,
            learning_rate=0.01,
            optimizer=optimizer,
            seed=seed,
        )
        results.append(trained.module)
    assert same_weights(results[0], results[1])
    assert not same_weights(results[0], results[2])


def test_arguments_and_global_random_state_stay_untouched() -> None:
    model = everything_mlp().train()
    model[0].weight.requires_grad_(False)
    before, examples = copy.deepcopy(model), blobs(50)
    inputs = examples.inputs.clone()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    trained = train(model, examples, epochs=2, batch_size=16)
    assert torch.equal(state, torch.get_rng_state())
    assert same_weights(model, before) and model.training
    assert torch.equal(inputs, examples.inputs)
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(trained.module[0].weight, model[0].weight)
    assert not torch.equal(trained.module[4].weight, model[4].weight)
    assert not torch.equal(trained.module[1].running_mean, model[1].running_mean)


def test_dropout_is_active_while_training() -> None:
    with_dropout, without = everything_mlp(), everything_mlp()
    without[3] = nn.Identity()
    results = [
        train(model, blobs(50), epochs=2, batch_size=16).module for model in (with_dropout, without)
    ]
    assert not torch.equal(results[0][0].weight, results[1][0].weight)


def test_early_stopping_returns_the_best_epoch() -> None:
    """Random labels: what is learned by heart makes the validation loss rise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (60,), generator=generator)
    noise = Examples(torch.randn(60, 4, generator=generator), labels, ("a", "b", "c"), "noise")
    part, watched = noise.subset(range(40)), noise.subset(range(40, 60))
    trained = train(
        small_mlp(),
        part,
        validation=watched,
        patience=4,
        epochs=200,
        batch_size=8,
        learning_rate=0.1,
    )
    losses = [record["validation_loss"] for record in trained.history]
    assert len(losses) == trained.best_epoch + 4 < 200
    assert trained.best_epoch == 1 + losses.index(min(losses))
    assert evaluate(trained.module, watched.inputs, watched.labels).loss == min(losses)
    shorter = train(small_mlp(), part, epochs=trained.best_epoch, batch_size=8, learning_rate=0.1)
    assert same_weights(trained.module, shorter.module)


def test_validation_without_patience_is_watched_and_changes_nothing() -> None:
    watched = train(small_mlp(), blobs(), validation=blobs(30, seed=5), epochs=3)
    alone = train(small_mlp(), blobs(), epochs=3)
    assert same_weights(watched.module, alone.module)
    assert {"validation_loss", "validation_errors"} <= watched.history[0].keys()


def test_minimum_improvement_counts() -> None:
    trained = train(
        small_mlp(),
        blobs(),
        validation=blobs(30, seed=5),
        patience=2,
        minimum_improvement=10.0,
        epochs=50,
    )
    assert trained.best_epoch == 1 and len(trained.history) == 3


def test_divergence_names_the_epoch_and_what_to_try() -> None:
    with pytest.raises(Diverged) as caught:
        train(small_mlp(), blobs(), epochs=50, batch_size=16, learning_rate=1e12)
    message = str(caught.value)
    assert "prior" in message and "in epoch" in message and "of 50" in message
    assert "smaller learning_rate (now 1e+12)" in message


def test_a_diverged_run_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "prior.checkpoint"
    for _ in range(2):
        with pytest.raises(Diverged):
            train(
                small_mlp(),
                blobs(),
                epochs=50,
                batch_size=16,
                learning_rate=1e12,
                checkpoint=path,
            )


@pytest.mark.parametrize("batch_size", [1, 7, 120, 10_000])
def test_any_batch_size_works(batch_size: int) -> None:
    trained = train(small_mlp(), blobs(), epochs=1, batch_size=batch_size, learning_rate=0.01)
    assert trained.history[0]["loss"] > 0


def test_a_remainder_of_one_does_not_break_batch_normalization() -> None:
    train(everything_mlp(), blobs(33), epochs=1, batch_size=16)


def test_zero_epochs_return_a_copy() -> None:
    model = small_mlp()
    trained = train(model, blobs(), epochs=0)
    assert same_weights(trained.module, model) and trained.module is not model
    assert trained.history == () and trained.best_epoch == 0


def test_cosine_schedule_halves_the_rate_halfway() -> None:
    """Of two steps, the second is taken at half the learning rate."""
    model = small_mlp()
    options = {"batch_size": 1000, "momentum": 0.0, "learning_rate": 0.5}
    constant = train(model, blobs(), epochs=2, **options).module
    cosine = train(model, blobs(), epochs=2, schedule="cosine", **options).module
    first = train(model, blobs(), epochs=1, **options).module
    by_constant = (constant[2].weight - first[2].weight).norm().item()
    by_cosine = (cosine[2].weight - first[2].weight).norm().item()
    assert by_cosine == pytest.approx(by_constant / 2, rel=1e-4)


def test_weight_decay_shrinks() -> None:
    free = train(small_mlp(), blobs(), epochs=10).module
    decayed = train(small_mlp(), blobs(), epochs=10, weight_decay=0.1).module
    assert decayed[0].weight.norm() < free[0].weight.norm()


def test_images_and_float64_networks_work() -> None:
    trained = train(small_cnn().double(), stripes(), epochs=15, batch_size=16)
    assert trained.module[0].weight.dtype == torch.float64
    assert trained.train.errors <= 8


def test_events_and_progress_tell_the_story(tmp_path: Path) -> None:
    told: list[tuple[str, int, int, str]] = []
    train(
        small_mlp(),
        blobs(),
        epochs=3,
        batch_size=40,
        phase="prior",
        events=EventLog(tmp_path / "events.jsonl"),
        progress=lambda *report: told.append(report),
    )
    events = read_events(tmp_path / "events.jsonl")
    assert [event["epoch"] for event in events] == [0, 1, 2]
    assert all(event["phase"] == "prior" and event["metrics"]["loss"] > 0 for event in events)
    assert told[-1][:3] == ("prior", 9, 9) and "epoch 3 of 3" in told[-1][3]
    assert any("left" in message for *_, message in told)
    assert [done for _, done, _, _ in told] == sorted(done for _, done, _, _ in told)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": -1}, r"epochs .*-1"),
        ({"epochs": 1.5}, r"epochs .*1.5"),
        ({"batch_size": 0}, r"batch_size .*0"),
        ({"learning_rate": 0.0}, r"learning_rate .*0.0"),
        ({"learning_rate": float("nan")}, r"learning_rate .*nan"),
        ({"momentum": 1.0}, r"momentum .*1.0"),
        ({"weight_decay": -1e-3}, r"weight_decay .*-0.001"),
        ({"optimizer": "sdg"}, "'sgd' or 'adam'"),
        ({"schedule": "step"}, "'constant', 'cosine' or"),
        ({"patience": 3}, "without validation"),
        ({"patience": 0, "validation": blobs(9)}, r"patience .*0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_settings_are_refused_by_name(change: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        train(small_mlp(), blobs(), **change)


def test_models_that_do_not_fit_the_examples_are_refused() -> None:
    with pytest.raises(BadInput, match="2 outputs"):
        train(small_mlp(classes=2), blobs())
    with pytest.raises(BadInput, match=r"cannot take examples of shape \(1, 6, 6\)"):
        train(small_mlp(), stripes())
    with pytest.raises(BadInput, match="one row per example"):
        train(nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)), blobs())
    with pytest.raises(BadInput, match="nothing to train"):
        train(small_mlp().requires_grad_(False), blobs())
    with pytest.raises(BadInput, match="validation"):
        train(small_mlp(), blobs(), validation=stripes())


def test_no_examples_are_refused() -> None:
    with pytest.raises(BadInput, match="examples is empty"):
        train(small_mlp(), blobs().subset([]))
