"""Margins, by how much the right class leads, and norms divided by them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nonvacuous.measures.norms import (
    differences,
    log_frobenius,
    log_product,
    log_spectral,
    log_two_one,
)
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Undefined, Value, log_sum

#: The share of examples that may have a smaller margin than the one that norms are divided by.
PERCENTILE = 0.1


def margin_of(subject: Subject) -> float | Undefined:
    """The 10th percentile of the margins, or why it cannot divide anything."""
    found = float(torch.quantile(subject.margins, PERCENTILE))
    if found > 0:
        return found
    wrong = float((subject.margins <= 0).double().mean())
    return Undefined(
        f"the 10th percentile of the margins is {found:.3g}: {wrong:.0%} of the examples are "
        "wrong, and only a positive margin can divide a norm; train the network longer"
    )


def _register(name: str, share: float, words: str) -> None:
    @register_measure(
        name,
        family="margins",
        formula=f"{words} over examples of f_y(x) − max over k ≠ y of f_k(x)",
        source="Bartlett (1998); Jiang et al. (2019)",
        needs=["examples"],
        invariant=["rescaling", "permutation"],
        higher="better",
    )
    def percentile(subject: Subject) -> float:
        return float(torch.quantile(subject.margins, share))


_register("margin-10", PERCENTILE, "10th percentile")
_register("margin-median", 0.5, "median")


@register_measure(
    "margin-normalized",
    family="margins",
    formula="10th percentile of margin(x) / ‖f(x) − mean of its scores‖₂",
    source="after Jiang et al. (2019): divided by the spread of the same scores",
    needs=["examples"],
    invariant=["rescaling", "permutation", "output scale"],
    higher="better",
)
def normalized_margin(subject: Subject) -> float | Undefined:
    centered = subject.scores - subject.scores.mean(1, keepdim=True)
    spread = centered.square().sum(1).sqrt()
    if not bool((spread > 0).all()):
        return Undefined("all classes have the same score on some example")
    return float(torch.quantile(subject.margins / spread, PERCENTILE))


_BARTLETT = "Bartlett, Foster and Telgarsky (2017), Theorem 1.1, without ln(width) and n"
_NEYSHABUR = "Neyshabur, Bhojanapalli and Srebro (2018), Theorem 1, without depth and width"


def _matrices(subject: Subject) -> list[Tensor]:
    return [layer.matrix for layer in subject.layers]


def _log_input_norm(subject: Subject) -> float:
    """ln of the root of the mean squared length of an input."""
    squares = subject.examples[0].flatten(1).square().sum(1).mean()
    return 0.5 * math.log(float(squares)) if float(squares) > 0 else -math.inf


def bartlett_log(spectral: Sequence[Tensor], distances: Sequence[Tensor]) -> float:
    """ln of Π s (Σ (b / s)^(2/3))^(3/2), s spectral norms and b sums of row lengths."""
    norms = list(map(log_spectral, spectral))
    ratios = [
        2 / 3 * (log_two_one(d) - s) if s > -math.inf else -math.inf
        for d, s in zip(distances, norms, strict=True)
    ]
    return math.fsum(norms) + 1.5 * log_sum(ratios)


def neyshabur_log(spectral: Sequence[Tensor], distances: Sequence[Tensor]) -> float:
    """ln of Π s · sqrt(Σ (F / s)²), s spectral and F Frobenius norms."""
    norms = list(map(log_spectral, spectral))
    ratios = [
        2 * (log_frobenius(d) - s) if s > -math.inf else -math.inf
        for d, s in zip(distances, norms, strict=True)
    ]
    return math.fsum(norms) + 0.5 * log_sum(ratios)


def _divided(subject: Subject, log_norms: float) -> Value | Undefined:
    margin = margin_of(subject)
    if isinstance(margin, Undefined):
        return margin
    return Value.of_log(log_norms + _log_input_norm(subject) - math.log(margin))


@register_measure(
    "bartlett-margin",
    family="margin-normalized norms",
    formula="(X/γ) Π‖W‖₂ (Σ(‖W‖₂,₁ / ‖W‖₂)^(2/3))^(3/2), X the root mean square length of inputs, "
    "γ = margin-10",
    source=_BARTLETT,
    needs=["examples"],
    invariant=["permutation", "output scale"],
)
def bartlett_margin(subject: Subject) -> Value | Undefined:
    matrices = _matrices(subject)
    return _divided(subject, bartlett_log(matrices, matrices))


@register_measure(
    "bartlett-distance-margin",
    family="margin-normalized norms",
    formula="(X/γ) Π‖W‖₂ (Σ(‖W − W₀‖₂,₁ / ‖W‖₂)^(2/3))^(3/2)",
    source=_BARTLETT,
    needs=["examples", "initial"],
    invariant=["permutation"],
)
def bartlett_distance_margin(subject: Subject) -> Value | Undefined:
    return _divided(subject, bartlett_log(_matrices(subject), differences(subject)))


@register_measure(
    "neyshabur-margin",
    family="margin-normalized norms",
    formula="(X/γ) Π‖W‖₂ sqrt(Σ(‖W‖_F / ‖W‖₂)²)",
    source=_NEYSHABUR,
    needs=["examples"],
    invariant=["permutation", "output scale"],
)
def neyshabur_margin(subject: Subject) -> Value | Undefined:
    matrices = _matrices(subject)
    return _divided(subject, neyshabur_log(matrices, matrices))


@register_measure(
    "neyshabur-distance-margin",
    family="margin-normalized norms",
    formula="(X/γ) Π‖W‖₂ sqrt(Σ(‖W − W₀‖_F / ‖W‖₂)²)",
    source=_NEYSHABUR + ", with the distance as in Jiang et al. (2020)",
    needs=["examples", "initial"],
    invariant=["permutation"],
)
def neyshabur_distance_margin(subject: Subject) -> Value | Undefined:
    return _divided(subject, neyshabur_log(_matrices(subject), differences(subject)))


@register_measure(
    "frobenius-margin",
    family="margin-normalized norms",
    formula="(X/γ) Π‖W‖_F",
    source="Neyshabur, Tomioka and Srebro (2015); Golowich, Rakhlin and Shamir (2018)",
    needs=["examples"],
    invariant=["permutation", "output scale"],
)
def frobenius_margin(subject: Subject) -> Value | Undefined:
    return _divided(subject, log_product(log_frobenius, _matrices(subject)))
