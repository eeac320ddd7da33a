"""Independent draws, and what follows from them: the bounds that each kind of them has."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from nonvacuous import bounds
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.seeds import derived_seed

#: Losses and their squares are summed as whole multiples of 1 / GRID: exactly, in any batches.
GRID = float(1 << 30)


class Sample(NamedTuple):
    """Independent draws: errors among examples, or losses: in the order of betting, or their sums.

    ``squares`` is the sum of the squared losses; None for events. ``f1`` says that the draws are of
    1 - Jaccard, r, and the ends of 1 - F1 = r / (2 - r), which grows with r.
    """

    errors: float
    examples: int
    values: np.ndarray | None = None
    squares: float | None = None
    f1: bool = False

    def upper(self, failure: float) -> float:
        if not self.examples:
            return 1.0
        if self.values is not None:
            return _by_bets(self.values, failure)
        if self.squares is not None:
            return self._bernstein(self.errors, self.squares, failure)
        end = bounds.holdout(errors=int(self.errors), examples=self.examples, failure=failure)
        return as_risk(up(end / (2.0 - end))) if self.f1 else end

    def lower(self, failure: float) -> float:
        if not self.examples:
            return 0.0
        if self.values is not None:
            return as_risk(down(1.0 - _by_bets(1.0 - self.values, failure)))
        n = self.examples
        if self.squares is not None:
            squares = n - 2.0 * self.errors + self.squares
            return as_risk(down(1.0 - self._bernstein(n - self.errors, squares, failure)))
        end = bounds.holdout_lower(errors=int(self.errors), examples=n, failure=failure)
        return as_risk(down(end / (2.0 - end))) if self.f1 else end

    def _bernstein(self, total: float, squares: float, failure: float) -> float:
        n = self.examples
        if n < 2:
            return 1.0
        # What the grid of the sums, and rounding, can have taken off.
        slack = 4.0 / GRID
        mean = min(1.0, max(0.0, total / n + slack))
        variance = max(0.0, (squares - total**2 / n) / (n - 1)) + slack
        return bounds.bernstein(
            empirical_risk=mean, variance=min(0.5, variance), examples=n, failure=failure
        )

    @property
    def theorem(self) -> str:
        """Which bound decides."""
        if self.values is not None:
            return "betting"
        return "held-out tail" if self.squares is None else "empirical Bernstein"

    def beside(self, failure: float) -> dict[str, float]:
        """What other theorems say of the same losses, each alone; choosing one is not free."""
        if self.squares is None:
            return {}
        other = {
            "kl": bounds.sampling_bounded(total=self.errors, trials=self.examples, failure=failure)
        }
        if self.values is not None:
            other["empirical Bernstein"] = self._bernstein(self.errors, self.squares, failure)
        return other


def in_order_of_betting(losses: np.ndarray, seed: int, rows: str) -> np.ndarray:
    """The losses, shuffled as the seed and the digests of all columns, ``rows``, say.

    A bet is on the next loss, given those before it: whoever sorts a table by its losses must not
    choose what comes next, and an order that rests on the number of rows alone would be one fixed
    order of sorted losses. The digests stand for the die that draws one of all orders. It takes
    columns that could have been otherwise, as rows in the order in which they were drawn are. A
    sorted file of losses with two values has few: :func:`_by_bets` asks more of these.
    """
    ordered = np.sort(losses.astype("<f8") + 0.0)  # one zero, whatever its sign was
    digest = hashlib.sha256(ordered.tobytes() + rows.encode()).hexdigest()
    stream = np.random.PCG64(derived_seed(seed, "order of betting", digest))
    shuffled: np.ndarray = ordered[np.argsort(stream.random_raw(len(ordered)), kind="stable")]
    return shuffled


def _by_bets(losses: np.ndarray, failure: float) -> float:
    """Betting; where the losses have two values, never less than the exact tail says of these.

    A sorted file of two values has too few orders for one of them to count as drawn; the tail needs
    none. The larger of both is false no more often than either, so the values may be looked at.
    """
    end, least, largest = bounds.betting(losses, failure=failure), losses.min(), losses.max()
    upper = losses == largest
    if (upper | (losses == least)).all():
        tail = bounds.holdout(errors=int(upper.sum()), examples=len(losses), failure=failure)
        end = max(end, up(least + (largest - least) * tail, ulps=4))
    return as_risk(end)
