"""How sure a rate is: exact within one network, by Student's t over networks, by permutation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nonvacuous.bounds import checks, holdout, holdout_lower
from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it. ``how`` says what the interval rests on."""

    value: float
    low: float
    high: float
    how: str

    def text(self, *, percent: bool = True) -> str:
        """For a person: the value, and the interval in brackets.

        >>> Interval(0.031, 0.025, 0.04, "").text()
        '3.1 % (2.5 to 4.0)'
        """
        if not percent:
            return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def exact_rate(errors: int, examples: int, *, confidence: float) -> Interval:
    """The share of errors of one fixed network, with the interval of Clopper and Pearson (1934).

    >>> exact_rate(9, 360, confidence=0.95).text()
    '2.5 % (1.1 to 4.7)'
    """
    failure = checks.failure_of(confidence) / 2
    return Interval(
        value=errors / examples,
        low=holdout_lower(errors=errors, examples=examples, failure=failure),
        high=holdout(errors=errors, examples=examples, failure=failure),
        how="exact binomial",
    )


def over_networks(values: Sequence[float], *, confidence: float) -> Interval:
    """The mean over independently trained networks, with Student's t interval.

    It says how much another choice of seeds would move the mean, not another test set.

    >>> over_networks([0.02, 0.03, 0.04], confidence=0.95).text()
    '3.0 % (0.5 to 5.5)'
    """
    if not values:
        raise BadInput("over_networks: there is no value to average; train at least one network")
    count, mean = len(values), math.fsum(values) / len(values)
    if count == 1:
        return Interval(mean, mean, mean, "one network: no interval over seeds")
    from scipy import stats

    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half = float(stats.t.ppf(0.5 + confidence / 2, count - 1)) * spread
    return Interval(mean, mean - half, mean + half, f"t over {count} seeds")


def error_rate(errors: Sequence[int], examples: int, *, confidence: float) -> Interval:
    """The mean share of errors of several networks on the same examples.

    One network: the exact interval. Several: the wider of the exact interval at the mean (which
    examples are in the set) and Student's t (which seed), never outside [0, 1].
    """
    total = round(math.fsum(errors) / len(errors))
    exact = exact_rate(total, examples, confidence=confidence)
    if len(errors) == 1:
        return exact
    seeds = over_networks([count / examples for count in errors], confidence=confidence)
    low, high = min(exact.low, seeds.low), max(exact.high, seeds.high)
    return Interval(
        seeds.value, max(0.0, low), min(1.0, high), f"exact binomial and {seeds.how}, the wider"
    )


def ratio_over_networks(
    numerators: Sequence[float], denominators: Sequence[float], *, confidence: float
) -> Interval:
    """The geometric mean of ratios paired by seed, with Student's t on the logarithms."""
    logs = [math.log(top / bottom) for top, bottom in zip(numerators, denominators, strict=True)]
    found = over_networks(logs, confidence=confidence)
    return Interval(math.exp(found.value), math.exp(found.low), math.exp(found.high), found.how)


def permutation_p_value(observed: float, permuted: Sequence[float]) -> float:
    """How often permuted labels do at least as well (here: err as rarely) as the true ones.

    The observed labeling counts as one of the permutations, which makes the p-value exact; it is
    never below 1 / (permutations + 1).

    >>> permutation_p_value(0.03, [0.9, 0.88, 0.91])
    0.25
    """
    if not permuted:
        raise BadInput("permutation_p_value: train at least one network on permuted labels")
    return (1 + sum(value <= observed for value in permuted)) / (1 + len(permuted))
