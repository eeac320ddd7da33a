"""The rules of sparsity certificates: what follows from what, for makers and checkers alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.records import ComplexityRecord, RiskRecord
from nonvacuous.rules import arithmetic, convolutions
from nonvacuous.sparsity import certify, setting
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.weights import Layers, Network
from nonvacuous.sparsity_records import ChargeRecord, SparsityRecord

_BATCH = 8192


def setting_of(record: SparsityRecord) -> setting.AnySetting:
    """The frozen setting; :class:`BadInput` where the record names none that exists."""
    convolutional = record.images is not None
    return setting.frozen_setting(
        record.theorem, record.variant, record.setting, convolutional=convolutional
    )


def evaluator_for(
    record: SparsityRecord, network: Network, prior: Network, device: str = "cpu"
) -> certify.AnyEvaluator:
    """What measures the network by the record's theorem."""
    theorem: Any = record.theorem
    asked = setting.SparseSettings(theorem=theorem, variant=record.variant, choices=record.choices)
    return certify.evaluator_of(network, prior, asked, device=device)


def loss_upper_of(theorem: str, escape: float, risk: RiskRecord) -> float:
    """What the bound starts from.

    Theorem A counts examples that fail its conditions without noise: on the others noise gives
    loss 1 with at most the escape probability. The other theorems count noisy losses, and the
    sampling is paid for.
    """
    if theorem != "A":
        return risk.risk_upper
    share = risk.amount / risk.trials
    return min(1.0, (escape + (1.0 - escape) * share) * (1.0 + 1e-12))


def descriptions(record: SparsityRecord, saw: int) -> tuple[str, str]:
    """Prior and posterior in words; ``saw`` is how many examples shaped the prior."""
    center = {
        "zero": "weights of zero",
        "initialization": "the initial weights",
        "learned": f"weights learned on {saw} examples that the bound leaves out",
    }[record.prior]
    smaller = "" if record.images is None else ", smaller on biases of convolutions"
    return (
        f"Gaussian around {center}, with the noise of the setting.",
        f"Gaussian noise around the network's weights, one scale for each layer{smaller}",
    )


def finite(median: float) -> float | None:
    """How a median is written down: infinities are no number."""
    return median if math.isfinite(median) else None


def charge_records(charges: Iterable[Charge]) -> tuple[ChargeRecord, ...]:
    return tuple(ChargeRecord(**vars(line)) for line in charges)


def odd_charge(claimed: Iterable[ChargeRecord], recomputed: Iterable[Charge]) -> str | None:
    """The first line in which two ledgers differ, in words; None where they agree."""
    expected = {line.name: line for line in charge_records(recomputed)}
    listed = list(claimed)
    names = [line.name for line in listed]
    if len(set(names)) != len(names):
        return f"{next(n for n in names if names.count(n) > 1)!r} is listed twice"
    missing = [name for name in expected if name not in names]
    if missing:
        return f"{missing[0]!r} was chosen, and nobody paid for it"
    for line in listed:
        if line.name not in expected:
            return f"{line.name!r} is no choice of this theorem"
        right = expected[line.name]
        if line != right:
            return (
                f"{line.name!r} is recorded as {line.choice!r} for {line.nats!r} nats; it is "
                f"{right.choice!r} for {right.nats!r}"
            )
    return None


def layer_of_tensor(record: SparsityRecord) -> dict[str, int]:
    """Which layer each tensor belongs to; a tensor in two layers is refused."""
    layers: dict[str, int] = {}
    for position, layer in enumerate(record.layers):
        for name in layer.tensors:
            if name in layers:
                raise BadInput(f"the tensor {name!r} is counted in two layers")
            layers[name] = position
    return layers


def wrong_layer_distance(record: SparsityRecord, complexity: ComplexityRecord) -> str | None:
    """A layer whose distance over its noise is not what its tensors add to the KL, in words."""
    where = layer_of_tensor(record)
    terms = {term.tensor: term for term in complexity.terms}
    for name in terms:
        if name not in where:
            return f"{name!r} is in the KL, but in no layer"
    for name, position in where.items():
        if name not in terms:
            return f"{name!r} of layer {record.layers[position].name} is not in the KL"
    for layer in record.layers:
        own = [terms[name] for name in layer.tensors]
        paid, size = math.fsum(term.nats for term in own), sum(term.size for term in own)
        expected = layer.squared_distance / (2.0 * layer.scale * layer.scale)
        if not abs(paid - expected) <= arithmetic.tolerance(expected, size):
            return (
                f"layer {layer.name} is {math.sqrt(layer.squared_distance):.6g} from the prior at "
                f"noise {layer.scale:.6g}, which costs {expected!r} nats; the KL counts {paid!r}"
            )
    return None


def layers_from(record: SparsityRecord, tensors: Mapping[str, Tensor]) -> Network:
    """The network out of named tensors, as the theorems read it."""
    if record.images is not None:
        return convolutions.chain_from(record, tensors)
    weights, biases = [], []
    for layer in record.layers:
        missing = [name for name in layer.tensors if name not in tensors]
        if missing:
            raise BadInput(f"there is no tensor {missing[0]!r} for layer {layer.name}")
        parts = [tensors[name].detach().to("cpu", torch.float64) for name in layer.tensors]
        if len(parts) > 2 or parts[0].dim() != 2:
            raise NotYetSupported(
                f"layer {layer.name} is not a matrix with or without a bias; only such layers "
                "can be read back from files"
            )
        weights.append(parts[0])
        biases.append(parts[1] if len(parts) == 2 else None)
    return Layers(tuple(weights), tuple(biases), tuple(layer.name for layer in record.layers))


def counts_constant(network: Network) -> bool:
    """Whether the norm of an input counts the constant that meets the first bias.

    In a convolutional network that constant stands in every patch, not in the input.
    """
    return isinstance(network, Layers) and network.biases[0] is not None


def norm_range(examples: Examples, *, constant: bool) -> tuple[float, float]:
    """Least and largest norm of the inputs, with the constant input where there is a bias."""
    lowest, highest = math.inf, 0.0
    for start in range(0, len(examples), _BATCH):
        norms = input_norms(examples.inputs[start : start + _BATCH], constant=constant)
        lowest, highest = min(lowest, float(norms.min())), max(highest, float(norms.max()))
    return lowest, highest


def input_norms(inputs: Tensor, *, constant: bool) -> Tensor:
    flat = inputs.flatten(1).double()
    return ((flat * flat).sum(1) + (1.0 if constant else 0.0)).sqrt()


def odd_norm(
    record: SparsityRecord, examples: Examples, *, constant: bool
) -> tuple[str, float, float] | None:
    """``shortest`` or ``longest``, as recorded and as it is, where both are not the same."""
    shortest, longest = norm_range(examples, constant=constant)
    for word, claimed, own in (
        ("shortest", record.shortest_input, shortest),
        ("longest", record.longest_input, longest),
    ):
        if not math.isclose(claimed, own, rel_tol=1e-9, abs_tol=1e-300):
            return word, claimed, own
    return None
