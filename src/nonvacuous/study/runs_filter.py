"""Choosing among runs without SQL: conditions such as risk_upper<0.1, order, and columns."""

from __future__ import annotations

import difflib
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.study.functions import plain
from nonvacuous.study.runs import columns_of

Row = Mapping[str, Any]
_CONDITION = re.compile(r"\s*([\w.-]+?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def select(rows: Sequence[Row], conditions: Iterable[str]) -> list[Row]:
    """The rows that meet every condition.

    >>> select([{"a": 1}, {"a": 2}, {"a": None}], ["a>1"])
    [{'a': 2}]
    """
    kept = list(rows)
    names = columns_of(rows)
    for condition in conditions:
        match = _CONDITION.fullmatch(condition)
        if match is None:
            raise BadInput(
                f"{condition!r} is not a condition: write a column, one of < <= > >= = != ~ and a "
                "value, such as risk_upper<0.1 or model~cnn."
            )
        name, sign, text = match.groups()
        column = known(name, names)
        kept = [row for row in kept if _meets(row.get(column), sign, text)]
    return kept


def ordered(rows: Sequence[Row], column: str, *, reverse: bool = False) -> list[Row]:
    """The rows by a column, smallest first unless ``reverse``; rows without it come last."""
    name = known(column, columns_of(rows))
    with_value = [row for row in rows if row.get(name) is not None]
    without = [row for row in rows if row.get(name) is None]
    return sorted(with_value, key=lambda row: _key(row[name]), reverse=reverse) + without


def known(name: str, names: Sequence[str]) -> str:
    """The column of this name, dashes and underscores alike; an error names the nearest."""
    for candidate in (name, name.replace("-", "_")):
        if candidate in names:
            return candidate
    if not names:
        return name
    close = difflib.get_close_matches(name.replace("-", "_"), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    raise BadInput(f"there is no column {name!r}{hint} The columns are: {', '.join(names)}.")


def _key(value: Any) -> tuple[int, Any]:
    """Numbers by size, then texts by their letters."""
    if isinstance(value, bool | int | float):
        return 0, value
    return 1, str(value)


def _meets(value: Any, sign: str, text: str) -> bool:
    if sign == "~":
        return value is not None and text.lower() in str(value).lower()
    if text.lower() in ("none", "null", ""):
        return (value is None) == (sign in ("=", "=="))
    if value is None:
        return sign == "!="
    wanted: Any = text
    if isinstance(value, bool):
        wanted = _WORDS.get(text.lower(), text)
    elif isinstance(value, int | float):
        try:
            wanted = float(text)
        except ValueError:
            return sign == "!="
    else:
        value = str(value)
    if isinstance(value, bool) != isinstance(wanted, bool):
        return sign == "!="
    return _COMPARE[sign](value, wanted)


#: Rows that go into the table with one statement.
_AT_ONCE = 200


def query(rows: Sequence[Mapping[str, Any]], sql: str) -> list[dict[str, Any]]:
    """The answer to a question about the table ``runs``, whose columns are those of the rows.

    The question sees that table and nothing else: no files, no network.
    """
    try:
        import duckdb
    except ImportError as error:
        raise Unsupported(
            "--sql needs the package duckdb. Install it with pip install 'nonvacuous[sql]', or "
            "choose with --where and --sort, which need nothing."
        ) from error
    names = columns_of(rows) or ["name"]
    with duckdb.connect(":memory:") as database:
        types = {name: _type([row.get(name) for row in rows]) for name in names}
        columns = ", ".join(f"{_quoted(name)} {types[name]}" for name in names)
        database.execute(f"create table runs ({columns})")
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            marks = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * len(some))
            values = [_value(row.get(name), types[name]) for row in some for name in names]
            database.execute(f"insert into runs values {marks}", values)
        database.execute("set enable_external_access = false")
        database.execute("set lock_configuration = true")
        try:
            answer = database.execute(sql)
            described = answer.description
            answers = answer.fetchall() if described else []
        except duckdb.Error as error:
            raise BadInput(
                f"DuckDB does not understand the question: {' '.join(str(error).split())} The "
                f"table is called runs; its columns are {', '.join(names)}."
            ) from error
    titles = [column[0] for column in described or ()]
    return [
        {title: plain(value, _other) for title, value in zip(titles, values, strict=True)}
        for values in answers
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(values: Sequence[Any]) -> str:
    """One type for a column: numbers where all are numbers, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return "bigint"
    if kinds and kinds <= {int, float}:
        return "double"
    return "varchar"


def _value(value: Any, kind: str) -> Any:
    if value is None or kind != "varchar" or isinstance(value, str):
        return value
    return json.dumps(value)


def _other(value: Any) -> float | str:
    """DuckDB also gives dates, decimals and more."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
