"""``nonvacuous compare``: is the second predictor better than the first?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from nonvacuous.bounds.rounding import shown_confidence, shown_down, shown_up
from nonvacuous.cli.exits import DONE, CommandError, UsageError
from nonvacuous.cli.flags import SWITCH, Json, Repeated, WholeNumber, check_free, failure_of
from nonvacuous.cli.output import say, write_json, write_lines
from nonvacuous.errors import Unrecognized
from nonvacuous.evaluation.coding import one_each
from nonvacuous.evaluation.tables import read_columns


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of the files say what.

    Args:
        first: The column of the first predictor's answers.
        second: The column of another's; may be repeated. In files of their own it is called like
            the first, if nothing else is said; "b" otherwise.
        labels: The column of labels.
        score: A column of every file instead, 1 is right: the logs of evaluation harnesses.
        metric: What the columns are where there are no labels: event (1 is bad) and success (1 is
            good) are right or wrong, loss and score lie between 0 and 1.
        id: The column that names the examples in every file.
        group: A column of groups; may be repeated.
        cluster: A column that says which rows belong together.
        where: Only rows with this value, written column=value; may be repeated.
    """

    first: str = "a"
    second: Repeated = ()
    labels: str = "label"
    score: str | None = None
    metric: Literal["event", "success", "loss", "score"] | None = None
    id: str | None = None
    group: Repeated = ()
    cluster: str | None = None
    where: Repeated = ()


def compare(
    file: Path,
    /,
    *others: Path,
    columns: Columns = Columns(),  # noqa: B008
    attempts: WholeNumber = 1,
    confidence: float = 0.95,
    page: Path | None = None,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Is the second predictor better than the first, on the same examples?

    Args:
        file: One row per example.
        others: The files of other predictors, where each has its own; rows are paired by --id.
        attempts: How many predictors the first two were chosen from: choosing is paid for.
        confidence: Of all intervals of two predictors together.
        page: Write a page with the intervals in a picture.
        force: Overwrite --page if it exists.
    """
    from nonvacuous.evaluation.compare import compare as compared

    failure_of(confidence)
    check_free(page, "--page", force=force)
    if columns.score is not None and columns.metric in ("event", "loss"):
        raise UsageError(
            f"--score reads 1 as right, --metric {columns.metric} reads 1 as bad: leave one of "
            "them out, or say --metric score."
        )
    if others and columns.id is None:
        raise UsageError("files are paired by --id, a column that all of them have.")
    table, challengers = _table(file, others, columns)
    metric = columns.metric or ("success" if columns.score is not None else None)
    result = compared(
        table["first"],
        challengers,
        table.get("labels"),
        metric=metric,
        confidence=confidence,
        groups={name: table[f"group:{name}"] for name in columns.group} or None,
        clusters=table.get("clusters"),
        names=(file.stem if others else columns.first, ""),
        attempts=attempts,
    )
    if page is not None:
        from nonvacuous.report import write_report

        say(f"The page of this comparison: {write_report(result, page)}")
    if json:
        write_json(asdict(result))
        return DONE
    for one in (result, *result.others):
        write_lines(
            f"{one.verdict} (risk of {one.names[0]} minus risk of {one.names[1]}: "
            f"{shown_down(one.difference_lower)} to {shown_up(one.difference_upper)} with "
            f"confidence {shown_confidence(confidence, 6)}, {one.examples} examples)"
        )
        for column, parts in one.groups.items():
            write_lines(*(f"  {column} {name}: {part.verdict}" for name, part in parts.items()))
    return DONE


def _table(
    file: Path, others: tuple[Path, ...], columns: Columns
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of the first predictor and of the examples, and the others' by name."""
    numbers = columns.score is not None or columns.metric is not None
    names = {"first": columns.score or columns.first}
    names |= {} if numbers else {"labels": columns.labels}
    names |= {"clusters": columns.cluster} if columns.cluster else {}
    names |= {"id": columns.id} if columns.id else {}
    names |= {f"group:{name}": name for name in columns.group}
    where = columns.where
    second = columns.second or ((names["first"],) if others else ("b",))
    seconds = {f"second:{name}": name for name in second}
    measured = ("first", "second", *seconds) if numbers else ()
    if not others:
        if columns.score is not None and not columns.second:
            raise UsageError("--score compares files: name another one, or columns with --second.")
        try:
            table = read_columns(file, names | seconds, where, measured=measured)
        except Unrecognized as error:
            # A column that is looked for because none was named is asked for by its flag.
            usual = {"--first": columns.first == Columns.first, "--second": not columns.second}
            flags = [flag for flag, unnamed in usual.items() if unnamed]
            if not flags or "has no column" not in str(error):
                raise
            raise UsageError(
                f"{error} Name the columns to compare with {' and '.join(flags)}.",
                instead=dict.fromkeys(flags, "COLUMN"),
            ) from error
        _check_named_once(table.get("id", ()))
        return table, {name: table[f"second:{name}"] for name in second}
    if len(second) > 1:
        raise UsageError("files of their own have one column each: give --second once.")
    table = read_columns(file, names, where, measured=measured)
    challengers: dict[str, Any] = {}
    for path in others:
        named = {"second": second[0], "id": str(columns.id)}
        other = read_columns(path, named, where, measured=measured)
        if not numbers:
            with suppress(Unrecognized):  # not every file has the labels too
                other |= read_columns(path, {"labels": columns.labels}, where)
        name = path.stem if path.stem not in (*challengers, file.stem) else str(path)
        challengers[name] = _paired(table, other, path)
    return table, challengers


def _check_named_once(ids: Any) -> None:
    named, times = np.unique(np.asarray(ids), return_counts=True)
    if len(named) < times.sum():
        raise CommandError(
            f"an id is repeated ({named[times.argmax()]!s}, {times.max()} times): each example "
            "must be named once in each file, or it counts as several. Choose rows with --where, "
            "as in --where filter=none; rows that belong together are named by --cluster, without "
            "--id."
        )


def _paired(table: dict[str, Any], other: dict[str, Any], path: Path) -> Any:
    """The other file's rows in the order of the first's; both have the same examples and labels."""
    for one in (table, other):
        _check_named_once(one["id"])
    ids = table["id"].tolist()
    where = {value: row for row, value in enumerate(other["id"].tolist())}
    missing = [value for value in ids if value not in where]
    if missing or len(ids) != len(where):
        raise CommandError(
            f"the files are not about the same examples: {len(missing)} ids of the first are not "
            f"in {path}, which has {len(where)} of {len(ids)}."
        )
    rows = [where[value] for value in ids]
    if "labels" in other:
        # True in one file is 1 in another.
        first, second = (one_each(one["labels"], "labels").astype(str) for one in (table, other))
        apart = first != second[rows]
        if apart.any():
            raise CommandError(
                f"the labels of the first file are not those of {path}: {int(apart.sum())} of "
                f"{len(ids)} differ, the first at id {ids[int(apart.argmax())]}. Predictors are "
                "compared on the same labels: check which file has them right."
            )
    return other["second"][rows]
