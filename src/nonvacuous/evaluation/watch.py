"""The capital that bets against a promise, one label after the other or many at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from nonvacuous.bounds import checks
from nonvacuous.bounds.sequential import BLOCK, STAKES, advance, rounding, stakes, waiting_weight
from nonvacuous.errors import BadInput

#: Points of the capital's history that are kept for its picture.
_POINTS = 400
#: Losses taken at a time: their products fit into the cache of a processor.
_CHUNK = 1 << 14

#: Losses that came in an order which so few of as many orders are were put into it.
_SORTED = 1e-6


def check_order(losses: np.ndarray) -> None:
    """Refuse a batch that was sorted: whose errors come first alarms though the promise holds."""
    steps = np.diff(losses)
    if not ((steps >= 0).all() or (steps <= 0).all()):
        return
    alike = np.unique(losses, return_counts=True)[1]
    orders = special.gammaln(len(losses) + 1) - special.gammaln(alike + 1).sum()
    if orders > -math.log(_SORTED):
        raise BadInput(
            "the losses of this batch are sorted, and they count in the order of their arrival: an "
            "alarm could be false. Where that is not known, draw an order by chance, as in "
            "generator.permutation(losses); if this is it, give them in two calls, cut where they "
            "change."
        )


@dataclass
class Watch:
    """The capital that bets against one promise: risk at most ``promise`` at every step.

    goal      ln of the capital that is an alarm
    capital   what is at stake in each bet, over e^shift: one number could outgrow a double
    history   (labels seen, ln of the capital), every so many labels
    """

    # No defaults: a file that lacks one of these is not read as if nothing had been seen.
    promise: float
    goal: float
    time: int
    errors: float
    alarm_at: int | None
    history: list[tuple[int, float]]
    capital: list[float]
    shift: float
    every: int

    def __post_init__(self) -> None:
        if len(self.capital) != len(STAKES):
            raise ValueError("there is one capital for each stake")
        self._stakes = stakes(self.promise).tolist()
        self._at(self.shift)

    @classmethod
    def over(cls, promise: float, false_alarm: float) -> Watch:
        """A watch that has seen nothing yet."""
        failure = checks.failure_probability(false_alarm, "false_alarm")
        return cls(
            promise=checks.unit_interval("promise", promise),
            goal=-math.log(failure),
            time=0,
            errors=0.0,
            alarm_at=None,
            history=[],
            capital=[0.0] * len(STAKES),
            shift=0.0,
            every=1,
        )

    @property
    def log_capital(self) -> float:
        total = math.fsum(self.capital) / len(self.capital)
        waiting = math.log(float(waiting_weight(self.time)))
        logs = [math.log(total) + self.shift, waiting] if total > 0.0 else [waiting]
        top = max(logs)
        return top + math.log(math.fsum(math.exp(v - top) for v in logs)) - rounding(self.time)

    def _at(self, shift: float) -> None:
        """What :meth:`one` need not compute anew: the unit, and a top of no interest."""
        self.shift, self._unit = shift, math.exp(-shift)
        self._waiting = 1.0 / (1.0 + math.log1p(self.time))
        near = self.goal - 2.0 - shift
        self._high = 1e100 if self.alarm_at is not None or near > 200 else math.exp(near)

    def one(self, loss: float) -> None:
        """One loss, quickly."""
        self.time += 1
        waiting = 1.0 / (1.0 + math.log1p(self.time))
        entering, self._waiting = (self._waiting - waiting) * self._unit, waiting
        gap = loss - self.promise
        self.capital = [
            (c + entering) * (1.0 + stake * gap)
            for c, stake in zip(self.capital, self._stakes, strict=True)
        ]
        self.errors += loss
        top = max(self.capital)
        if not 1e-100 < top < self._high:
            if not 1e-100 < top < 1e100:
                self.capital = [c / top for c in self.capital]
                self.shift += math.log(top)
            self._alarm(np.array([self.log_capital]))
            self._at(self.shift)
        if self.time % self.every == 0:
            self._remember(np.array([self.log_capital]))

    def many(self, losses: np.ndarray) -> None:
        """Many losses at once: the same capital, and the very step of the alarm."""
        if len(losses) < BLOCK // 2:
            for loss in losses.tolist():
                self.one(loss)
            return
        for start in range(0, len(losses), _CHUNK):
            part = losses[start : start + _CHUNK]
            with np.errstate(divide="ignore"):
                logs = np.log(self.capital) + self.shift
            capital, after = advance(logs, self.time, part, self.promise)
            self.time += len(part)
            self.errors += float(part.sum())
            shift = float(after.max())
            self.capital = np.exp(after - shift).tolist()
            self._alarm(capital)
            self._at(shift)
            self._remember(capital)

    def _alarm(self, capital: np.ndarray) -> None:
        """Look at ln of the capital after each of the last losses."""
        if self.alarm_at is None:
            reached = np.flatnonzero(capital >= self.goal)
            if len(reached):
                self.alarm_at = self.time - len(capital) + int(reached[0]) + 1

    def _remember(self, capital: np.ndarray) -> None:
        """Keep every 2^k-th point, so few that the state stays small."""
        before = self.time - len(capital)
        while self.time // self.every >= _POINTS:
            self.every *= 2
        first = (before // self.every + 1) * self.every
        self.history = [point for point in self.history if point[0] % self.every == 0]
        self.history += [
            (time, round(float(capital[time - before - 1]), 4))
            for time in range(first, self.time + 1, self.every)
        ]
