"""monitor: does the promise still hold? Looks as often as one likes, false alarms at most once."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ValidationError

from nonvacuous.bounds import checks, sequence_lower, sequence_upper
from nonvacuous.bounds.rounding import shown_down, shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.evaluation import coding, tables
from nonvacuous.evaluation.watch import Watch, check_order
from nonvacuous.files import write_atomically

_NUMBERS = (float, int, np.number, np.bool_)
_ANOTHER_STATE: Final = (
    "Another file, or another history, needs another state (--state, state=), and costs its own "
    "false alarm."
)


class Monitor(BaseModel):
    """Watches a promise while labels arrive; see :func:`monitor`. Its file has these fields."""

    format: Literal["nonvacuous-monitor/3"] = "nonvacuous-monitor/3"
    false_alarm: float
    #: Labels that have not come, and those that came after they had been missing.
    missing: int = 0
    late: int = 0
    #: How many losses came from groups that nobody promised anything about, by group; those whose
    #: group is missing stand under "column=".
    unwatched: dict[str, int] = {}
    #: Rows of the file that is followed: how many were read, which had no label yet, a digest of
    #: the losses of the others, and where the file lies, seen from the folder of the state.
    rows: int = 0
    open: list[tuple[int, int]] = []
    digest: str = ""
    source: str = ""
    #: The empty name is everybody, "column=value" a group.
    watches: dict[str, Watch]
    _state: Path | None = None

    @property
    def promise(self) -> float:
        return self.watches[""].promise

    @property
    def seen(self) -> int:
        """How many labels have arrived."""
        return self.watches[""].time

    @property
    def errors(self) -> float:
        return self.watches[""].errors

    @property
    def alarm(self) -> bool:
        """True once any capital has reached its goal. It stays: what was seen was seen."""
        return bool(self.alarms)

    @property
    def alarms(self) -> dict[str, int]:
        """Who raised the alarm (the empty name is everybody), and after how many labels."""
        return {n: w.alarm_at for n, w in self.watches.items() if w.alarm_at is not None}

    @property
    def capital(self) -> float:
        """Evidence against the promise: at least 1 / false_alarm only once in 1 / false_alarm."""
        return math.exp(min(700.0, self.watches[""].log_capital))

    @property
    def history(self) -> tuple[tuple[int, float], ...]:
        """(labels seen, ln of the capital), thinned out."""
        return tuple(self.watches[""].history)

    def interval(self, failure: float = 0.05) -> tuple[float, float]:
        """The mean risk since the start, at every time at once; of the average, never of today."""
        if self.seen == 0:
            return 0.0, 1.0
        call: dict[str, Any] = {"errors": self.errors, "trials": self.seen, "failure": failure / 2}
        return sequence_lower(**call), sequence_upper(**call)

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns whose groups are watched."""
        return tuple(dict.fromkeys(name.split("=", 1)[0] for name in self.watches if name))

    @property
    def missing_rows(self) -> tuple[tuple[int, int], ...]:
        """The rows of the file that is followed whose label has not come: first and last."""
        return tuple((first, stop - 1) for first, stop in self.open)

    def update(
        self, losses: Any, groups: Mapping[str, Any] | None = None, *, late: bool = False
    ) -> Monitor:
        """New losses in the order of their arrival: 0 or 1, or between. None: a label is missing.

        ``groups`` has the group of each by column, as ``{"site": sites}``, where groups are
        watched. ``late``: these labels were missing before, and have come now.
        """
        alone = self._state is None and groups is None and len(self.watches) == 1
        if isinstance(losses, _NUMBERS) and alone and not late:
            if losses != losses:
                self.missing += 1
            elif not 0.0 <= losses <= 1.0:
                raise BadInput(f"losses must lie in [0, 1], got {losses!r}.")
            else:
                self.watches[""].one(float(losses))
            return self
        tables.check_rows({"losses": losses, **(groups or {})})
        values = _losses([losses] if isinstance(losses, (*_NUMBERS, type(None))) else losses)
        names = self._names(groups, len(values))
        check_order(values[~np.isnan(values)])
        with self._locked():
            if late:
                came = int((~np.isnan(values)).sum())
                if came > self.missing:
                    raise BadInput(f"{came} labels are late, but {self.missing} were missing.")
                self.missing -= len(values)
                self.late += came
            self._apply(values, names)
        return self

    def follow(
        self,
        batches: Iterable[tuple[Any, Mapping[str, Any] | None]],
        source: str | Path | None = None,
    ) -> Monitor:
        """All rows of a growing table from its beginning, as (losses, groups), NaN without label.

        Rows that were read before are skipped, except those whose label has come since: they
        count now, and are counted as late. They must be the same: from the same ``source``, and
        with the same losses.
        """
        # Where it lies, as the folder of the state sees it: both may move together.
        here = self._state.parent if self._state else None
        seen = "" if source is None else os.path.relpath(source, here)
        with self._locked():
            before = self.model_copy(deep=True)
            try:
                self._follow(batches, seen)
            except BadInput:
                vars(self).update(vars(before))  # what is refused leaves no trace
                raise
        return self

    def _follow(self, batches: Iterable[tuple[Any, Mapping[str, Any] | None]], source: str) -> None:
        if source != self.source and self.rows:
            raise BadInput(
                f"the state has {self.rows} rows of {self.source or 'a table without a name'}, not "
                f"of {source or 'this one'}, whose first rows would be taken for read: "
                f"append a new batch to the file that is followed. {_ANOTHER_STATE}"
            )
        start, read, waiting = 0, self.rows, self.open
        still = [np.zeros(0, dtype=np.int64)]
        old, new = coding.ColumnDigest(), coding.ColumnDigest()
        for losses, groups in batches:
            values = _losses(losses)
            fresh = np.arange(start, start + len(values)) >= read
            waited = np.zeros(len(values), dtype=bool)
            for first, stop in waiting:
                waited[max(0, first - start) : max(0, stop - start)] = True
            lost = np.isnan(values)
            values = np.where(lost, np.nan, values + 0.0)  # one kind of NaN, and of zero
            old.update(np.where(waited, np.nan, values)[~fresh])
            new.update(values)
            came = waited & ~lost
            self.late += int(came.sum())
            self.missing -= int(waited.sum())
            use = fresh | waited
            names = {n: c[use] for n, c in self._names(groups, len(values)).items()}
            self._apply(values[use], names)
            still.append(np.flatnonzero(use & lost) + start)
            start += len(values)
        if start < read:
            raise BadInput(
                f"the file has {start} rows, but {read} were read from it before: it must only "
                f"grow. {_ANOTHER_STATE}"
            )
        if read and old.hexdigest() != self.digest:
            raise BadInput(
                f"the first {read} rows are not those that were read before: rows may only be "
                f"added, and missing labels filled in. {_ANOTHER_STATE}"
            )
        rows = np.concatenate(still)
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        self.open = [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]
        self.rows, self.digest, self.source = start, new.hexdigest(), source

    def _names(self, groups: Mapping[str, Any] | None, size: int) -> dict[str, np.ndarray]:
        """The group of each row by column, as a test names it; empty where it is missing."""
        columns = {}
        for column, given in (groups or {}).items():
            if column not in self.groups:
                watched = ", ".join(self.groups) or "none"
                raise BadInput(f"groups of {column!r} are not watched; watched are {watched}.")
            known, there = tables.with_holes(given, column)
            if there.shape != (size,):
                raise BadInput(f"{len(there)} groups for {size} losses: one for each.")
            # Where one number was a fraction, a test has named all of them as doubles.
            whole = known.dtype.kind == "i"
            if whole and any(f"{column}={name}.0" in self.watches for name in set(known.tolist())):
                known = known.astype(float)
            names = list(map(str, known.tolist()))
            columns[column] = np.full(size, "", dtype=np.array(names, dtype=str).dtype)
            columns[column][there] = names
        for column in self.groups:
            if column not in columns:
                raise BadInput(
                    f"groups of {column!r} are watched: give the group of each label, as in "
                    f"groups={{{column!r}: [...]}}, None where it is not known."
                )
        return columns

    def _apply(self, values: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        known = ~np.isnan(values)
        self.missing += int((~known).sum())
        self.watches[""].many(values[known])
        for column, names in columns.items():
            for value in np.unique(names[known]).tolist():
                name, own = f"{column}={value}", values[known & (names == value)]
                if name in self.watches:
                    self.watches[name].many(own)
                else:
                    self.unwatched[name] = self.unwatched.get(name, 0) + len(own)

    # ------------------------------------------------------------------ the state's file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The state as the file has it, and back into the file: one writer at a time."""
        if self._state is None:
            yield
            return
        self._state.parent.mkdir(parents=True, exist_ok=True)
        with open(self._state.with_name(self._state.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._state.exists():
                self._load(self._state.read_bytes())
            yield
            content = json.dumps(self.model_dump()).encode()
            write_atomically(self._state, content)

    def _load(self, content: bytes) -> None:
        try:
            stored = Monitor.model_validate_json(content)
        except ValidationError as error:
            raise BadInput(f"{self._state} is not the state of a monitor.") from error
        if stored.model_fields_set != self.__class__.model_fields.keys():
            raise BadInput(f"{self._state} is not the state of a monitor: it is incomplete.")
        mine, theirs = (
            {name: (w.promise, round(w.goal, 9)) for name, w in one.watches.items()}
            for one in (self, stored)
        )
        if mine != theirs:
            raise BadInput(
                f"{self._state} watches another promise, other groups or another false alarm: a "
                "new watch needs another file (--state, state=), and costs its own false alarm."
            )
        vars(self).update(dict(stored))

    def __str__(self) -> str:
        low, high = self.interval()
        who = [f"{at:,} labels{f' of {name}' * bool(name)}" for name, at in self.alarms.items()]
        word = f"ALARM after {', '.join(who)}" if who else "no alarm"
        # The numbers are everybody's, whoever raised the alarm.
        in_all = "in all " if len(self.watches) > 1 else ""
        said = (
            f"{word}: {in_all}{self.errors:g} errors in {self.seen:,} labels against a promise of "
            f"{self.promise:.4g}; evidence {self.capital:.3g}, alarm at "
            f"{math.exp(self.watches[''].goal):.3g}; mean risk since the start {shown_down(low)} "
            f"to {shown_up(high)}; {self.late} labels late, {self.missing} missing"
        )
        if self.open:
            some = [f"{a}" if a == b else f"{a}-{b}" for a, b in self.missing_rows[:3]]
            more = ", ..." if len(self.open) > 3 else ""
            said += f" (rows {', '.join(some)}{more}, counted from 0)"
        for name, count in self.unwatched.items():
            what = f"without a {name[:-1]}" if name.endswith("=") else f"of {name}"
            said += f"; {count} labels {what}, about which nothing was promised"
        return said

    __repr__ = __str__


def _losses(items: Any) -> np.ndarray:
    """Losses as doubles, NaN where a label is missing."""
    if isinstance(items, np.ma.MaskedArray):  # what is masked is missing
        items = np.ma.filled(items.astype(np.float64), np.nan)
    try:
        array = np.asarray(items if hasattr(items, "__len__") else list(items), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"losses are numbers in [0, 1]: {error}.") from error
    if array.ndim != 1:
        raise BadInput(f"losses are numbers in [0, 1], one for each label, got {array.shape}.")
    if ((array < 0) | (array > 1)).any():
        raise BadInput("losses must lie in [0, 1]; None where a label is missing.")
    return array


def _check_watchable(certificate: Certificate) -> None:
    """Refuse a promise that is not about the mean of the losses that arrive one by one."""
    if certificate.status == "refused":
        raise BadInput("a certificate that was refused promises nothing that could be watched.")
    if (test := certificate.evaluation) is None:
        return
    about, watch, number = "", "", f"as in nv.monitor({shown_up(certificate.risk_upper)})"
    if test.unit == "clusters":
        about = "the mean over clusters, in which a large one counts no more than a small one"
        watch = f"the mean loss of each cluster, once all of it has arrived, {number}"
    elif test.settings.entry.counts == "classes":
        about = f"the {test.settings.words}, for which rows of different classes count differently"
        watch = "errors with a certificate of metric 'error' on the same examples"
    elif test.settings.metric == "selective error":
        about = "rows that were answered"
        watch = f"errors among rows that were answered, against the number, {number}"
    elif test.settings.where:
        about = f"examples{test.settings.selection} alone"
        watch = f"the losses of these rows, in a file of their own, against the number, {number}"
    elif test.settings.range is not None:
        about = f"the {test.settings.words}"
        watch = f"losses that were clipped and scaled alike, against the number, {number}"
    if about:
        raise BadInput(
            f"the certificate is about {about}: the losses of all rows have another mean, and an "
            f"alarm about them could be false. Watch {watch}."
        )


def monitor(
    promise: Certificate | float,
    *,
    false_alarm: float = 0.01,
    groups: bool | Sequence[str] = False,
    state: str | Path | None = None,
) -> Monitor:
    """Watch a promise while labels arrive, looking as often as you like.

    promise      a certificate about the mean of the losses, or the number itself: the risk is at
                 most this
    false_alarm  the chance, over the whole future, of an alarm although the promise holds
    groups       watch the groups of the certificate too, or those of the columns named; everybody
                 and all groups share ``false_alarm``
    state        a small file that keeps everything: it survives a kill at any moment, and several
                 processes may update it

    Starting anew costs a new false alarm. Labels count in their order of arrival; one that is late
    or missing because of the error breaks the watch, so both are counted and named.

    >>> watch = monitor(0.05, false_alarm=0.01)
    >>> watch.update([0, 0, 1, 0]).alarm, watch.update([1] * 30).alarm
    (False, True)
    """
    if isinstance(promise, str | Path):
        raise BadInput("a promise in a file is read by nv.Certificate.load(certificate.json).")
    promises = {"": promise.risk_upper if isinstance(promise, Certificate) else promise}
    if isinstance(promise, Certificate):
        _check_watchable(promise)
    if groups:
        if not isinstance(promise, Certificate):
            raise BadInput(
                "a number promises nothing about groups; watch them with the certificate of a test "
                "on these groups as the promise."
            )
        own = {} if promise.evaluation is None else promise.evaluation.declared
        columns = list(own if groups is True else [groups] if isinstance(groups, str) else groups)
        for column in columns or [""]:
            if column not in own:
                raise BadInput(
                    f"the certificate has no groups {column!r}; it has {', '.join(own) or 'none'}. "
                    "Groups are watched where the certificate promises something about them."
                )
        promises |= {
            f"{column}={value}": part.risk_upper
            for column in columns
            for value, part in own[column].items()
            if part.risk_upper < 1.0
        }
    alpha = checks.failure_probability(false_alarm, "false_alarm")
    watches = {n: Watch.over(value, alpha / len(promises)) for n, value in promises.items()}
    made = Monitor(false_alarm=alpha, watches=watches)
    if state is not None:
        made._state = Path(state)
        if made._state.is_dir():
            raise BadInput(f"{state} is a folder: name a file in it, as in {state}/watch.json.")
        if made._state.exists():  # made by the first losses, not by a wrong call
            with made._locked():
                pass
    return made
