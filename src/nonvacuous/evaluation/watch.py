"""The capital that bets against a promise, one label after the other or many at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nonvacuous.bounds import checks
from nonvacuous.bounds.sequential import BLOCK, STAKES, advance, rounding, stakes, waiting_weight

#: Points of the capital's history that are kept for its picture.
_POINTS = 400
#: What a watch is made of, and what its file has of it.
_STATE = ("promise", "goal", "time", "errors", "alarm_at", "history")
_INNER = ("_capital", "_shift", "_every")
#: Losses taken at a time: their products fit into the cache of a processor.
_CHUNK = 1 << 14


class Watch:
    """The capital that bets against one promise: risk at most ``promise`` at every step."""

    def __init__(self, promise: float, false_alarm: float) -> None:
        self.promise = checks.unit_interval("promise", promise)
        self.goal = -math.log(checks.failure_probability(false_alarm, "false_alarm"))
        self._stakes = stakes(promise).tolist()
        self.time = 0
        self.errors = 0.0
        self.alarm_at: int | None = None
        #: Capital at stake for each bet, over e^shift: one number could outgrow a double.
        self._capital = [0.0] * len(STAKES)
        self.history: list[tuple[int, float]] = []
        self._every = 1
        self._high, self._waiting = 1e100, 1.0
        self._at(0.0)

    @property
    def log_capital(self) -> float:
        total = math.fsum(self._capital) / len(self._capital)
        waiting = math.log(float(waiting_weight(self.time)))
        logs = [math.log(total) + self._shift, waiting] if total > 0.0 else [waiting]
        top = max(logs)
        return top + math.log(math.fsum(math.exp(v - top) for v in logs)) - rounding(self.time)

    def one(self, loss: float) -> None:
        """One loss, quickly."""
        self.time += 1
        waiting = 1.0 / (1.0 + math.log1p(self.time))
        entering, self._waiting = (self._waiting - waiting) * self._unit, waiting
        gap = loss - self.promise
        self._capital = [
            (c + entering) * (1.0 + stake * gap)
            for c, stake in zip(self._capital, self._stakes, strict=True)
        ]
        self.errors += loss
        top = max(self._capital)
        if not 1e-100 < top < self._high:
            if not 1e-100 < top < 1e100:
                self._capital = [c / top for c in self._capital]
                self._shift += math.log(top)
            self._alarm(np.array([self.log_capital]))
            self._at(self._shift)
        if self.time % self._every == 0:
            self._remember(np.array([self.log_capital]))

    def _at(self, shift: float) -> None:
        """What :meth:`one` need not compute anew: the unit, and a top of no interest."""
        self._shift, self._unit = shift, math.exp(-shift)
        self._waiting = 1.0 / (1.0 + math.log1p(self.time))
        near = self.goal - 2.0 - shift
        self._high = 1e100 if self.alarm_at is not None or near > 200 else math.exp(near)

    def many(self, losses: np.ndarray) -> None:
        """Many losses at once: the same capital, and the very step of the alarm."""
        if len(losses) < BLOCK // 2:
            for loss in losses.tolist():
                self.one(loss)
            return
        for start in range(0, len(losses), _CHUNK):
            part = losses[start : start + _CHUNK]
            with np.errstate(divide="ignore"):
                logs = np.log(self._capital) + self._shift
            capital, after = advance(logs, self.time, part, self.promise)
            self.time += len(part)
            self.errors += float(part.sum())
            shift = float(after.max())
            self._capital = np.exp(after - shift).tolist()
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
        while self.time // self._every >= _POINTS:
            self._every *= 2
        first = (before // self._every + 1) * self._every
        self.history = [point for point in self.history if point[0] % self._every == 0]
        self.history += [
            (time, round(float(capital[time - before - 1]), 4))
            for time in range(first, self.time + 1, self._every)
        ]

    def to_dict(self) -> dict[str, Any]:
        return {name.strip("_"): getattr(self, name) for name in (*_STATE, *_INNER)}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Watch:
        watch = cls(record["promise"], math.exp(-record["goal"]))
        for name in (*_STATE, *_INNER):
            setattr(watch, name, record[name.strip("_")])
        watch._capital = [float(part) for part in record["capital"]]
        watch.history = [tuple(point) for point in record["history"]]
        watch._at(record["shift"])
        return watch
