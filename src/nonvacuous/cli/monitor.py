"""``nonvacuous monitor``: does a promise still hold, as labels arrive?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from nonvacuous.cli import exits, flags
from nonvacuous.cli.output import answered, say, write_lines
from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation.tables import Batch, batches_of, with_holes

if TYPE_CHECKING:
    from nonvacuous.evaluation.monitor import Monitor


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of the file say what.

    Args:
        loss: The column of losses: 1 for an error, 0 for a right answer, or between.
        predictions: The column of predictions instead, compared with --labels.
        labels: The column of labels; a row without one is read again until it has one.
        group: A column of groups that the certificate promises something about; may be repeated.
    """

    loss: str = "error"
    predictions: str | None = None
    labels: str = "label"
    group: flags.Repeated = ()


def monitor(
    file: Path,
    /,
    *,
    promise: str,
    columns: Columns = Columns(),  # noqa: B008
    state: Path = Path("monitor.json"),
    false_alarm: float = 0.01,
    watch: Annotated[bool, flags.SWITCH] = False,
    every: float = 2.0,
    page: Path | None = None,
    json: flags.Json = False,
) -> int:
    """Does the promise still hold? Reads new labels, looks as often as you like.

    Args:
        file: Labeled examples in the order of their arrival; rows read before are skipped.
        promise: The certificate, its folder, or the number itself.
        state: The small file that keeps the watch; it survives a kill, and several writers.
        false_alarm: The chance of an alarm, over the whole future, although the promise holds.
        watch: Follow the growing file until an alarm or Ctrl-C; what is new stands on stderr.
        every: Seconds between two looks at the file.
        page: Write a page with the evidence over time.
    """
    from nonvacuous.evaluation.monitor import monitor as watching

    promised = _promise_of(promise)
    begin = partial(watching, promised, false_alarm=false_alarm, groups=columns.group, state=state)
    observer = begin()  # which refuses what cannot be watched, before a column is asked for
    test: Any = None if isinstance(promised, float) else promised.evaluation
    # Whether a right answer counts 0 and a wrong one 1, as far as is known.
    of_errors = test is None or (test.settings.counts_events and test.settings.metric != "top-k")
    if columns.predictions is not None and not of_errors:
        raise exits.UsageError(
            f"--predictions watches errors, but the certificate is about the "
            f"{test.settings.words}. Write the losses that it speaks of into a column, and name "
            "that with --loss."
        )
    try:
        _follow(observer, file, columns, every=every if watch else None, page=page)
    except KeyboardInterrupt as stop:
        if not watch or isinstance(stop, exits.Stopped):
            raise
        observer = begin()  # as it is kept, whatever was under way
    names = ("alarm", "alarms", "seen", "errors", "late", "missing", "unwatched")
    record: dict[str, Any] = {name: getattr(observer, name) for name in names}
    record |= {"mean_risk": observer.interval(), "missing_rows": observer.missing_rows}
    answered(record, lambda _: write_lines(str(observer)), as_json=json)
    return exits.TOO_RISKY if observer.alarm else exits.DONE


def _follow(
    observer: Monitor, file: Path, columns: Columns, *, every: float | None, page: Path | None
) -> None:
    """Read what is new, once or ``every`` so many seconds until an alarm."""
    before = looked = (-1, -1)  # no version of a file
    said = ""
    while True:
        now = _version(file)
        # A last line that is still being written is left for the next look.
        if now != looked and (every is None or now == before or _ends_a_line(file)):
            observer.follow(_rows(file, columns), source=file)
            looked = now
            if page is not None:
                from nonvacuous.report.evaluation import watch_page
                from nonvacuous.report.study import write_study

                write_study(watch_page(observer.model_dump()), page)
        if observer.alarm or every is None:
            return
        if said != str(observer):
            say(said := str(observer))
        before = now
        time.sleep(every)


def _promise_of(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        path = Path(text)
        if not path.exists():
            raise Unrecognized(
                f"--promise {text} is neither a number nor a certificate or its folder; check the "
                "path."
            ) from None
        from nonvacuous.certificate import Certificate

        return Certificate.load(path / "certificate.json" if path.is_dir() else path)


def _version(file: Path) -> tuple[int, int]:
    known = file.stat() if file.exists() else None
    return (0, 0) if known is None else (known.st_size, known.st_mtime_ns)


def _ends_a_line(file: Path) -> bool:
    if file.suffix.lower() in (".parquet", ".npz") or not file.exists():
        return True
    with open(file, "rb") as stream:
        stream.seek(max(0, file.stat().st_size - 1))
        return stream.read()[-1:] in (b"", b"\n")


def _rows(file: Path, columns: Columns) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The losses of all rows in their order, NaN where a label is missing, and their groups."""
    names = {"losses": columns.loss}
    if columns.predictions is not None:
        names = {"answers": columns.predictions, "labels": columns.labels}
    names |= {f"group:{name}": name for name in columns.group}
    try:
        for batch in batches_of(file, names, measured=("losses",)):
            groups = {name: batch[f"group:{name}"] for name in columns.group}
            yield _losses(batch, file), groups
    except BadInput as error:
        if "is empty" not in str(error):
            raise


def _losses(batch: Batch, file: Path) -> Any:
    """One loss for each row of a batch, NaN where it is missing."""
    role = "losses" if "losses" in batch else "labels"
    values, there = with_holes(batch[role], role, batch.where)
    if role == "labels":
        answers, answered = with_holes(batch["answers"], "predictions", batch.where)
        if not answered.all():
            where = batch.where(int((~answered).argmax()))
            raise BadInput(f"{file}: a prediction is missing in {where}.")
        if len(values) and (values.dtype.kind == "U") != (answers.dtype.kind == "U"):
            words, digits = ("labels", "predictions")[:: 1 if values.dtype.kind == "U" else -1]
            raise BadInput(
                f"{file}: {words} are words and {digits} numbers, so that every answer would count "
                "as an error. Write both in the same form."
            )
        values = values != answers[there]
    if values.dtype.kind == "U":
        odd = next((v for v in values.tolist() if not _is_number(v)), values[0])
        raise BadInput(f"{file}: losses are numbers in [0, 1], got {str(odd)!r}.")
    losses = np.full(len(there), np.nan)
    losses[there] = values
    return losses


def _is_number(value: Any) -> bool:
    try:
        return float(value) >= 0.0
    except (TypeError, ValueError):
        return False
