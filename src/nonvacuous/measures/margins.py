"""Margins, by how much the right class leads, and norms divided by them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nonvacuous.errors import Unsupported
from nonvacuous.measures.norms import LogNorm, differences, log_frobenius, log_spectral, log_two_one
from nonvacuous.measures.registry import Undefined, Value, log_sum, register_measure
from nonvacuous.measures.subject import Subject

#: The share of examples that may have a smaller margin than the one that norms are divided by.
PERCENTILE = 0.1


def margin_of(subject: Subject) -> float:
    """The 10th percentile of the margins; raises Unsupported where it cannot divide anything."""
    margin = float(torch.quantile(subject.margins, PERCENTILE))
    if margin > 0:
        return margin
    wrong = float((subject.margins <= 0).double().mean())
    raise Unsupported(
        f"the 10th percentile of the margins is {margin:.3g}: {wrong:.0%} of the examples are "
        "wrong, and only a positive margin can divide a norm; train the network longer"
    )


_register = functools.partial(
    register_measure, family="margins", needs=["examples"], higher="better"
)
for _name, _share, _words in (
    ("margin-10", PERCENTILE, "10th percentile"),
    ("margin-median", 0.5, "median"),
):

    @_register(
        _name,
        formula=f"{_words} over examples of f_y(x) − max over k ≠ y of f_k(x)",
        source="Bartlett (1998); Jiang et al. (2019)",
        invariant=["rescaling", "permutation"],
    )
    def percentile(subject: Subject, share: float = _share) -> float:
        return float(torch.quantile(subject.margins, share))


@_register(
    "margin-normalized",
    formula="10th percentile of margin(x) / ‖f(x) − mean of its scores‖₂",
    source="after Jiang et al. (2019): divided by the spread of the same scores",
    invariant=["rescaling", "permutation", "output scale"],
)
def normalized_margin(subject: Subject) -> float | Undefined:
    centered = subject.scores - subject.scores.mean(1, keepdim=True)
    spread = centered.square().sum(1).sqrt()
    if not bool((spread > 0).all()):
        return Undefined("all classes have the same score on some example")
    return float(torch.quantile(subject.margins / spread, PERCENTILE))


_BARTLETT = "Bartlett, Foster and Telgarsky (2017), Theorem 1.1, without ln(width) and n"
_NEYSHABUR = "Neyshabur, Bhojanapalli and Srebro (2018), Theorem 1, without depth and width"


def _relative(norm: LogNorm, power: float) -> Callable[[Subject, Sequence[Tensor]], float]:
    """ln of Π s (Σ (norm of the distance / s)^power)^(1 / power), s spectral norms."""

    def logarithm(subject: Subject, distances: Sequence[Tensor]) -> float:
        spectral = list(map(log_spectral, subject.layers))
        ratios = [
            power * (norm(d) - s) if s > -math.inf else -math.inf
            for d, s in zip(distances, spectral, strict=True)
        ]
        return math.fsum(spectral) + 1 / power * log_sum(ratios)

    return logarithm


def _register_divided(
    name: str,
    formula: str,
    source: str,
    log_norms: Callable[[Subject, Sequence[Tensor]], float],
    *,
    moved: bool = False,
) -> None:
    """A norm of the layers, or of what training has ``moved`` them by, over the margin."""

    @register_measure(
        name,
        family="margin-normalized norms",
        formula=f"(X/γ) {formula}",
        source=source,
        needs=["examples", "initial"] if moved else ["examples"],
        invariant=["permutation"] if moved else ["permutation", "output scale"],
    )
    def divided(subject: Subject) -> Value:
        margin = math.log(margin_of(subject))
        norms = log_norms(subject, differences(subject) if moved else subject.layers)
        square = float(subject.examples[0].flatten(1).square().sum(1).mean())
        inputs = 0.5 * math.log(square) if square > 0 else -math.inf
        return Value.of_log(norms + inputs - margin)


_bartlett, _neyshabur = _relative(log_two_one, 2 / 3), _relative(log_frobenius, 2)
_register_divided(
    "bartlett-margin",
    "Π‖W‖₂ (Σ(‖W‖₂,₁ / ‖W‖₂)^(2/3))^(3/2), X the root mean square length of inputs, γ = margin-10",
    _BARTLETT,
    _bartlett,
)
_register_divided(
    "bartlett-distance-margin",
    "Π‖W‖₂ (Σ(‖W − W₀‖₂,₁ / ‖W‖₂)^(2/3))^(3/2)",
    _BARTLETT,
    _bartlett,
    moved=True,
)
_register_divided("neyshabur-margin", "Π‖W‖₂ sqrt(Σ(‖W‖_F / ‖W‖₂)²)", _NEYSHABUR, _neyshabur)
_register_divided(
    "neyshabur-distance-margin",
    "Π‖W‖₂ sqrt(Σ(‖W − W₀‖_F / ‖W‖₂)²)",
    _NEYSHABUR + ", with the distance as in Jiang et al. (2020)",
    _neyshabur,
    moved=True,
)
_register_divided(
    "frobenius-margin",
    "Π‖W‖_F",
    "Neyshabur, Tomioka and Srebro (2015); Golowich, Rakhlin and Shamir (2018)",
    lambda _, matrices: math.fsum(map(log_frobenius, matrices)),
)
