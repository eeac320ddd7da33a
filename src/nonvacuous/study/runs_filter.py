"""Choosing among runs without SQL: conditions such as risk_upper<0.1, order, and columns."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nonvacuous.errors import BadInput
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
