"""Counts, norms of the weight matrices, and how far training has carried them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from nonvacuous.bounds.capacity import vc_upper
from nonvacuous.measures.gauges import balanced
from nonvacuous.measures.registry import Value, log_sum, register_measure
from nonvacuous.measures.subject import Subject, layers_of
from nonvacuous.rescaling.structure import score_difference

register_measure(
    "parameter-count",
    family="capacity",
    formula="number of weights and biases",
    source="the usual count",
    invariant=["rescaling", "permutation", "output scale"],
)(lambda subject: subject.count)


@register_measure(
    "vc-dimension",
    family="capacity",
    formula="largest m with Π over layers of 2(2e m c d / W)^W ≥ 2^m, for the difference of two "
    "scores",
    source="Bartlett, Harvey, Liaw and Mehrabian (2019), Theorem 6: an upper bound",
    invariant=["rescaling", "permutation", "output scale"],
)
def vc_dimension(subject: Subject) -> float:
    parameters, comparisons = zip(*score_difference(subject.graph), strict=True)
    return float(vc_upper(parameters=parameters, comparisons=comparisons))


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
    norms = math.fsum(map(log_frobenius, subject.layers))
    if longest == 0.0:
        return Value.of(0.0)
    return Value.of_log(norms + math.log(longest * depth) - 0.5 * math.log(len(inputs)))


def length(parts: Iterable[Tensor]) -> float:
    """The Euclidean norm of all entries of some tensors together."""
    return math.sqrt(math.fsum(float(part.square().sum()) for part in parts))


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
#: The sum over rows of the length of the row.
log_two_one = _scaled(lambda matrix: matrix.square().sum(1).sqrt().sum())

#: name -> (logarithm of the norm, how it is written, source)
NORMS: dict[str, tuple[LogNorm, str, str]] = {
    "frobenius": (log_frobenius, "‖W‖_F", "Neyshabur, Tomioka and Srebro (2015)"),
    "spectral": (log_spectral, "‖W‖₂", "Bartlett, Foster and Telgarsky (2017)"),
    "one-infinity": (
        _scaled(lambda matrix: matrix.abs().sum(1).max()),
        "max over rows of ‖row‖₁",
        "Bartlett (1998); Neyshabur, Tomioka and Srebro (2015)",
    ),
    "two-one": (log_two_one, "Σ over rows of ‖row‖₂", "Bartlett, Foster and Telgarsky (2017)"),
}


def _register(
    name: str,
    log_norm: LogNorm,
    formula: str,
    source: str,
    matrices: Callable[[Subject], Sequence[Tensor]],
    **about: Any,
) -> None:
    """The product and the sum over layers of one norm; {} in the source says which of them."""
    for whole, sign, joined in (("product", "Π", math.fsum), ("sum", "Σ", log_sum)):

        @register_measure(
            f"{name}-{whole}",
            formula=f"{sign} over layers of {formula}",
            source=source.format(whole),
            **about,
        )
        def norm(subject: Subject, joined: Callable[[list[float]], float] = joined) -> Value:
            return Value.of_log(joined([log_norm(matrix) for matrix in matrices(subject)]))


def differences(subject: Subject) -> list[Tensor]:
    before = layers_of(subject.graph, subject.started)
    return [matrix - start for matrix, start in zip(subject.layers, before, strict=True)]


for _name, (_norm, _formula, _source) in NORMS.items():
    _register(
        _name,
        _norm,
        _formula,
        _source,
        lambda subject: subject.layers,
        family="norms",
        invariant=["permutation"],
    )
for _name in ("frobenius", "spectral"):
    _register(
        f"balanced-{_name}",
        NORMS[_name][0],
        f"{NORMS[_name][1]}, of the weights in the gauge of smallest norm",
        f"{_name}-{{}} where the norm is smallest over rescaling",
        lambda subject: layers_of(subject.graph, balanced(subject)),
        family="norms",
        invariant=["rescaling", "permutation"],
        cost="expensive",
    )


_about_distance: dict[str, Any] = {
    "family": "distance from initialization",
    "needs": ["initial"],
    "invariant": ["permutation"],
}
register_measure(
    "distance",
    formula="‖w − w₀‖₂ over all weights and biases",
    source="Dziugaite and Roy (2017); Nagarajan and Kolter (2019)",
    **_about_distance,
)(lambda subject: length(w - subject.started[name] for name, w in subject.weights.items()))
for _name, (_norm, _formula, _source) in NORMS.items():
    _register(
        f"{_name}-distance",
        _norm,
        _formula.replace("W", "W − W₀").replace("‖row‖", "‖row − row₀‖"),
        _source,
        differences,
        **_about_distance,
    )
