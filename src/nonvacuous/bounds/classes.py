"""Bounds for metrics made of classes: F1, Jaccard, balanced error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.bounds.holdout import holdout, holdout_lower
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.bounds.table import Input, theorem
from nonvacuous.errors import BadInput

__all__ = ["balanced", "balanced_tilt", "balanced_tilted", "f1_lower", "jaccard_lower"]


_ONE_CLASS: dict[str, Any] = {
    "source": "Clopper and Pearson (1934), given the number of relevant examples",
    "about": ("one class",),
    "lower": True,
    "hits": Input("examples rightly put into the class", 90, 1, whole=True, at_most="relevant"),
    "relevant": Input("examples of the class or put into it", 100, -1, whole=True),
}
_EACH_CLASS: dict[str, Any] = {
    "about": ("mean over classes",),
    "errors": Input("errors in each class", (5, 40), apart=True),
    "examples": Input("examples of each class", (50, 950), apart=True),
}


@theorem(**_ONE_CLASS)
def jaccard_lower(*, hits: int, relevant: int, failure: float) -> float:
    """Lower bound on the Jaccard index of one class: P(hit | relevant).

    ``relevant`` counts the examples that are of the class or were put into it (true positives,
    false positives, false negatives), ``hits`` the true positives among them. Given their number,
    the hits are binomial with the Jaccard index as their chance, so the exact binomial tail holds.
    Assumptions: independent draws that the predictor never saw; the class was chosen beforehand.

    >>> round(jaccard_lower(hits=90, relevant=100, failure=0.05), 4)
    0.8363
    """
    if relevant == 0:
        return 0.0
    return holdout_lower(errors=hits, examples=relevant, failure=failure)


@theorem(**_ONE_CLASS)
def f1_lower(*, hits: int, relevant: int, failure: float) -> float:
    """Lower bound on the F1 of one class: 2 J / (1 + J), which grows with the Jaccard index J.

    >>> round(f1_lower(hits=90, relevant=100, failure=0.05), 4)
    0.9108
    """
    jaccard = jaccard_lower(hits=hits, relevant=relevant, failure=failure)
    return as_risk(down(2.0 * jaccard / (1.0 + jaccard)))


@theorem(
    source="Clopper and Pearson (1934), with a union bound over the classes",
    fixed_before=("weights",),
    **_EACH_CLASS,
)
def balanced(
    *,
    errors: Sequence[int],
    examples: Sequence[int],
    failure: float,
    weights: Sequence[float] | None = None,
) -> float:
    """Upper bound on the weighted mean of the classes' error rates, one tail for each class.

    sum over classes of weight times :func:`holdout` at failure / (number of classes); equal weights
    unless declared. A class without examples counts as always wrong. Better than
    :func:`balanced_tilted` where one rare class decides.
    Assumptions: given the labels, errors are independent; weights were fixed beforehand.

    >>> round(balanced(errors=[5, 40], examples=[50, 950], failure=0.05), 3)
    0.138
    """
    pairs, parts = _classes(errors, examples, weights)
    share = down(failure / len(pairs))
    ends = [holdout(errors=k, examples=n, failure=share) if n else 1.0 for k, n in pairs]
    return as_risk(up(math.fsum(w * end for w, end in zip(parts, ends, strict=True))))


@theorem(
    source="one exponential tail for all classes, at a tilt fixed beforehand",
    fixed_before=("tilt", "weights"),
    tilt=Input("weight of an error", 12.0, apart=True),
    **_EACH_CLASS,
)
def balanced_tilted(
    *,
    errors: Sequence[int],
    examples: Sequence[int],
    tilt: float,
    failure: float,
    weights: Sequence[float] | None = None,
) -> float:
    """Upper bound on the weighted mean of the classes' error rates, one tail for all of them.

    With a_c = w_c / n_c and b_c = 1 - exp(-tilt a_c): the largest sum of w_c p_c over all p in
    [0, 1] with -sum n_c ln(1 - b_c p_c) <= tilt sum a_c k_c + ln(1/failure). From
    E exp(-tilt a_c error) = 1 - b_c p_c, independence given the labels, and Markov. What is
    returned is the value of the dual problem, which is above the largest sum whatever the
    multiplier. A class without examples counts as always wrong.
    Assumptions: as for :func:`balanced`; ``tilt`` was fixed beforehand: it may depend on the
    numbers of examples (:func:`balanced_tilt`), never on the errors.

    >>> tilt = balanced_tilt(examples=[100] * 10, failure=0.05)
    >>> call = dict(errors=[5] * 10, examples=[100] * 10, failure=0.05)
    >>> round(balanced_tilted(**call, tilt=tilt), 3), round(balanced(**call), 3)
    (0.069, 0.135)
    """
    pairs, parts = _classes(errors, examples, weights)
    slope = checks.positive("tilt", tilt)
    wrong, counts = np.array(pairs, dtype=np.float64).T
    shares = np.array(parts)
    missing = float(shares[counts == 0].sum())
    seen = counts > 0
    counts, wrong, shares = counts[seen], wrong[seen], shares[seen]
    per_error = slope * shares / counts
    factors = -np.expm1(-per_error)
    allowed = up(float((per_error * wrong).sum()) - math.log(failure), ulps=64)

    def best(multiplier: float) -> np.ndarray:
        """The p that maximizes the Lagrangian."""
        return np.asarray(
            np.clip((1.0 - multiplier * counts * factors / shares) / factors, 0.0, 1.0)
        )

    def used(multiplier: float) -> float:
        return float(-(counts * np.log1p(-factors * best(multiplier))).sum())

    low, high = 0.0, float((shares / (counts * factors)).max())
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if used(middle) > allowed else (low, middle)
    value = float((shares * best(high)).sum()) + high * max(0.0, allowed - used(high))
    return as_risk(up(value + missing, ulps=4096))


def balanced_tilt(*, examples: Sequence[int], failure: float, guess: float = 0.05) -> float:
    """A tilt for :func:`balanced_tilted` with equal weights, from the numbers of examples alone.

    The best tilt if all classes erred at the rate ``guess``, which is named before looking.

    >>> round(balanced_tilt(examples=[100] * 10, failure=0.05))
    337
    """
    sizes = [n for n in checks.counts("examples", examples) if n]
    rate = checks.unit_interval("guess", checks.positive("guess", guess))
    if not sizes:
        return 1.0
    effective = max(1, int(len(sizes) ** 2 / math.fsum(1.0 / n for n in sizes)))
    expected = min(effective, math.ceil(rate * effective))
    q = min(max(expected / effective, 1e-9), 1.0 - 1e-9)
    end = float(kl_inverse_upper(q, -math.log(checks.failure_probability(failure)) / effective))
    p = min(max(end, 1.01 * q), 1.0 - 1e-9)
    return effective * max(1e-3, math.log(p * (1.0 - q) / (q * (1.0 - p))))


def _classes(
    errors: Sequence[int], examples: Sequence[int], weights: Sequence[float] | None
) -> tuple[list[tuple[int, int]], list[float]]:
    wrong, counts = checks.counts("errors", errors), checks.counts("examples", examples)
    if len(wrong) != len(counts) or not counts:
        raise BadInput(
            f"errors and examples must hold one count per class: got {len(wrong)} and "
            f"{len(counts)} of them."
        )
    both = zip(wrong, counts, strict=True)
    pairs = [checks.errors_among(k, n) if n else (k, n) for k, n in both]
    if any(k > n for k, n in pairs):
        raise BadInput("a class without examples cannot have errors.")
    if weights is None:
        parts = [1.0 / len(counts)] * len(counts)
    else:
        parts = [checks.positive("weights", weight) for weight in weights]
        if len(parts) != len(counts) or abs(math.fsum(parts) - 1.0) > 1e-12:
            raise BadInput("weights must be positive, one per class, and sum to 1.")
    return pairs, parts
