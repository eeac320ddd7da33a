"""Readers of files: the columns of CSV, parquet, npz and JSON lines, in batches as they come."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput, Unrecognized, nearest
from nonvacuous.evaluation.spelling import Typed

#: Rows read at a time: what is in memory does not grow with the file.
BATCH = 1 << 19
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def delimited(
    path: Path, columns: Mapping[str, str], *, measured: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    pa = _pyarrow(path)
    import pyarrow.csv as arrow_csv

    separator = SEPARATORS[path.suffix.lower()]
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            header = next((cells for _, cells in lines_of(stream, separator) if cells), [])
        _check_separator(header, columns, path)
        # Written with spaces after the commas, names are meant without.
        names = names_in(columns, [_bare(name) for name in header], path)
        written = {_bare(name): name for name in header}
        typed = {
            role: Typed(role, f"{path}: column {name!r}", measured=role in measured)
            for role, name in columns.items()
        }
        lines, count = _lines_below(path), 0
        with arrow_csv.open_csv(
            path,
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[written[name] for name in names],
                column_types={written[name]: pa.string() for name in names},
                strings_can_be_null=False,
            ),
            read_options=arrow_csv.ReadOptions(block_size=1 << 24),
        ) as reader:
            for batch in reader:
                count += len(batch)
                yield {r: typed[r](batch.column(written[name])) for r, name in columns.items()}
        if count < lines:
            _check_quotes(path, separator, f"{lines} lines, which read as {count} rows")
    except (pa.ArrowInvalid, UnicodeDecodeError, csv.Error) as error:
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            raise BadInput(f"{path} is not UTF-8: save it as 'CSV UTF-8'.") from error
        raise BadInput(f"{path} cannot be read as CSV: {str(error).splitlines()[0]}") from error


def lines_of(
    stream: Iterable[str], separator: str, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Rows of CSV, each with the number of its last line: with texts of any length."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(stream, delimiter=separator, strict=strict)
        yield from ((reader.line_num, cells) for cells in reader)
    finally:
        csv.field_size_limit(limit)


def _check_separator(header: list[str], columns: Mapping[str, str], path: Path) -> None:
    if len(header) != 1 or header[0] in columns.values():
        return
    for mark, said in ((";", "';'"), ("\t", "tabs")):
        if mark in header[0]:
            remedy = "save it with commas" if mark == ";" else "call it .tsv"
            raise Unrecognized(f"{path} seems to be separated by {said}: {remedy}.")


def _lines_below(path: Path) -> int:
    """Lines below the header."""
    with open(path, encoding="latin-1") as stream:
        return sum(line != "\n" for line in stream) - 1


def _check_quotes(path: Path, separator: str, counts: str) -> None:
    """Refuse files in which a text that begins with a quotation mark swallows rows."""
    try:
        if separator == ",":  # texts of several lines are usual here, in pairs of quotation marks
            with open(path, encoding="latin-1", newline="") as stream:
                for _ in lines_of(stream, separator, strict=True):
                    pass
            return
    except csv.Error as error:
        counts += f" ({error})"
    raise BadInput(
        f"{path} has {counts}: texts that begin with a quotation mark swallow the lines up to the "
        "next one. Save it as parquet or JSON lines."
    )


def _bare(name: str) -> str:
    return name.strip().strip('"')


def parquet(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    pa = _pyarrow(path)
    import pyarrow.parquet as arrow_parquet

    try:
        with arrow_parquet.ParquetFile(path) as file:
            names = names_in(columns, file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=BATCH, columns=names):
                yield {role: batch.column(name) for role, name in columns.items()}
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not parquet: {str(error).splitlines()[0]}") from error


def npz(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names_in(columns, archive.files, path)
            yield {role: archive[name] for role, name in columns.items()}
    except BadInput:
        raise
    except Exception as error:  # damaged archives break zip and numpy in many ways
        raise BadInput(f"{path} cannot be read as npz without objects: {error}") from error


def json_lines(path: Path, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """One object per line; a name with dots reaches into nested objects."""
    rows: list[list[Any]] = []
    try:
        with open(path, encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                record = _record(line, where)
                rows.append([_inside(record, name, where) for name in columns.values()])
                if len(rows) == BATCH:
                    yield _columns(rows, columns, path)
                    rows = []
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8.") from error
    if rows:
        yield _columns(rows, columns, path)


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


def names_in(columns: Mapping[str, str], names: list[str], where: object) -> list[str]:
    """The names of columns, each once; one that is not there, or there twice, is refused."""
    for role, name in columns.items():
        if name not in names:
            raise _unknown(name, names, where, role)
        if names.count(name) > 1:
            raise BadInput(f"{where} has {names.count(name)} columns {name!r}: rename all but one.")
    return list(dict.fromkeys(columns.values()))


def _unknown(name: str, names: list[str], where: object, role: str = "") -> Unrecognized:
    close = nearest(name, names, cutoff=0.5)
    hint = f" Did you mean {close!r}?" if close else ""
    listed = ", ".join(map(repr, names[:12])) or "none"
    said = f"{where} has no column {name!r}.{hint} Its columns are {listed}."
    asked = {"predictions": "--predictions", "answers": "--predictions", "labels": "--labels"}
    flag = asked.get(role)
    return Unrecognized(said, instead={flag: close or "COLUMN"} if flag else None)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise BadInput(
            f"{path} is read with pyarrow, which is not installed: pip install 'nonvacuous[data]'."
        ) from error
    return pyarrow
