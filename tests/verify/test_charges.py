"""The ledger that a sparsity certificate must have: the theorem's own, line by line."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from nonvacuous.methods.sparsity import charges
from nonvacuous.methods.sparsity.charges import check_charges, hidden_widths
from nonvacuous.records import ComplexityRecord, KlTerm
from nonvacuous.rules.derandomization import charge_records
from nonvacuous.sparsity import constants
from nonvacuous.sparsity.certify import evaluator_of
from nonvacuous.sparsity.setting import (
    AnySetting,
    ConvSetting,
    Setting,
    SparseSettings,
    UniformSetting,
    total_nats,
)
from nonvacuous.sparsity.weights import Layers, Network
from nonvacuous.sparsity_records import ChargeRecord, NoiseLayer, SparsityRecord
from nonvacuous.verification.findings import Disagreement
from tests.sparsity.conv_worlds import moved, random_chain

CLASSES = 4


def perceptron(widths: tuple[int, ...], *, bias: bool, seed: int) -> Layers:
    generator = torch.Generator().manual_seed(seed)
    sizes = (5, *widths, CLASSES)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    pairs = list(itertools.pairwise(sizes))
    return Layers(
        tuple(draw(out, into) for into, out in pairs),
        tuple(draw(out) if bias else None for _, out in pairs),
        tuple(f"layers.{2 * k}" for k in range(len(pairs))),
    )


def record_of(
    network: Network, theorem: str, variant: str, lines: tuple[ChargeRecord, ...], choices: int
) -> tuple[SparsityRecord, ComplexityRecord]:
    """The fields of a record that a ledger is about."""
    terms, layers = [], []
    for position, name in enumerate(network.names):
        names = [f"{name}.weight"]
        if isinstance(network, Layers):
            terms.append(KlTerm(tensor=names[0], size=network.weights[position].numel(), nats=0.0))
            bias = network.biases[position]
            if bias is not None:
                names.append(f"{name}.bias")
                terms.append(KlTerm(tensor=names[1], size=bias.numel(), nats=0.0))
        layers.append(
            NoiseLayer.model_construct(
                name=name, tensors=tuple(names), scale=1.0, squared_distance=0.0
            )
        )
    record = SparsityRecord.model_construct(
        theorem=theorem,
        variant=variant,
        layers=tuple(layers),
        charges=lines,
        grid_nats=total_nats(lines),
        choices=choices,
        images=None if isinstance(network, Layers) else network.input_shape,
    )
    return record, ComplexityRecord.model_construct(terms=tuple(terms), kl_nats=0.0)


def settings(theorem: str, variant: str, hidden: int) -> list[AnySetting]:
    steps = (1,) * hidden
    if theorem == "A":
        return [UniformSetting((1 if variant == "sparse" else 0,) * hidden, -8, steps, 3)]
    tails: dict[str, tuple[Any, ...]] = {
        "D": (None,),
        "E": ("cap", "exponential"),
        "F": ("sizes",),
    }
    anchored = (False, True) if variant == "sparse" and theorem != "D" else (False,)
    return [
        Setting(-20, steps, 3, tail, 0 if tail is None else 5, anchor, named)
        for tail in tails[theorem]
        for anchor in anchored
        for named in (False, True)
    ]


@pytest.mark.parametrize("theorem", ["A", "D", "E", "F"])
@pytest.mark.parametrize("variant", ["sparse", "dense"])
@pytest.mark.parametrize("widths", [(6,), (6, 3), (3, 6, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_ledger_is_the_theorem_s_own(
    theorem: str, variant: str, widths: tuple[int, ...], bias: bool
) -> None:
    network, prior = (perceptron(widths, bias=bias, seed=seed) for seed in (0, 1))
    for setting, choices in itertools.product(settings(theorem, variant, len(widths)), (1, 3)):
        evaluator = evaluator_of(
            network, prior, SparseSettings(theorem=theorem, variant=variant, choices=choices)
        )
        paid = charge_records(evaluator.charges(setting))
        check_all(network, theorem, variant, setting, paid, choices, CLASSES)
    record, complexity = record_of(network, theorem, variant, paid, choices)
    assert hidden_widths(record, complexity, CLASSES) == widths


@pytest.mark.parametrize("variant", ["sparse", "dense"])
@pytest.mark.parametrize("world", ["strided", "two", "linear"])
def test_the_ledger_of_convolutions(world: str, variant: str) -> None:
    generator = torch.Generator().manual_seed(3)
    prior = random_chain(world, generator, bias=True)
    network = moved(prior, 0.1, generator)
    setting = ConvSetting(-20, (1,) * (len(network.names) - 1), 3)
    evaluator = evaluator_of(network, prior, SparseSettings(theorem="E", variant=variant))
    paid = charge_records(evaluator.charges(setting))
    check_all(network, "E", variant, setting, paid, 1, len(network.output))


def check_all(
    network: Network,
    theorem: str,
    variant: str,
    setting: AnySetting,
    paid: tuple[ChargeRecord, ...],
    choices: int,
    classes: int,
) -> None:
    """The true ledger passes; with a line less, one more, or one made cheaper, none does."""

    def check(lines: tuple[ChargeRecord, ...]) -> None:
        record, complexity = record_of(network, theorem, variant, lines, choices)
        check_charges(record, setting, complexity, classes=classes)

    check(paid)
    for place, line in enumerate(paid):
        rest = (*paid[:place], *paid[place + 1 :])
        with pytest.raises(Disagreement):
            check(rest)
        for change in (
            {"nats": line.nats / 2 if ": pairs" not in line.name else 0.0},
            {"choice": "reference x 2^(0/1000)"},
            {"choice": ""},
            {"name": line.name + " again"},
        ):
            with pytest.raises(Disagreement):
                check((*rest, line.model_copy(update=change)))
        with pytest.raises(Disagreement, match="twice"):
            check((*paid, line))
    with pytest.raises(Disagreement, match="no choice"):
        check((*paid, ChargeRecord(name="goodwill", choice="plenty", nats=0.0)))


def test_tables_of_very_many_classes_are_never_named_pair_by_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, prior = (perceptron((6,), bias=False, seed=seed) for seed in (0, 1))
    for module in (charges, constants):
        monkeypatch.setattr(module, "LARGEST_TABLE", CLASSES * CLASSES * 7 - 1)
    setting = Setting(-20, (1,), 3, "cap", 5, False, True)
    evaluator = evaluator_of(network, prior, SparseSettings(theorem="E", variant="sparse"))
    paid = charge_records(evaluator.charges(setting))
    assert not any("pairs" in line.name for line in paid)
    check_all(network, "E", "sparse", setting, paid, 1, CLASSES)


@pytest.mark.parametrize("classes", [3, 5])
def test_tensors_of_another_shape(classes: int) -> None:
    network = perceptron((6, 7), bias=True, seed=0)
    record, complexity = record_of(network, "E", "sparse", (), 1)
    with pytest.raises(Disagreement, match="outputs"):
        hidden_widths(record, complexity, classes)
