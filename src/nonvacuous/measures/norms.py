"""Counts, norms of the weight matrices, and how far training has carried them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nonvacuous.bounds.capacity import vc_upper
from nonvacuous.measures.gauges import balanced
from nonvacuous.measures.layers import layers_of
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Value, log_sum
from nonvacuous.rescaling.structure import score_difference


@register_measure(
    "parameter-count",
    family="capacity",
    formula="number of weights and biases",
    source="the usual count",
    invariant=["rescaling", "permutation", "output scale"],
)
def parameter_count(subject: Subject) -> float:
    return float(sum(weight.numel() for weight in subject.weights.values()))


@register_measure(
    "vc-dimension",
    family="capacity",
    formula="largest m with Π over layers of 2(2e m c d / W)^W ≥ 2^m, for the difference of two "
    "scores",
    source="Bartlett, Harvey, Liaw and Mehrabian (2019), Theorem 6: an upper bound",
    invariant=["rescaling", "permutation", "output scale"],
)
def vc_dimension(subject: Subject) -> float:
    layers = score_difference(subject.graph)
    return float(
        vc_upper(parameters=[own for own, _ in layers], comparisons=[signs for _, signs in layers])
    )


@register_measure(
    "rademacher-frobenius",
    family="capacity",
    formula="B (sqrt(2 d ln 2) + 1) Π‖W‖_F / sqrt(n), B the longest input, d layers, n examples",
    source="Golowich, Rakhlin and Shamir (2018), Theorem 1, for fully connected networks without "
    "biases and norms fixed before; a measure elsewhere",
    needs=["examples"],
    invariant=["permutation"],
)
def rademacher_frobenius(subject: Subject) -> Value:
    inputs, _ = subject.examples
    longest = float(inputs.flatten(1).square().sum(1).max().sqrt())
    depth = math.sqrt(2 * math.log(2) * len(subject.layers)) + 1
    norms = log_product(log_frobenius, [layer.matrix for layer in subject.layers])
    if longest == 0.0:
        return Value.of(0.0)
    return Value.of_log(norms + math.log(longest * depth) - 0.5 * math.log(len(inputs)))


LogNorm = Callable[[Tensor], float]


def _scaled(norm: Callable[[Tensor], Tensor]) -> LogNorm:
    """ln of a norm, taken of the matrix divided by its largest entry so that nothing overflows."""

    def logarithm(matrix: Tensor) -> float:
        largest = float(matrix.abs().max())
        if largest == 0.0:
            return -math.inf
        return math.log(largest) + math.log(float(norm(matrix / largest)))

    return logarithm


def _spectral(matrix: Tensor) -> Tensor:
    # The largest eigenvalue of the smaller Gram matrix is as exact as that of the matrix, and far
    # cheaper for wide layers.
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    largest: Tensor = torch.linalg.eigvalsh(gram)[-1]
    return largest.sqrt()


log_frobenius = _scaled(lambda matrix: matrix.square().sum().sqrt())
log_spectral = _scaled(_spectral)
#: The largest sum of absolute values of a row.
log_one_infinity = _scaled(lambda matrix: matrix.abs().sum(1).max())
#: The sum over rows of the length of the row.
log_two_one = _scaled(lambda matrix: matrix.square().sum(1).sqrt().sum())

#: name -> (logarithm of the norm, how it is written, source)
NORMS: dict[str, tuple[LogNorm, str, str]] = {
    "frobenius": (log_frobenius, "‖W‖_F", "Neyshabur, Tomioka and Srebro (2015)"),
    "spectral": (log_spectral, "‖W‖₂", "Bartlett, Foster and Telgarsky (2017)"),
    "one-infinity": (
        log_one_infinity,
        "max over rows of ‖row‖₁",
        "Bartlett (1998); Neyshabur, Tomioka and Srebro (2015)",
    ),
    "two-one": (log_two_one, "Σ over rows of ‖row‖₂", "Bartlett, Foster and Telgarsky (2017)"),
}


def log_product(log_norm: LogNorm, matrices: Sequence[Tensor]) -> float:
    """ln of the product of the norms; minus infinity where one is 0."""
    return math.fsum(map(log_norm, matrices))


def _register(name: str, log_norm: LogNorm, formula: str, source: str) -> None:
    @register_measure(
        f"{name}-product",
        family="norms",
        formula=f"Π over layers of {formula}",
        source=source,
        invariant=["permutation"],
    )
    def product(subject: Subject) -> Value:
        return Value.of_log(log_product(log_norm, [layer.matrix for layer in subject.layers]))

    @register_measure(
        f"{name}-sum",
        family="norms",
        formula=f"Σ over layers of {formula}",
        source=source,
        invariant=["permutation"],
    )
    def total(subject: Subject) -> Value:
        return Value.of_log(log_sum(log_norm(layer.matrix) for layer in subject.layers))


for _name, (_log_norm, _formula, _source) in NORMS.items():
    _register(_name, _log_norm, _formula, _source)


def _register_balanced(name: str, log_norm: LogNorm, formula: str, *, whole: str) -> None:
    @register_measure(
        f"balanced-{name}-{whole}",
        family="norms",
        formula=f"{formula}, of the weights in the gauge of smallest norm",
        source=f"{name}-{whole} where the norm is smallest over rescaling",
        invariant=["rescaling", "permutation"],
        cost="expensive",
    )
    def norm(subject: Subject) -> Value:
        layers = layers_of(subject.graph, balanced(subject))
        logs = [log_norm(layer.matrix) for layer in layers]
        return Value.of_log(math.fsum(logs) if whole == "product" else log_sum(logs))


for _name in ("frobenius", "spectral"):
    _log_norm, _formula, _ = NORMS[_name]
    _register_balanced(_name, _log_norm, f"Π over layers of {_formula}", whole="product")
    _register_balanced(_name, _log_norm, f"Σ over layers of {_formula}", whole="sum")


def differences(subject: Subject) -> list[Tensor]:
    """Trained minus initial matrix, for every layer."""
    pairs = zip(subject.layers, subject.initial_layers, strict=True)
    return [layer.matrix - start.matrix for layer, start in pairs]


@register_measure(
    "distance",
    family="distance from initialization",
    formula="‖w − w₀‖₂ over all weights and biases",
    source="Dziugaite and Roy (2017); Nagarajan and Kolter (2019)",
    needs=["initial"],
    invariant=["permutation"],
)
def distance(subject: Subject) -> float:
    assert subject.initial is not None
    squares = [
        float((weight - subject.initial[name]).square().sum())
        for name, weight in subject.weights.items()
    ]
    return math.sqrt(math.fsum(squares))


def _register_distance(name: str, log_norm: LogNorm, formula: str, source: str) -> None:
    written = formula.replace("W", "W − W₀").replace("‖row‖", "‖row − row₀‖")

    @register_measure(
        f"{name}-distance-product",
        family="distance from initialization",
        formula=f"Π over layers of {written}",
        source=source,
        needs=["initial"],
        invariant=["permutation"],
    )
    def product(subject: Subject) -> Value:
        return Value.of_log(log_product(log_norm, differences(subject)))

    @register_measure(
        f"{name}-distance-sum",
        family="distance from initialization",
        formula=f"Σ over layers of {written}",
        source=source,
        needs=["initial"],
        invariant=["permutation"],
    )
    def total(subject: Subject) -> Value:
        return Value.of_log(log_sum(map(log_norm, differences(subject))))


for _name, (_log_norm, _formula, _source) in NORMS.items():
    _register_distance(_name, _log_norm, _formula, _source)
