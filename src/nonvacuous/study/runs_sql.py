"""Questions about runs in SQL, answered by DuckDB in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.study.runs import columns_of

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
            places = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * len(some))
            values = [_value(row.get(name), types[name]) for row in some for name in names]
            database.execute(f"insert into runs values {places}", values)
        database.execute("set enable_external_access = false")
        database.execute("set lock_configuration = true")
        try:
            answer = database.execute(sql)
            described = answer.description
            found = answer.fetchall() if described else []
        except duckdb.Error as error:
            raise BadInput(
                f"DuckDB does not understand the question: {' '.join(str(error).split())} The "
                f"table is called runs; its columns are {', '.join(names)}."
            ) from error
    titles = [column[0] for column in described or ()]
    return [dict(zip(titles, map(_plain, values), strict=True)) for values in found]


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


def _plain(value: Any) -> Any:
    """What JSON can write: DuckDB also gives dates, decimals and more."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
