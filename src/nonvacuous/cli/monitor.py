"""``nonvacuous monitor``: does a promise still hold, as labels arrive?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from nonvacuous.cli.exits import DONE, TOO_RISKY
from nonvacuous.cli.flags import SWITCH, Json
from nonvacuous.cli.output import write_json


def monitor(
    file: Path,
    /,
    *,
    promise: str,
    loss: str = "error",
    predictions: str | None = None,
    labels: str = "label",
    state: Path = Path("monitor.json"),
    false_alarm: float = 0.01,
    watch: Annotated[bool, SWITCH] = False,
    every: float = 2.0,
    page: Path | None = None,
    json: Json = False,
) -> int:
    """Does the promise still hold? Reads new labels, looks as often as you like.

    Parameters
    ----------
    file
        Labeled examples in the order of their arrival; rows read before are skipped.
    promise
        The certificate, its folder, or the number itself.
    loss
        The column of losses: 1 for an error, 0 for a right answer, or between.
    predictions
        The column of predictions instead, compared with --labels.
    labels
        The column of labels.
    state
        The small file that keeps the watch; it survives a kill, and several writers.
    false_alarm
        The chance of an alarm, over the whole future, although the promise holds.
    watch
        Follow the growing file until an alarm or Ctrl-C.
    every
        Seconds between two looks at the file.
    page
        Write a page with the evidence over time.
    """
    import time

    from nonvacuous.cli.output import result_console
    from nonvacuous.evaluation.monitor import monitor as watching

    observer = watching(_promise_of(promise), false_alarm=false_alarm, state=state)
    while True:
        rows = _losses(file, loss, predictions, labels)
        new = rows[observer.seen + observer.missing :]
        if len(new):
            observer.update(new)
        if page is not None:
            from nonvacuous.report.evaluation import watch_page
            from nonvacuous.report.study import write_study

            write_study(watch_page(observer.to_dict()), page)
        if observer.alarm or not watch:
            break
        time.sleep(every)
    if json:
        low, high = observer.interval()
        record = {"alarm": observer.alarm, "alarms": observer.alarms, "seen": observer.seen}
        write_json(record | {"errors": observer.errors, "mean_risk": [low, high]})
    else:
        result_console().print(str(observer), soft_wrap=True)
    return TOO_RISKY if observer.alarm else DONE


def _promise_of(text: str) -> Any:
    from nonvacuous.certificate import Certificate

    try:
        return float(text)
    except ValueError:
        path = Path(text)
        return Certificate.load(path / "certificate.json" if path.is_dir() else path)


def _losses(file: Path, loss: str, predictions: str | None, labels: str) -> Any:
    """The losses of all rows in their order; NaN where a label is missing."""
    import numpy as np

    from nonvacuous.errors import BadInput
    from nonvacuous.evaluation.tables import batches_of

    names = {"losses": loss} if predictions is None else {"answers": predictions, "labels": labels}
    losses: list[float] = []
    try:
        for batch in batches_of(file, names):
            columns = [_values(batch[role]) for role in names]
            for row in zip(*columns, strict=True):
                missing = row[-1] is None or row[-1] == "" or row[-1] != row[-1]
                wrong = row[0] if predictions is None else row[0] != row[1]
                losses.append(float("nan") if missing else float(wrong))
    except BadInput as error:
        if "is empty" not in str(error):
            raise
    except ValueError as error:
        raise BadInput(f"{file}: {loss} holds {error}; losses are numbers in [0, 1].") from error
    return np.array(losses)


def _values(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)
