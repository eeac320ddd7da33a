"""Columns in batches: from arrays, or from CSV, parquet, npz and JSON lines of any size."""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation.coding import ROW, BadRow, as_array, one_each, plain, to_numpy

#: Rows read at a time: what is in memory does not grow with the file.
BATCH = 1 << 19
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
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
    source: Any, columns: Mapping[str, str], where: Sequence[str] = ()
) -> Iterator[Batch]:
    """Batches of the named columns, as ``{role: values}``; ``columns`` maps roles to names.

    ``where`` leaves only rows with these values, each written column=value.
    """
    conditions: dict[str, str] = {}
    for text in where:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadInput(f"a condition is written column=value, as in filter=none, got {text!r}.")
        if name in conditions:
            raise BadInput(
                f"there are two conditions on {name!r}, {conditions[name]!r} and {value!r}, and a "
                "row has one value: give one of them, or write the rows that are meant into a "
                "file of their own."
            )
        conditions[name] = value
    wanted = {**columns, **{f"where {name}": name for name in conditions}}
    if isinstance(source, str | Path):
        batches = _from_file(Path(source), wanted)
    else:
        _wanted(wanted, _columns_of(source), _named(source))
        batches = in_batches({role: source[name] for role, name in wanted.items()})
    some, stop = not where, 0
    for batch in batches:
        start, stop = stop, stop + len(next(iter(batch.values())))
        rows = np.arange(start, stop)
        for name, value in conditions.items():
            kept = as_array(batch.pop(f"where {name}")).astype(str) == value
            batch = {role: _chosen(column, kept) for role, column in batch.items()}
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
    if kind not in _SEPARATORS and kind not in _JSON_LINES:
        return ROW.format(number)
    with open(path, encoding="utf-8-sig", newline="") as stream:
        if kind in _JSON_LINES:
            lines = (at for at, line in enumerate(stream, start=1) if line.strip())
        else:
            reader = csv.reader(stream, delimiter=_SEPARATORS[kind])
            lines = (reader.line_num for cells in reader if cells)
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


def in_batches(arrays: Mapping[str, Any]) -> Iterator[Batch]:
    """Arrays of one length, cut into batches."""
    check_rows(arrays)
    try:
        sized = {role: a if hasattr(a, "__len__") else list(a) for role, a in arrays.items()}
        lengths = {role: len(array) for role, array in sized.items()}
    except TypeError as error:  # a single number
        raise BadInput(f"columns have one entry for each example: {error}.") from error
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{role} {length}" for role, length in lengths.items())
        raise BadInput(f"the columns have different lengths: {said}. One row is one example.")
    rows = next(iter(lengths.values()), 0)
    for start in range(0, rows, BATCH):
        rest = slice(start, start + BATCH)
        part = {r: (a.iloc if hasattr(a, "iloc") else a)[rest] for r, a in sized.items()}
        yield Batch(part, partial(row_name, None, range(start, rows)))


def _items(column: Any, name: str) -> list[Any]:
    """A column as a list, in which nothing has become a word that was none."""
    if isinstance(column, list | tuple):
        return list(column)
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    array = column if isinstance(column, np.ma.MaskedArray) else to_numpy(column)
    if array.ndim == 0:
        raise BadInput(f"{name} is a single {type(column).__name__}; give one for each row.")
    return list(array.tolist())


def _is_lost(value: Any) -> bool:
    """Whether a value says that there is none: of JSON, of text, of floats, of pandas."""
    if isinstance(value, str | float):
        return value == "" or value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def with_holes(
    column: Any, name: str, where: Callable[[int], str] = ROW.format
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column that are there, read as :func:`plain` reads them, and which are.

    Whoever writes a table with pandas gets floats where a whole number is missing: 1.0 is 1.
    """
    items = _items(column, name)
    there = np.array([not _is_lost(value) for value in items], dtype=bool)
    known = [value for value, is_there in zip(items, there, strict=True) if is_there]
    values = np.fromiter(known, dtype=object, count=len(known))
    try:
        return as_array(one_each(values, name)), there
    except BadRow as error:
        before, row, after = error.parts
        raise BadRow(before, int(np.flatnonzero(there)[row]), after, where) from error


def read_columns(
    source: Any, columns: Mapping[str, str], where: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Whole columns as arrays, by role."""
    batches = list(batches_of(source, columns, where))
    if not batches:
        raise BadInput(f"{_named(source)} holds no rows.")
    read = [
        batch.naming(lambda batch: {role: as_array(plain(batch[role], role)) for role in columns})
        for batch in batches
    ]
    return {role: np.concatenate([part[role] for part in read]) for role in columns}


def _from_file(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    kind = path.suffix.lower()
    if kind not in READERS:
        raise Unrecognized(
            f"{path}: files that end in {', '.join(READERS)} are read, not {kind or 'this one'}."
        )
    if not path.is_file():
        raise Unrecognized(f"there is no file {path}; check the path.")
    if path.stat().st_size == 0:
        raise BadInput(f"{path} is empty: it holds no examples.")
    yield from READERS[kind](path, columns)


def _csv(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    pa = _pyarrow(path)
    import pyarrow.csv as arrow_csv

    separator = _SEPARATORS[path.suffix.lower()]
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, delimiter=separator)
            header = next((cells for cells in rows if cells), [])
        # Written with spaces after the commas, names are meant without.
        wanted = _wanted(columns, [_bare(name) for name in header], path)
        written = {_bare(name): name for name in header}
        with arrow_csv.open_csv(
            path,
            parse_options=arrow_csv.ParseOptions(delimiter=separator),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[written[name] for name in wanted], strings_can_be_null=False
            ),
            read_options=arrow_csv.ReadOptions(block_size=1 << 24),
        ) as reader:
            for batch in reader:
                yield {role: batch.column(written[name]) for role, name in columns.items()}
    except (pa.ArrowInvalid, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as CSV: {str(error).splitlines()[0]}") from error


def _bare(name: str) -> str:
    return name.strip().strip('"')


def _parquet(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    pa = _pyarrow(path)
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            wanted = _wanted(columns, file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=BATCH, columns=wanted):
                yield {role: batch.column(name) for role, name in columns.items()}
    except pa.ArrowInvalid as error:
        raise BadInput(f"{path} is not parquet: {str(error).splitlines()[0]}") from error


def _npz(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            _wanted(columns, archive.files, path)
            arrays = {role: archive[name] for role, name in columns.items()}
    except Unrecognized:
        raise
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(f"{path} cannot be read as npz without objects: {error}") from error
    yield from in_batches(arrays)


def _json_lines(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """One object per line; a name with dots reaches into nested objects."""
    rows: list[list[Any]] = []
    with open(path, encoding="utf-8-sig") as stream:
        for number, line in enumerate(_decoded(stream, path), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            record = _record(line, where)
            rows.append([_inside(record, name, where) for name in columns.values()])
            if len(rows) == BATCH:
                yield _columns(rows, columns, path)
                rows = []
    if rows:
        yield _columns(rows, columns, path)


def _decoded(lines: Iterable[str], path: Path) -> Iterator[str]:
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8.") from error


def _record(line: str, where: str) -> Any:
    try:
        return json.loads(line, object_pairs_hook=_once)
    except RecursionError as error:
        raise BadInput(f"{where} is nested too deeply to be read.") from error
    except ValueError as error:
        raise BadInput(f"{where} is not JSON: {error}.") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose names must differ: which one was meant cannot be known."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in record if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} occurs twice in one object")
    return record


def _columns(rows: list[list[Any]], columns: Mapping[str, str], path: Path) -> dict[str, Any]:
    values = zip(*rows, strict=True)
    return {
        role: _column(list(own), name, path)
        for (role, name), own in zip(columns.items(), values, strict=True)
    }


def _column(values: list[Any], name: str, path: Path) -> np.ndarray:
    """Values as they are: an array of one type would make words of what is none, as of NaN."""
    array = np.array(values, dtype=object)
    if array.ndim == 1:
        if any(isinstance(value, list | dict) for value in values):
            raise BadInput(
                f"{path}: the lists of {name!r} have different lengths, or are records; give one "
                "value for each row, or lists of one length."
            )
        return array
    kinds = {type(value) for value in array.ravel()}
    if len(kinds) > 1 and str in kinds:
        raise BadInput(f"{path}: the lists of {name!r} mix words with other values.")
    return np.array(values)


def _inside(record: Any, name: str, where: str) -> Any:
    if isinstance(record, dict) and name in record:
        return record[name]
    inner = record
    for part in name.split("."):
        if not isinstance(inner, dict) or part not in inner:
            raise _unknown(name, sorted(record) if isinstance(record, dict) else [], where)
        inner = inner[part]
    return inner


def _wanted(columns: Mapping[str, str], names: list[str], where: object) -> list[str]:
    """The names of columns, each once; one that is not there, or there twice, is refused."""
    for name in columns.values():
        if name not in names:
            raise _unknown(name, names, where)
        if names.count(name) > 1:
            raise BadInput(f"{where} has {names.count(name)} columns {name!r}: rename all but one.")
    return list(dict.fromkeys(columns.values()))


def _unknown(name: str, names: list[str], where: object) -> Unrecognized:
    close = difflib.get_close_matches(name, [str(n) for n in names], n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(map(repr, names[:12])) or "none"
    return Unrecognized(f"{where} has no column {name!r}.{hint} Its columns are {listed}.")


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise BadInput(
            f"{path} is read with pyarrow, which is not installed: pip install 'nonvacuous[data]'."
        ) from error
    return pyarrow


#: Files of columns by the end of their names. To add a kind, enter it here.
READERS: dict[str, Callable[[Path, Mapping[str, str]], Iterator[dict[str, Any]]]] = {
    **dict.fromkeys(_SEPARATORS, _csv),
    ".parquet": _parquet,
    ".npz": _npz,
    **dict.fromkeys(_JSON_LINES, _json_lines),
}
