"""Two predictors on the same examples: exact test and exact bounds on the difference of risks.

``wins`` are the examples on which the first is wrong and the second right, ``losses`` the reverse.
The difference is P(win) - P(loss) = risk of the first minus risk of the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import gt
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.holdout import holdout, holdout_lower, log_choose
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.later import special
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.bounds.table import Input, theorem
from nonvacuous.errors import BadInput

__all__ = ["constant_margin", "paired_lower", "rectangle_lower", "sign_test"]

#: Part of the failure probability for the share of examples on which the two differ.
DISCORDANCE_SHARE = 0.2
#: Beyond these the whole supremum takes long: the rectangle is used, whatever the counts.
MOST_EXAMPLES, MOST_COMPARED = 300_000, 60_000
_CELLS, _FINEST, _MOST_CELLS = 32, 1e-7, 4096


_DIFFERENCE: dict[str, Any] = {
    "about": ("difference of two",),
    "lower": True,
    "wins": Input("the first wrong, the second right", 50, apart=True),
    "losses": Input("the reverse", 10, apart=True),
}


def sign_test(*, wins: int, losses: int) -> float:
    """How likely so many wins are, or more, if the second predictor is not better (McNemar, exact).

    P(Bin(wins + losses, 1/2) >= wins): given on how many examples the two differ, wins are binomial
    with a chance of at most one half. 1 where they never differ.

    >>> round(sign_test(wins=15, losses=5), 4)
    0.0207
    """
    won, lost = checks.count("wins", wins), checks.count("losses", losses)
    if won == 0:
        return 1.0
    return as_risk(up(float(special.bdtrc(won - 1, won + lost, 0.5)), ulps=4096))


@theorem(
    source="Berger and Boos (1994), over the share of examples on which the two differ",
    **_DIFFERENCE,
)
def paired_lower(*, wins: int, losses: int, examples: int, failure: float) -> float:
    """Lower bound on the difference of risks, in [-1, 1]: how much the second is better at least.

    A difference D is ruled out if, for every share s of examples on which the two may differ, from
    abs(D) to its upper end at a fifth of ``failure``, so large a surplus of wins has probability at
    most the other four fifths (Berger and Boos 1994). The least difference not ruled out is
    returned. The supremum over s is the whole one: on every cell [a, b] of s the probability is
    bounded by that of P(win) = (b + D) / 2, P(loss) = (a - D) / 2, and cells are split until all
    lie below the goal. Beyond 300,000 examples: :func:`rectangle_lower`.
    Assumptions: independent draws; both predictors fixed before they met them.

    >>> round(paired_lower(wins=50, losses=10, examples=1000, failure=0.05), 4)
    0.0238
    """
    won, lost = _counts(wins, losses, examples)
    if examples > MOST_EXAMPLES:
        return rectangle_lower(wins=won, losses=lost, examples=examples, failure=failure)
    most = holdout(errors=won + lost, examples=examples, failure=down(DISCORDANCE_SHARE * failure))
    goal = down((1.0 - DISCORDANCE_SHARE) * failure, ulps=64)
    surplus = won - lost

    def ruled_out_at_the_end(difference: float) -> bool:
        return float(_chance(surplus, examples, *_rates(most, most, difference))[0]) <= goal

    # The end of the range alone gives a first guess, which is never too small.
    low, high = -most, min(surplus / examples, most)
    while high - low > 1e-7:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ruled_out_at_the_end(middle) else (low, middle)
    step = 2e-6
    while low > -most and not _ruled_out(low - step, most, surplus, examples, goal):
        low, step = low - step, 2.0 * step
    return max(-1.0, -most, down(low - step))


@theorem(source="Clopper and Pearson (1934), two tails", **_DIFFERENCE)
def rectangle_lower(*, wins: int, losses: int, examples: int, failure: float) -> float:
    """The same from two tails: of the share s on which the two differ, and of wins among these.

    The difference is s (2 t - 1), t the chance that a difference is a win. The tail of t at four
    fifths of ``failure``, the end of s that the sign of 2 t - 1 asks for at one fifth.

    >>> round(rectangle_lower(wins=50, losses=10, examples=1000, failure=0.05), 4)
    0.0199
    """
    won, lost = _counts(wins, losses, examples)
    part = down(DISCORDANCE_SHARE * failure)
    differ = won + lost
    most = holdout(errors=differ, examples=examples, failure=part)
    if differ == 0:
        return -most
    rest = down((1.0 - DISCORDANCE_SHARE) * failure)
    lean = 2.0 * holdout_lower(errors=won, examples=differ, failure=rest) - 1.0
    least = holdout_lower(errors=differ, examples=examples, failure=part)
    return max(-1.0, down(lean * (least if lean > 0.0 else most)))


def constant_margin(
    *, hits: Sequence[int], totals: Sequence[int], failure: float
) -> tuple[float, int]:
    """By how much a predictor beats the best constant answer at least, and which class that is.

    ``totals[c]`` examples are of class c, ``hits[c]`` of them were answered right. For each class,
    a lower bound on the risk of always answering it minus the risk of the predictor, each at the
    whole ``failure``; the least of them is below the margin to the best constant, whichever that is
    (intersection-union). Beyond 60,000 examples times classes by
    :func:`rectangle_lower`.

    >>> constant_margin(hits=[90, 85], totals=[100, 100], failure=0.05)[0] > 0.25
    True
    """
    right, counts = checks.counts("hits", hits), checks.counts("totals", totals)
    if len(right) != len(counts) or not counts or any(map(gt, right, counts)):
        raise BadInput("hits and totals must hold one count per class, hits at most totals.")
    n, all_right = sum(counts), sum(right)
    bound = paired_lower if n * len(counts) <= MOST_COMPARED else rectangle_lower
    pairs = {(all_right - hit, total - hit) for hit, total in zip(right, counts, strict=True)}
    margin = min(bound(wins=won, losses=lost, examples=n, failure=failure) for won, lost in pairs)
    return margin, counts.index(max(counts))


def _ruled_out(difference: float, most: float, surplus: int, n: int, goal: float) -> bool:
    """Whether the surplus is too unlikely for every share at which the two may differ."""
    edges = np.linspace(min(abs(difference), most), most, _CELLS + 1)
    starts, ends = edges[:-1], edges[1:]
    while True:
        too_likely = _chance(surplus, n, *_rates(starts, ends, difference)) > goal
        if not too_likely.any():
            return True
        starts, ends = starts[too_likely], ends[too_likely]
        if len(starts) > _MOST_CELLS or float((ends - starts).max()) < _FINEST:
            return False
        if (_chance(surplus, n, *_rates(ends, ends, difference)) > goal).any():
            return False
        middles = 0.5 * (starts + ends)
        starts, ends = np.concatenate((starts, middles)), np.concatenate((middles, ends))


def _rates(starts: object, ends: object, difference: float) -> tuple[np.ndarray, np.ndarray]:
    """P(win) and P(loss), each at the end of the cell that makes a surplus likelier."""
    low = np.atleast_1d(np.asarray(starts, dtype=np.float64))
    high = np.atleast_1d(np.asarray(ends, dtype=np.float64))
    lose = np.maximum(0.0, 0.5 * (low - difference))
    return np.clip(0.5 * (high + difference), 0.0, 1.0 - lose), lose


def _chance(surplus: int, n: int, win: np.ndarray, lose: np.ndarray) -> np.ndarray:
    """P(wins - losses >= surplus), rounded up: a sum over the number on which the two differ."""
    differ = np.minimum(win + lose, 1.0)
    spread = 9.0 * np.sqrt(n * float((differ * (1.0 - differ)).max())) + 40.0
    first = max(0, math.floor(n * float(differ.min()) - spread))
    last = min(n, math.ceil(n * float(differ.max()) + spread))
    m = np.arange(first, last + 1, dtype=np.float64)
    share, chance = differ[:, None], (win / np.maximum(differ, 1e-300))[:, None]
    logs = log_choose(n, m) + special.xlogy(m, share) + special.xlog1py(n - m, -share)
    least = np.ceil(0.5 * (m + surplus))
    # P(Bin(m, t) >= j) = I_t(j, m - j + 1); certain at j <= 0, impossible at j > m.
    inside = (least >= 1.0) & (least <= m)
    enough = np.where(
        inside,
        special.betainc(
            np.where(inside, least, 1.0), np.where(inside, m - least + 1.0, 1.0), chance
        ),
        least <= 0.0,
    )
    # The logarithms of factorials are off by 1e-15 n ln n at most; nine deviations leave 1e-15 out.
    error = 1e-15 * n * math.log(n + 2.0) + 1e-11
    return np.asarray((np.exp(logs) * enough).sum(axis=1) * (1.0 + error) + 1e-14)


def _counts(wins: int, losses: int, examples: int) -> tuple[int, int]:
    won, lost = checks.count("wins", wins), checks.count("losses", losses)
    if won + lost > examples:
        raise BadInput(
            f"wins and losses must not exceed examples together: got {wins!r} + {losses!r} among "
            f"{examples!r}."
        )
    return won, lost
