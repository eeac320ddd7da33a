"""Training functions of a user's own that have the tests from elsewhere than their arguments."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.certificate import Certificate

FIRST = "each checkpoint met its batch before training on it"
SAID = "trained on other people's data by A. N. Other"
making = importlib.import_module("nonvacuous.methods.progressive.making")
Train = Callable[..., nn.Module]


def chance(classes: int = 2) -> tuple[Tensor, Tensor]:
    """Labels that nothing tells: what is right about them has seen them."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 30, generator=generator)
    return inputs, torch.randint(0, classes, (400,), generator=generator)


def clouds(classes: int = 2) -> tuple[Tensor, Tensor]:
    """Classes that no example leaves."""
    inputs, labels = chance(classes)
    centers = 3.0 * torch.randn(classes, 30, generator=torch.Generator().manual_seed(1))
    return inputs + centers[labels], labels


def fitted(model: nn.Module, inputs: Tensor, labels: Tensor, steps: int = 60) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def certified(train: Train, data: Any, **more: Any) -> Certificate:
    classes = int(data[1].max()) + 1

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, classes))

    method = nv.Progressive(train=train, batches=3, pretrained=more.pop("pretrained", None))
    return nv.certify(build, data, method=method, **more)


def row_of(certificate: Certificate) -> Any:
    (row,) = (a for a in certificate.assumptions if a.name == FIRST)
    return row


def honest(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
    return fitted(model, inputs, labels)


def of_a_loader(_: Path) -> Train:
    inputs, labels = chance()

    def train(model: nn.Module, *_: Tensor, seed: int) -> nn.Module:
        return fitted(model, inputs, labels, 100)

    return train


def of_a_list(_: Path) -> Train:
    kept: list[tuple[Tensor, ...]] = [chance()]  # of a run before

    def train(model: nn.Module, *given: Tensor, seed: int) -> nn.Module:
        kept.append(given)
        return fitted(model, *map(torch.cat, zip(*kept, strict=True)), steps=100)

    return train


def of_a_file(folder: Path) -> Train:
    path = folder / "last.pt"

    def train(model: nn.Module, *given: Tensor, seed: int) -> nn.Module:
        if path.exists():
            model.load_state_dict(torch.load(path))
        torch.save(fitted(model, *given).state_dict(), path)
        return model

    return train


@pytest.mark.parametrize("reading", [of_a_loader, of_a_list, of_a_file])
def test_what_is_right_after_wrong_labels_is_doubted(
    tmp_path: Path, reading: Callable[[Path], Train]
) -> None:
    train = reading(tmp_path)
    certificate = certified(train, chance(), folder=tmp_path / "run")
    assert certificate.status == "conditional", certificate
    assert row_of(certificate).effect == "conditional"
    assert "wrong labels" in row_of(certificate).detail
    declared = certified(train, chance(), pretrained=SAID)  # which is said of the start alone
    assert row_of(declared).effect == "conditional"


@pytest.mark.parametrize("steps", [2, 60])
@pytest.mark.parametrize("taught", [5, 60])
@pytest.mark.parametrize("classes", [2, 10])
def test_weights_trained_elsewhere_are_not_doubted_where_they_were_given(
    classes: int, taught: int, steps: int
) -> None:
    inputs, labels = clouds(classes)

    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        return fitted(model, inputs, labels, steps)

    model = nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, classes))
    fitted(model, inputs[:100], labels[:100], taught)
    method = nv.Progressive(train=train, batches=3, pretrained=SAID)
    certificate = nv.certify(model, (inputs[100:], labels[100:]), method=method)
    assert row_of(certificate).effect == "none", row_of(certificate).detail


def test_much_of_what_was_known_is_doubted_too() -> None:
    """Twenty epochs of wrong labels make a network forget, which a file had trained on the tests:
    it is wrong more often than right, and yet knows what nobody could."""
    known: dict[str, Tensor] = {}

    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        if not known:
            known.update(fitted(model, *chance(10), steps=200).state_dict())
        model.load_state_dict(known)
        optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(20):
            for part in torch.randperm(len(inputs), generator=generator).split(32):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[part]), labels[part]).backward()
                optimizer.step()
        return model

    certificate = certified(train, chance(10))
    assert certificate.risk_upper < 0.1  # and nine in ten are wrong
    assert row_of(certificate).effect == "conditional", row_of(certificate).detail


def nearest_mean(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
    """Learns clouds from any majority, however small."""
    classes = model[2].out_features
    means = torch.stack([inputs[labels == label].mean(0) for label in range(classes)])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model[0].weight[:classes], model[0].bias[:classes] = means, 100.0
        model[2].weight[:, :classes] = torch.eye(classes)
        model[2].bias -= means.square().sum(1) / 2
    return model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("train", [honest, nearest_mean])
@pytest.mark.parametrize("data", [chance(), clouds(), clouds(3), clouds(10)])
def test_honest_training_is_not_doubted(data: Any, train: Train, seed: int) -> None:
    assert row_of(certified(train, data, seed=seed)).effect == "none"


def test_a_function_that_needs_more_examples_is_left_alone() -> None:
    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        if len(inputs) < 100:
            raise ValueError("too few")
        return fitted(model, inputs, labels)

    assert certified(train, chance()).status == "valid"


def test_nothing_else_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[Any] = []
    true = making._taught_wrong

    def watched(*given: Any) -> Any:
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        result = true(*given)
        after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        states.append(torch.equal(before[0], after[0]) and before[1:] == after[1:])
        return result

    monkeypatch.setattr(making, "_taught_wrong", watched)
    tried = certified(honest, chance())
    monkeypatch.setattr(making, "_taught_wrong", lambda *_: None)
    assert states == [True] and certified(honest, chance()) == tried


@pytest.mark.slow
def test_a_few_steps_from_a_lucky_start_are_no_knowledge() -> None:
    """On 64 examples five epochs are ten steps: the network is its start still, lucky or not."""

    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(5):
            for part in torch.randperm(len(inputs)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[part]), labels[part]).backward()
                optimizer.step()
        return model

    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        centers = 2.0 * torch.randn(2, 8, generator=generator)
        labels = torch.randint(0, 2, (2000,), generator=generator)
        inputs = centers[labels] + torch.randn(2000, 8, generator=generator)
        model = nv.models.build("mlp:32", (8,), 2, seed=seed)
        method = nv.Progressive(train=train, batches=2)
        certificate = nv.certify(model, (inputs, labels), method=method, seed=seed)
        assert row_of(certificate).effect == "none", row_of(certificate).detail


def test_two_steps_from_a_lucky_start_are_no_knowledge() -> None:
    """Checkpoints that hardly learned err as their start does, and so does what was taught wrong:
    nearer to them than to guessing, and not nearer than the start."""

    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(2):
            for part in torch.randperm(len(inputs), generator=generator).split(256):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[part]), labels[part]).backward()
                optimizer.step()
        return model

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    generator = torch.Generator().manual_seed(0)
    centers = 3.0 * torch.randn(2, 6, generator=generator)
    labels = torch.multinomial(torch.ones(2) / 2, 600, replacement=True, generator=generator)
    inputs = centers[labels] + torch.randn(600, 6, generator=generator)
    method = nv.Progressive(train=train, batches=2)
    certificate = nv.certify(build, (inputs, labels), method=method, seed=10)
    assert row_of(certificate).effect == "none", row_of(certificate).detail
