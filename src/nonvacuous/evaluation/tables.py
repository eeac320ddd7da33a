"""Columns in batches: from arrays, or from CSV, parquet, npz and JSON lines of any size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation import readers
from nonvacuous.evaluation.coding import ROW, BadRow, as_array, is_lost, one_each, plain, to_numpy
from nonvacuous.evaluation.readers import BATCH, SEPARATORS, names_in

_JSON_LINES = (".jsonl", ".ndjson")
_T = TypeVar("_T")


class Batch(dict[str, Any]):
    """Columns by role, and where a row of theirs stands in their source."""

    def __init__(
        self, columns: Mapping[str, Any], where: Callable[[int], str] = ROW.format
    ) -> None:
        super().__init__(columns)
        self.where = where

    def naming(self, read: Callable[[Batch], _T]) -> _T:
        """What ``read`` makes of the columns; what is wrong with a row names its line."""
        try:
            return read(self)
        except BadRow as error:
            raise BadRow(*error.parts, self.where) from error


def batches_of(
    source: Any,
    columns: Mapping[str, str],
    where: Sequence[str] = (),
    *,
    measured: Collection[str] = (),
) -> Iterator[Batch]:
    """Batches of the named columns, as ``{role: values}``; ``columns`` maps roles to names.

    ``where`` leaves only rows with these values, each written column=value. Roles that are
    ``measured`` hold numbers and no names, however a file of text writes them.
    """
    conditions: dict[str, str] = {}
    for text in where:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Unrecognized(
                f"a condition is written column=value, as in filter=none, got {text!r}."
            )
        if name in conditions:
            raise BadInput(
                f"there are two conditions on {name!r}, {conditions[name]!r} and {value!r}, and a "
                "row has one value: give one of them, or write the rows that are meant into a "
                "file of their own."
            )
        conditions[name] = value
    wanted = {**columns, **{f"where {name}": name for name in conditions}}
    if isinstance(source, str | Path):
        batches = _from_file(Path(source), wanted, measured)
    else:
        own = _columns_of(source)
        names_in(wanted, list(map(str, own)), _named(source))
        keys = {str(name): name for name in own}
        batches = in_batches({role: source[keys[name]] for role, name in wanted.items()})
    some, stop = not where, 0
    for batch in batches:
        start, stop = stop, stop + len(next(iter(batch.values())))
        rows = np.arange(start, stop)
        for name, value in conditions.items():
            values = as_array(batch.pop(f"where {name}")).astype(str)
            # What is True here is true in every file.
            if value in ("true", "false") and np.isin(values, ("True", "False")).all():
                value = value.capitalize()
            kept = values == value
            batch = Batch({role: _chosen(column, kept) for role, column in batch.items()})
            rows = rows[kept]
        if len(rows):
            some = True
            yield Batch(batch, partial(row_name, source, rows))
    if not some:
        raise BadInput(f"{_named(source)} has no row with {' and '.join(where)}.")


def row_name(source: Any, rows: np.ndarray | range, row: int) -> str:
    """Where a row of a batch stands: in a file of text the line that an editor shows."""
    path = Path(source) if isinstance(source, str | Path) else Path()
    number, kind = int(rows[row]), path.suffix.lower()
    if kind not in SEPARATORS and kind not in _JSON_LINES:
        return ROW.format(number)
    with open(path, encoding="utf-8-sig", newline="") as stream:
        if kind in _JSON_LINES:
            lines = (at for at, line in enumerate(stream, start=1) if line.strip())
        else:
            lines = (at for at, cells in readers.lines_of(stream, SEPARATORS[kind]) if cells)
            next(lines)  # the header
        return f"line {next(islice(lines, number, None))} of {path}"


def _columns_of(table: Any) -> list[Any]:
    names = getattr(getattr(table, "dtype", None), "names", None)  # of a structured array
    if hasattr(table, "keys") or names is not None:
        return list(table.keys() if names is None else names)
    raise BadInput(
        f"data is a file or a table of columns (a dictionary, a pandas frame), not a "
        f"{type(table).__name__}."
    )


def _named(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "the table"


def _chosen(column: Any, kept: np.ndarray) -> Any:
    if hasattr(column, "iloc"):
        return column[kept]
    return column.filter(kept) if hasattr(column, "dictionary_encode") else as_array(column)[kept]


def check_rows(columns: Mapping[str, Any]) -> None:
    """Refuse columns whose rows have no order, or names by which they would pair otherwise."""
    named: dict[str, Any] = {}
    for role, column in columns.items():
        if isinstance(column, Mapping | set | frozenset):
            raise BadInput(
                f"{role} is a {type(column).__name__}, whose entries are not rows in an order: "
                "give a list or an array, one entry for each example."
            )
        if hasattr(column, "iloc"):
            named[role] = column.index
    for role, index in named.items():
        first = next(iter(named))
        if len(index) == len(named[first]) and not index.equals(named[first]):
            raise BadInput(
                f"{first} and {role} name their rows differently (their index), and rows are "
                "paired by position. Bring both into one order, as in b.loc[a.index]; or, if they "
                "are in one order already, give the values alone, as in b.to_numpy()."
            )


def with_lengths(columns: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Columns with their lengths; what a generator gives is kept."""
    try:
        kept = {role: a if hasattr(a, "__len__") else list(a) for role, a in columns.items()}
        return kept, {role: len(column) for role, column in kept.items()}
    except TypeError as error:  # a single number
        raise BadInput(f"columns have one entry for each example: {error}.") from error


def in_batches(arrays: Mapping[str, Any]) -> Iterator[Batch]:
    """Arrays of one length, cut into batches."""
    check_rows(arrays)
    sized, lengths = with_lengths(arrays)
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{role} {length}" for role, length in lengths.items())
        raise BadInput(f"the columns have different lengths: {said}. One row is one example.")
    rows = next(iter(lengths.values()), 0)
    for start in range(0, rows, BATCH):
        rest = slice(start, start + BATCH)
        part = {r: (a.iloc if hasattr(a, "iloc") else a)[rest] for r, a in sized.items()}
        yield Batch(part, partial(row_name, None, range(start, rows)))


def with_holes(
    column: Any, name: str, where: Callable[[int], str] = ROW.format
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column that are there, read as :func:`plain` reads them, and which are.

    Whoever writes a table with pandas gets floats where a whole number is missing: 1.0 is 1.
    """
    arrow = hasattr(column, "to_pylist")
    array = np.array(column.to_pylist(), dtype=object) if arrow else to_numpy(column)
    if array.ndim == 0:
        raise BadInput(f"{name} is a single {type(column).__name__}; give one for each row.")
    items = array.tolist()
    there = np.array([not is_lost(value) for value in items], dtype=bool)
    known = [value for value, is_there in zip(items, there, strict=True) if is_there]
    values = np.fromiter(known, dtype=object, count=len(known))
    try:
        return as_array(one_each(values, name)), there
    except BadRow as error:
        before, row, after = error.parts
        raise BadRow(before, int(np.flatnonzero(there)[row]), after, where) from error


def read_columns(
    source: Any,
    columns: Mapping[str, str],
    where: Sequence[str] = (),
    *,
    measured: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """Whole columns as arrays, by role."""
    batches = list(batches_of(source, columns, where, measured=measured))
    if not batches:
        raise BadInput(f"{_named(source)} holds no rows.")
    read = [
        batch.naming(lambda batch: {role: as_array(plain(batch[role], role)) for role in columns})
        for batch in batches
    ]
    for role, name in columns.items():
        if len({part[role].dtype.kind == "U" for part in read}) > 1:
            raise BadInput(f"{name} mixes numbers and words; use numbers or words alone.")
    return {role: np.concatenate([part[role] for part in read]) for role in columns}


def _from_file(
    path: Path, columns: Mapping[str, str], measured: Collection[str]
) -> Iterator[Batch]:
    kind = path.suffix.lower()
    if kind not in READERS:
        raise Unrecognized(
            f"{path}: files that end in {', '.join(READERS)} are read, not {kind or 'this one'}."
        )
    if not path.is_file():
        raise Unrecognized(f"there is no file {path}; check the path.")
    if path.stat().st_size == 0:
        raise BadInput(f"{path} is empty: it holds no examples.")
    read = READERS[kind]
    if kind in SEPARATORS:  # the others say themselves what is a number
        read = partial(readers.delimited, measured=measured)
    for part in read(path, columns):
        yield from in_batches(part)


#: Files of columns by the end of their names. To add a kind, enter it here.
READERS: dict[str, Callable[[Path, Mapping[str, str]], Iterator[dict[str, Any]]]] = {
    **dict.fromkeys(SEPARATORS, readers.delimited),
    ".parquet": readers.parquet,
    ".npz": readers.npz,
    **dict.fromkeys(_JSON_LINES, readers.json_lines),
}
