"""monitor: does the promise still hold? Looks as often as one likes, false alarms at most once."""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nonvacuous.bounds import checks, sequence_lower, sequence_upper
from nonvacuous.bounds.sequential import STAKES, advance, log_capital, stakes, waiting_weight
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically

#: Points of the capital's history that are kept for its picture.
_POINTS = 400
_CHUNK = 1 << 11
FORMAT = "nonvacuous-monitor/1"


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
        self._shift = 0.0
        self.history: list[tuple[int, float]] = []
        self._every = 1

    @property
    def log_capital(self) -> float:
        total = math.fsum(self._capital) / len(self._capital)
        waiting = math.log(float(waiting_weight(self.time)))
        logs = [math.log(total) + self._shift, waiting] if total > 0.0 else [waiting]
        top = max(logs)
        return top + math.log(math.fsum(math.exp(v - top) for v in logs)) - 1e-9

    def one(self, loss: float) -> None:
        """One loss, quickly."""
        before = 1.0 / (1.0 + math.log1p(self.time))
        self.time += 1
        entering = (before - 1.0 / (1.0 + math.log1p(self.time))) * math.exp(-self._shift)
        gap = loss - self.promise
        capital = [
            (c + entering) * (1.0 + stake * gap)
            for c, stake in zip(self._capital, self._stakes, strict=True)
        ]
        self._capital = capital
        self.errors += loss
        top = max(capital)
        if not 1e-100 < top < 1e100:
            self._rescale(top)
        if self.alarm_at is None and math.log(max(top, 1e-300)) + self._shift + 2.0 >= self.goal:
            self._look()
        if self.time % self._every == 0:
            self._remember(self.time, self.log_capital)

    def many(self, losses: np.ndarray) -> None:
        """Many losses at once: the same capital, and the very step of the alarm."""
        for start in range(0, len(losses), _CHUNK):
            part = losses[start : start + _CHUNK]
            with np.errstate(divide="ignore"):
                logs = np.log(self._capital) + self._shift
            after = advance(logs, self.time, part, self.promise)
            times = np.arange(self.time + 1, self.time + len(part) + 1)
            capital = log_capital(after, times)
            if self.alarm_at is None:
                reached = np.flatnonzero(capital >= self.goal)
                if len(reached):
                    self.alarm_at = int(times[reached[0]])
            for i in np.flatnonzero(times % self._every == 0):
                self._remember(int(times[i]), float(capital[i]))
            self.time += len(part)
            self.errors += float(part.sum())
            self._shift = float(after[-1].max())
            self._capital = np.exp(after[-1] - self._shift).tolist()

    def _look(self) -> None:
        if self.log_capital >= self.goal:
            self.alarm_at = self.time

    def _rescale(self, top: float) -> None:
        if top <= 0.0:
            return
        step = math.log(top)
        self._capital = [c / top for c in self._capital]
        self._shift += step

    def _remember(self, time: int, capital: float) -> None:
        if time % self._every:
            return
        self.history.append((time, round(capital, 4)))
        if len(self.history) >= _POINTS:
            self._every *= 2
            self.history = [point for point in self.history if point[0] % self._every == 0]

    def to_dict(self) -> dict[str, Any]:
        return {
            "promise": self.promise,
            "goal": self.goal,
            "time": self.time,
            "errors": self.errors,
            "alarm_at": self.alarm_at,
            "capital": self._capital,
            "shift": self._shift,
            "every": self._every,
            "history": self.history,
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Watch:
        watch = cls(record["promise"], math.exp(-record["goal"]))
        watch.goal = record["goal"]
        watch.time, watch.errors = record["time"], record["errors"]
        watch.alarm_at, watch._capital = record["alarm_at"], list(record["capital"])
        watch._shift, watch._every = record["shift"], record["every"]
        watch.history = [tuple(point) for point in record["history"]]
        return watch


class Monitor:
    """Watches a promise while labels arrive; see :func:`monitor`."""

    def __init__(
        self, watches: dict[str, Watch], false_alarm: float, state: Path | None = None
    ) -> None:
        self._watches = watches
        self.false_alarm = false_alarm
        self.missing = 0
        self._state = state
        if state is not None:
            with self._locked():
                pass

    @property
    def promise(self) -> float:
        return self._watches[""].promise

    @property
    def seen(self) -> int:
        """How many labels have arrived."""
        return self._watches[""].time

    @property
    def errors(self) -> float:
        return self._watches[""].errors

    @property
    def alarm(self) -> bool:
        """True once any capital has reached its goal. It stays: what was seen was seen."""
        return bool(self.alarms)

    @property
    def alarms(self) -> dict[str, int]:
        """Who raised the alarm (the empty name is everybody), and after how many labels."""
        return {n: w.alarm_at for n, w in self._watches.items() if w.alarm_at is not None}

    @property
    def capital(self) -> float:
        """Evidence against the promise: at least 1 / false_alarm only once in 1 / false_alarm."""
        return math.exp(min(700.0, self._watches[""].log_capital))

    @property
    def history(self) -> tuple[tuple[int, float], ...]:
        """(labels seen, ln of the capital), thinned out."""
        return tuple(self._watches[""].history)

    def interval(self, failure: float = 0.05) -> tuple[float, float]:
        """The mean risk since the start, at every time at once; of the average, never of today."""
        watch = self._watches[""]
        if watch.time == 0:
            return 0.0, 1.0
        call: dict[str, Any] = {
            "errors": watch.errors,
            "trials": watch.time,
            "failure": failure / 2,
        }
        return sequence_lower(**call), sequence_upper(**call)

    def update(self, losses: Any, groups: Iterable[str] | None = None) -> Monitor:
        """New losses in the order of their arrival: 0 or 1, or between. None: a label is missing.

        ``groups`` names the group of each, as "column=value", where groups are watched.
        """
        single = isinstance(losses, int | float | np.number) or losses is None
        if single and self._state is None and losses is not None and groups is None:
            if not 0.0 <= losses <= 1.0:
                raise BadInput(f"losses must lie in [0, 1], got {losses!r}.")
            self._watches[""].one(float(losses))
            return self
        items = [losses] if single else losses
        values, names = self._plain(items, groups)
        if self._state is None:
            self._apply(values, names)
        else:
            with self._locked():
                self._apply(values, names)
        return self

    def _plain(self, items: Any, groups: Any) -> tuple[np.ndarray, np.ndarray | None]:
        array = items if isinstance(items, np.ndarray) else np.array(list(items), dtype=object)
        if array.dtype == object:
            array = np.array([math.nan if v is None else v for v in array.tolist()], dtype=float)
        array = array.astype(np.float64)
        names = None if groups is None else np.asarray(list(groups), dtype=str)
        if names is not None and len(names) != len(array):
            raise BadInput(f"{len(names)} groups for {len(array)} losses: one for each.")
        known = ~np.isnan(array)
        if ((array[known] < 0) | (array[known] > 1)).any():
            raise BadInput("losses must lie in [0, 1]; None where a label is missing.")
        return array, names

    def _apply(self, values: np.ndarray, names: np.ndarray | None) -> None:
        known = ~np.isnan(values)
        self.missing += int((~known).sum())
        self._watches[""].many(values[known])
        if names is not None:
            for name in np.unique(names[known]).tolist():
                if name not in self._watches:
                    watched = ", ".join(n for n in self._watches if n) or "none"
                    raise BadInput(f"group {name!r} is not watched; watched are {watched}.")
                self._watches[name].many(values[known & (names == name)])

    # ------------------------------------------------------------------ the state's file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The state as the file has it, and back into the file: one writer at a time."""
        assert self._state is not None
        self._state.parent.mkdir(parents=True, exist_ok=True)
        with open(self._state.with_name(self._state.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._state.exists():
                self._load(json.loads(self._state.read_text(encoding="utf-8")))
            yield
            content = json.dumps(self.to_dict()).encode()
            write_atomically(self._state, lambda stream: stream.write(content))

    def _load(self, record: dict[str, Any]) -> None:
        if record.get("format") != FORMAT:
            raise BadInput(f"{self._state} is not the state of a monitor.")
        watches = {name: Watch.from_dict(entry) for name, entry in record["watches"].items()}
        mine = {name: (w.promise, round(w.goal, 9)) for name, w in self._watches.items()}
        if {name: (w.promise, round(w.goal, 9)) for name, w in watches.items()} != mine:
            raise BadInput(
                f"{self._state} watches another promise or another false alarm: a new watch needs "
                "a new file, and costs its own false alarm."
            )
        self._watches, self.missing = watches, record["missing"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "false_alarm": self.false_alarm,
            "missing": self.missing,
            "watches": {name: watch.to_dict() for name, watch in self._watches.items()},
        }

    def __str__(self) -> str:
        low, high = self.interval()
        word = f"ALARM after {min(self.alarms.values()):,} labels" if self.alarm else "no alarm"
        return (
            f"{word}: {self.errors:g} errors in {self.seen:,} labels against a promise of "
            f"{self.promise:.4g}; evidence {self.capital:.3g} of {1 / self.false_alarm:.3g}; "
            f"mean risk since the start {low:.4f} to {high:.4f}; {self.missing} labels missing"
        )


def monitor(
    promise: Certificate | float,
    *,
    false_alarm: float = 0.01,
    groups: bool = False,
    state: str | Path | None = None,
) -> Monitor:
    """Watch a promise while labels arrive, looking as often as you like.

    promise      a certificate, or the number itself: the risk is at most this
    false_alarm  the chance, over the whole future, of an alarm although the promise holds
    groups       watch the groups of the certificate too; all share ``false_alarm``
    state        a small file that keeps everything: it survives a kill at any moment, and several
                 processes may update it

    Starting anew costs a new false alarm. Labels count in their order of arrival; one that is late
    or missing because of the error breaks the watch, so missing ones are counted.

    >>> watch = monitor(0.05, false_alarm=0.01)
    >>> watch.update([0, 0, 1, 0]).alarm, watch.update([1] * 30).alarm
    (False, True)
    """
    promises = {"": promise.risk_upper if isinstance(promise, Certificate) else promise}
    if groups:
        if not isinstance(promise, Certificate) or not promise.groups:
            raise BadInput("groups are watched where the certificate has them.")
        promises |= {
            f"{column}={value}": part.risk_upper
            for column, values in promise.groups.items()
            for value, part in values.items()
            if column not in ("true class", "predicted class") and part.risk_upper < 1.0
        }
    alpha = checks.failure_probability(false_alarm, "false_alarm")
    watches = {n: Watch(value, alpha / len(promises)) for n, value in promises.items()}
    return Monitor(watches, alpha, None if state is None else Path(state))
