"""compare: is the second predictor better than the first, on the same examples?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nonvacuous.bounds import betting, betting_lower, checks, paired_lower, sign_test
from nonvacuous.bounds.rounding import down
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.coding import Coder, plain

#: Examples that would tell two predictors apart are not named beyond this.
_MOST = 10**9


@dataclass(frozen=True)
class Comparison:
    """Risk of the first minus risk of the second: positive where the second (B) errs less."""

    difference_lower: float
    difference_upper: float
    #: Exact two-sided sign test; None for losses between 0 and 1. The verdict is the interval's.
    p_value: float | None
    #: A wrong and B right, and the reverse; None for losses between 0 and 1.
    wins: int | None
    losses: int | None
    examples: int
    confidence: float
    verdict: str
    names: tuple[str, str] = ("A", "B")
    groups: dict[str, dict[str, Comparison]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.verdict

    @property
    def better(self) -> str | None:
        """Whoever is shown to err less; None while they are not told apart."""
        if self.difference_lower > 0.0:
            return self.names[1]
        return self.names[0] if self.difference_upper < 0.0 else None


def compare(
    predictions_a: Any,
    predictions_b: Any,
    labels: Any = None,
    *,
    confidence: float = 0.95,
    groups: dict[str, Any] | None = None,
    clusters: Any = None,
    names: Sequence[str] = ("A", "B"),
    attempts: int = 1,
    seed: int = 0,
) -> Comparison:
    """The difference of two risks with both ends, exactly, from the same examples.

    Without ``labels`` the two columns are losses in [0, 1] of the same examples. ``clusters``
    says which rows belong together. ``attempts`` shares the confidence where the best of several
    predictors, all fixed before any result was shown, is compared: choosing is paid for.

    >>> labels = [0, 1] * 200
    >>> first = [0, 0] * 30 + [0, 1] * 170
    >>> result = compare(first, labels, labels)
    >>> result.wins, result.losses, result.better
    (30, 0, 'B')
    """
    failure = checks.failure_of(confidence) / checks.count("attempts", attempts, minimum=1)
    columns = [plain(predictions_a, "predictions_a"), plain(predictions_b, "predictions_b")]
    if labels is not None:
        columns.append(plain(labels, "labels"))
    sizes = {len(column) for column in columns}
    if len(sizes) != 1 or not len(columns[0]):
        raise BadInput(f"both predictors answer the same examples: got {sorted(sizes)} rows.")
    if labels is None:
        first, second = (np.asarray(c, dtype=np.float64) for c in columns)
        if not all(((c >= 0) & (c <= 1)).all() for c in (first, second)):
            raise BadInput("without labels the two columns must be losses in [0, 1].")
    else:
        coder = Coder()
        codes = [coder(column) for column in columns]
        first, second = ((c != codes[2]).astype(np.float64) for c in codes[:2])
    units = None if clusters is None else Coder()(plain(clusters, "clusters"))
    pair = (str(names[0]), str(names[1]))
    exact = labels is not None and units is None
    whole = _compared(first - second, units, exact, failure, confidence, pair, seed)
    parts: dict[str, dict[str, Comparison]] = {}
    for name, column in (groups or {}).items():
        coder = Coder()
        codes_g = coder(plain(column, name))
        if len(codes_g) != len(first):
            raise BadInput(f"group {name!r} has {len(codes_g)} rows for {len(first)} examples.")
        parts[name] = {
            str(value): _compared(
                (first - second)[codes_g == code],
                None if units is None else units[codes_g == code],
                exact,
                failure,
                confidence,
                pair,
                seed,
            )
            for code, value in enumerate(coder.values)
        }
    return Comparison(**{**vars(whole), "groups": parts})


def _compared(
    differences: np.ndarray,
    units: np.ndarray | None,
    exact: bool,
    failure: float,
    confidence: float,
    names: tuple[str, str],
    seed: int,
) -> Comparison:
    half = down(failure / 2)
    wins = losses = None
    p_value = None
    if exact:
        wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
        n = len(differences)
        low = paired_lower(wins=wins, losses=losses, examples=n, failure=half)
        high = -paired_lower(wins=losses, losses=wins, examples=n, failure=half)
        one = min(sign_test(wins=wins, losses=losses), sign_test(wins=losses, losses=wins))
        p_value = min(1.0, 2.0 * one)
        spread = (wins + losses) / n - ((wins - losses) / n) ** 2
    else:
        if units is not None:
            _, where, sizes = np.unique(units, return_inverse=True, return_counts=True)
            differences = np.bincount(where, weights=differences) / sizes
        n = len(differences)
        order = np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable")
        scaled = np.clip(0.5 * (1.0 + differences[order]), 0.0, 1.0)
        low = max(-1.0, down(2.0 * betting_lower(scaled, failure=half) - 1.0))
        high = min(1.0, -down(-(2.0 * betting(scaled, failure=half) - 1.0)))
        spread = float(differences.var())
    mean = float(differences.mean())
    verdict = _verdict(low, high, mean, spread, n, half, names)
    return Comparison(low, high, p_value, wins, losses, n, confidence, verdict, names)


def _verdict(
    low: float, high: float, mean: float, spread: float, n: int, half: float, names: tuple[str, str]
) -> str:
    if low > 0.0 or high < 0.0:
        better = names[1] if low > 0.0 else names[0]
        ends = (low, high) if low > 0.0 else (-high, -low)
        least, most = math.floor(1000 * ends[0]) / 10, math.ceil(1000 * ends[1]) / 10
        return f"{better} errs less, by {least:g} to {most:g} points"
    more = _more_examples(mean, spread, n, half)
    return "not told apart" + (f": about {more:,} more examples would" if more else "")


def _more_examples(mean: float, spread: float, n: int, half: float) -> int | None:
    """How many more examples of this kind would tell them apart: an estimate, and called about."""
    if abs(mean) < 1e-9 or spread <= 0.0:
        return None
    from scipy import special

    needed = spread * (float(special.ndtri(1.0 - half)) / mean) ** 2 * 1.2
    if not n < needed < _MOST:
        return max(1, n // 5) if needed <= n else None
    digits = 10 ** max(0, len(str(int(needed - n))) - 2)
    return int(math.ceil((needed - n) / digits) * digits)
