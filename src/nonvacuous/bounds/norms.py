"""Bounds from the norms of the weights: Bartlett, Neyshabur and Golowich, as plain numbers.

Each adds to the share of training examples that are classified with less than a margin a term made
of norms. That term is mostly far above 1; it is returned uncut, since by how much is worth knowing.
All speak about the same predictor: the network itself, ReLU layers without biases (a bias is one
more column of its layer, fed by a constant 1 that counts as part of the input).

The norms and the margin must be fixed before the data are seen. Whoever puts in those of the
trained network takes each from a grid, rounded to the safe side, and divides ``failure`` by the
number of combinations: :func:`grid_point` and :func:`grid_share`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.bounds.table import guarded
from nonvacuous.errors import BadInput

__all__ = ["bartlett_gap", "golowich_gap", "margin_risk", "neyshabur_gap"]

#: Grid points for one number: 2 ** (j / 4) for -240 <= j <= 240, and one beyond either end.
_STEPS = 240
_POINTS: list[float] = [2.0 ** (j / 4) for j in range(-_STEPS - 1, _STEPS + 2)]


def margin_risk(*, margin_errors: int, examples: int, gap: float) -> float:
    """The risk bound: the share of training examples below the margin, plus the term of norms.

    >>> margin_risk(margin_errors=5, examples=100, gap=0.25)
    0.3000000000000006
    """
    errors, total = checks.errors_among(margin_errors, examples)
    return as_risk(up(errors / total + checks.non_negative("gap", gap)))


@guarded
def bartlett_gap(
    *,
    margin: float,
    inputs_norm: float,
    spectral_norms: Sequence[float],
    row_sums: Sequence[float],
    width: int,
    examples: int,
    failure: float,
) -> float:
    """The spectral-norm bound of Bartlett, Foster and Telgarsky.

    inputs_norm      sqrt of the sum of the squared norms of all training inputs
    spectral_norms   an upper bound on each layer's spectral norm
    row_sums         for each layer, an upper bound on the sum over rows of the norm of the row
                     minus a reference row that was fixed in advance (zero, or the initial weights)
    width            the largest of all layer sizes, inputs and outputs included

    Statement: with probability at least 1 - failure, for every network within these norms,
    risk <= margin risk + 8/n + 72 X ln(2 width) ln(n) / (margin n) * prod(s) *
    (sum((b / s) ** (2/3))) ** (3/2) + 3 sqrt(ln(2 / failure) / (2 n)).
    Assumptions: independent examples; norms, references and margin fixed before they were seen.
    Source: Bartlett, Foster and Telgarsky (2017), Theorem 3.3 with Dudley's integral (their Lemma
    A.8), whose last term is 3 sqrt(ln(1 / failure) / (2 n)); the 2 pays for its second side.

    >>> round(bartlett_gap(margin=1.0, inputs_norm=100.0, spectral_norms=[1.0, 1.0],
    ...     row_sums=[2.0, 2.0], width=784, examples=10_000, failure=0.05), 3)
    276.046
    """
    spectral = _norms("spectral_norms", spectral_norms)
    sums = _norms("row_sums", row_sums, like=spectral)
    length = checks.non_negative("inputs_norm", inputs_norm)
    ratios = math.fsum((b / s) ** (2.0 / 3.0) for b, s in zip(sums, spectral, strict=True))
    complexity = math.prod(spectral) * ratios**1.5
    main = 72.0 * length * math.log(2.0 * width) * math.log(examples) / (margin * examples)
    tail = 3.0 * math.sqrt(math.log(2.0 / failure) / (2.0 * examples))
    return up(8.0 / examples + main * complexity + tail, ulps=64 + 8 * len(spectral))


@guarded
def neyshabur_gap(
    *,
    margin: float,
    input_norm: float,
    spectral_norms: Sequence[float],
    frobenius_norms: Sequence[float],
    width: int,
    examples: int,
    failure: float,
) -> float:
    """The PAC-Bayes spectral-norm bound of Neyshabur, Bhojanapalli and Srebro.

    input_norm        how long any input can be, not only those seen
    spectral_norms    each layer's spectral norm, rounded up
    frobenius_norms   each layer's Frobenius norm, rounded up
    width             the largest of all layer sizes, inputs and outputs included

    Statement: with probability at least 1 - failure, for all weights at once,
    risk <= margin risk + 4 sqrt((KL + ln(6 n N / failure)) / (n - 1)). For d layers with geometric
    mean b of the spectral norms and B = input_norm, KL = (b ** 2 / (2 v)) * sum of (frobenius /
    spectral) ** 2, sqrt(v) = margin / (42 d B t ** (d-1) sqrt(h ln(4 h d))), t = (1 + 1/d) b. The
    noise may not depend on b, so t stands for the nearest of N = d n ** (1 / (2 d)) values.
    Assumptions: independent examples; the margin and B fixed before they were seen. The weights are
    free, so their norms need no grid.
    Source: Neyshabur, Bhojanapalli and Srebro (2018), Theorem 1, Lemmas 1 and 2, with their
    constants.

    >>> round(neyshabur_gap(margin=1.0, input_norm=1.0, spectral_norms=[1.0, 1.0],
    ...     frobenius_norms=[2.0, 2.0], width=784, examples=10_000, failure=0.05), 2)
    834.63
    """
    spectral = _norms("spectral_norms", spectral_norms)
    frobenius = _norms("frobenius_norms", frobenius_norms, like=spectral)
    if examples < 2:
        raise BadInput("neyshabur_gap needs at least 2 examples.")
    length = checks.positive("input_norm", input_norm)
    d = len(spectral)
    mean = math.exp(math.fsum(map(math.log, spectral)) / d)
    grid = (1.0 + 1.0 / d) * mean
    noise = margin / (
        42.0 * d * length * grid ** (d - 1) * math.sqrt(width * math.log(4.0 * width * d))
    )
    ratios = math.fsum((f / s) ** 2 for f, s in zip(frobenius, spectral, strict=True))
    kl = mean**2 * ratios / (2.0 * noise**2)
    # A cover needs a whole number of values, at least one.
    values = math.ceil(d * examples ** (1.0 / (2.0 * d)))
    logarithm = math.log(6.0 * examples * values) - math.log(failure)
    return up(4.0 * math.sqrt((kl + logarithm) / (examples - 1)), ulps=64 + 64 * d)


@guarded
def golowich_gap(
    *,
    margin: float,
    input_norm: float,
    frobenius_norms: Sequence[float],
    classes: int,
    examples: int,
    failure: float,
) -> float:
    """The Frobenius-norm bound of Golowich, Rakhlin and Shamir, for several classes.

    input_norm        how long any input can be
    frobenius_norms   an upper bound on each layer's Frobenius norm; for the last layer the largest
                      norm of a row is enough, since each class's score has one row
    classes           how many classes

    Statement: with probability at least 1 - failure, for every network within these norms,
    risk <= margin risk + (4 classes / margin) R + sqrt(ln(1 / failure) / (2 n)), where
    R = B (sqrt(2 d ln 2) + 1) prod(frobenius) / sqrt(n) for d layers and B = input_norm.
    Assumptions: independent examples; norms, B and margin fixed before they were seen.
    Source: Golowich, Rakhlin and Shamir (2018), Theorem 1, for R; Mohri, Rostamizadeh and
    Talwalkar (2018), Theorem 9.2, for the margins of several classes.

    >>> round(golowich_gap(margin=1.0, input_norm=1.0, frobenius_norms=[2.0, 1.0], classes=10,
    ...     examples=10_000, failure=0.05), 4)
    2.1443
    """
    frobenius = _norms("frobenius_norms", frobenius_norms)
    kinds = checks.count("classes", classes, minimum=2)
    length = checks.non_negative("input_norm", input_norm)
    depth = math.sqrt(2.0 * math.log(2.0) * len(frobenius)) + 1.0
    rademacher = length * depth * math.prod(frobenius) / math.sqrt(examples)
    tail = math.sqrt(-math.log(failure) / (2.0 * examples))
    return up(4.0 * kinds * rademacher / margin + tail, ulps=64 + 8 * len(frobenius))


def grid_point(value: float, *, downward: bool = False) -> float:
    """The next number 2 ** (j / 4) at or above ``value``; with ``downward`` at or below it.

    >>> grid_point(3.0), grid_point(3.0, downward=True)
    (3.363585661014858, 2.8284271247461903)
    """
    number = checks.positive("value", value)
    index = bisect_right(_POINTS, number) - 1 if downward else bisect_left(_POINTS, number)
    if not 1 <= index <= 2 * _STEPS + 1:
        raise BadInput(
            f"{value!r} lies outside the grid from {_POINTS[1]:.0e} to {_POINTS[-2]:.0e}; rescale "
            "the network."
        )
    return _POINTS[index]


def grid_share(failure: float, *, numbers: int) -> float:
    """The failure probability left for each choice of so many grid points, rounded down.

    >>> grid_share(0.05, numbers=1) == 0.05 / 481
    False
    >>> round(grid_share(0.05, numbers=1) * 481, 12)
    0.05
    """
    delta = checks.failure_probability(failure)
    count = checks.count("numbers", numbers, minimum=0)
    share = delta / float(2 * _STEPS + 1) ** count if count < 110 else 0.0
    return down(checks.failure_probability(share, name="failure per grid point"))


def _norms(name: str, values: Any, like: tuple[float, ...] | None = None) -> tuple[float, ...]:
    """One positive norm for each layer."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
        raise BadInput(f"{name} must be a sequence of numbers, one per layer, got {values!r}.")
    numbers = tuple(checks.positive(name, value) for value in values)
    if like is not None and len(numbers) != len(like):
        raise BadInput(f"{name} holds {len(numbers)} numbers for {len(like)} layers.")
    return numbers
