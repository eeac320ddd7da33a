"""``nonvacuous compare``: is the second predictor better than the first?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from nonvacuous.cli.exits import DONE, CommandError, UsageError
from nonvacuous.cli.flags import SWITCH, Json, WholeNumber
from nonvacuous.cli.output import write_json


def compare(
    file: Path,
    other: Path | None = None,
    /,
    *,
    first: str = "a",
    second: str = "b",
    labels: str | None = "label",
    losses: Annotated[bool, SWITCH] = False,
    id: str | None = None,
    group: tuple[str, ...] = (),
    cluster: str | None = None,
    attempts: WholeNumber = 1,
    confidence: float = 0.95,
    json: Json = False,
) -> int:
    """Is the second predictor better than the first, on the same examples?

    Parameters
    ----------
    file
        One row per example.
    other
        The second predictor's file, where it has one of its own; rows are paired by --id.
    first
        The column of the first predictor's answers.
    second
        The column of the second's.
    labels
        The column of labels.
    losses
        The two columns are losses in [0, 1]; no labels are needed.
    id
        The column that names the examples in both files.
    group
        A column of groups; may be repeated.
    cluster
        A column that says which rows belong together.
    attempts
        How many predictors the better one was chosen from: choosing is paid for.
    confidence
        Of the interval.
    """
    from dataclasses import asdict

    from nonvacuous.cli.output import result_console
    from nonvacuous.evaluation.compare import compare as compared
    from nonvacuous.evaluation.tables import read_columns

    names = {"first": first, "labels": labels, "clusters": cluster, "id": id}
    if losses:
        names["labels"] = None
    names |= {f"group:{name}": name for name in group}
    wanted = {role: name for role, name in names.items() if name is not None}
    if other is None:
        table = read_columns(file, wanted | {"second": second})
    else:
        if id is None:
            raise UsageError("two files are paired by --id, a column that both have.")
        table = _paired(
            read_columns(file, wanted), read_columns(other, {"second": second, "id": id})
        )
    result = compared(
        table["first"],
        table["second"],
        table.get("labels"),
        confidence=confidence,
        groups={name: table[f"group:{name}"] for name in group} or None,
        clusters=table.get("clusters"),
        names=(first, second) if other is None else (file.stem, other.stem),
        attempts=attempts,
    )
    if json:
        write_json(asdict(result))
        return DONE
    console = result_console()
    console.print(
        f"{result.verdict} (risk of {result.names[0]} minus risk of {result.names[1]}: "
        f"{result.difference_lower:.4f} to {result.difference_upper:.4f} with confidence "
        f"{confidence:g}, {result.examples} examples)",
        soft_wrap=True,
    )
    for column, parts in result.groups.items():
        for value, part in parts.items():
            console.print(f"  {column} {value}: {part.verdict}", soft_wrap=True)
    return DONE


def _paired(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Rows of both files that name the same example; an example in one file only is an error."""
    where = {value: row for row, value in enumerate(two["id"].tolist())}
    ids = one["id"].tolist()
    if len(where) < len(two["id"]) or len(set(ids)) < len(ids):
        raise CommandError("an id is repeated: each example must be named once in each file.")
    missing = [value for value in ids if value not in where]
    if missing or len(ids) != len(where):
        raise CommandError(
            f"the files are not about the same examples: {len(missing)} ids of the first are not "
            f"in the second, which has {len(where)} of {len(ids)}."
        )
    return one | {"second": two["second"][[where[value] for value in ids]]}
