"""Attacked: the same examples, changed so little that a digest does not know them any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.data import Examples

QUICK = nv.Posterior(trials=500, twin=False, plain_training={"epochs": 2}, training={"epochs": 2})
ROW = "earlier certificates on these examples are paid for"


def plain() -> Examples:
    data = nv.data.digits().train
    return replace(data, inputs=data.inputs.flatten(1))


def run(data: Examples, folder: Path, **settings: str) -> nv.Certificate:
    network = nv.models.build("mlp:8", data.example_shape, data.classes, seed=0)
    return nv.certify(network, data, method=QUICK, folder=nv.Run(folder=folder, **settings))


def row(certificate: nv.Certificate) -> tuple[str, str]:
    (entry,) = (entry for entry in certificate.assumptions if entry.name == ROW)
    return entry.effect, entry.detail


def dressed(data: Examples, change: Callable[[torch.Tensor], torch.Tensor]) -> Examples:
    return Examples(change(data.inputs), data.labels, data.class_names, "mine")


def renamed(data: Examples) -> Examples:
    names = torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    return Examples(data.inputs, names[data.labels], data.class_names, "mine")


def shuffled(data: Examples) -> Examples:
    order = np.random.default_rng(0).permutation(len(data))
    return dressed(data.subset(order), lambda x: x * 1.5)


DISGUISES: dict[str, Callable[[Examples], Examples]] = {
    "scaled": lambda data: dressed(data, lambda x: x * 2),
    "shifted": lambda data: dressed(data, lambda x: x + 1e-6),
    "half precision": lambda data: dressed(data, lambda x: (x * 1.1).half().float()),
    "columns permuted": lambda data: dressed(data, lambda x: x.flip(1)),
    "a column added": lambda data: dressed(data, lambda x: torch.cat([x, x[:, :1] * 0], 1)),
    "classes renamed": renamed,
    "one example less": lambda data: data.subset(np.arange(1, len(data))),
    "one percent less": lambda data: data.subset(np.arange(14, len(data))),
    "in another order, and scaled": shuffled,
}


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert run(plain(), folder / "first").status == "valid"
    return folder


@pytest.mark.slow_if("scaled")
@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguise_is_seen_through(certified: Path, disguise: str) -> None:
    ledger = certified / "attempts.jsonl"
    before = ledger.read_bytes()
    certificate = run(DISGUISES[disguise](plain()), certified / disguise)
    ledger.write_bytes(before)
    effect, detail = row(certificate)
    assert effect == "conditional" and certificate.status == "conditional"
    assert "same labels" in detail and "different_data" in detail


def test_different_data_are_declared_and_quoted(certified: Path) -> None:
    ledger = certified / "attempts.jsonl"
    before = ledger.read_bytes()
    words = "photographs of another year"
    certificate = run(DISGUISES["scaled"](plain()), certified / "said", different_data=words)
    ledger.write_bytes(before)
    effect, detail = row(certificate)
    assert effect == "none" and certificate.status == "valid"
    assert words in detail


def test_the_same_examples_are_not_declared_different(certified: Path) -> None:
    words = "photographs of another year"
    data = plain()
    network = nv.models.build("mlp:8", data.example_shape, data.classes, seed=1)
    folder = nv.Run(folder=certified / "lie", different_data=words)
    certificate = nv.certify(network, data, method=QUICK, folder=folder)
    assert row(certificate)[0] == "conditional"


def test_other_data_of_the_same_size_are_not_suspected(certified: Path) -> None:
    draw = np.random.default_rng(5)
    data = plain()
    labels = torch.from_numpy(draw.integers(0, 10, len(data)))
    other = Examples(data.inputs.flip(0), labels, data.class_names, "other")
    assert row(run(other, certified / "other"))[0] == "none"
