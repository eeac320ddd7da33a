"""Tables with a column of labels: parquet (numbers, or encoded images) and text with a header."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nonvacuous.data.convert import LABEL_COLUMNS, label_column
from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.data.files import check_unpacked
from nonvacuous.data.readers.pictures import (
    cached_images,
    decode_image,
    optional_package,
    stack_images,
)
from nonvacuous.errors import BadInput

_IMAGE_COLUMNS = ("img", "image")


def read_parquet(
    paths: str | Path | Sequence[str | Path],
    *,
    name: str | None = None,
    class_names: Sequence[str] | None = None,
    label: str | None = None,
) -> Examples:
    """Examples from one parquet file or several shards of one table.

    The label column is ``label``, or else the one called label, labels, y, target or class, in
    capitals or not. The inputs are an image column (img or image: encoded bytes, or a structure
    with a field `bytes`, as on the public hubs), one column of lists of equal length, or otherwise
    all remaining columns, which must be numbers.
    """
    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    if not files:
        raise BadInput("read_parquet: no files were given")
    parts = [_read_file(path, label) for path in files]
    layouts = [
        f"inputs {inputs.dtype} of shape {inputs.shape[1:]} and labels of kind {labels.dtype.kind}"
        for inputs, labels, _ in parts
    ]
    for path, layout in zip(files, layouts, strict=True):
        if layout != layouts[0]:
            raise BadInput(
                f"{path} holds {layout}, but {files[0]} {layouts[0]}: with different types or "
                "shapes they are not parts of one table"
            )
    names = class_names if class_names is not None else parts[0][2]
    inputs, labels = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
    return Examples.of((inputs, labels), class_names=names, name=name or files[0].stem)


def read_table(
    path: str | Path, *, class_names: Sequence[str] | None = None, label: str | None = None
) -> Dataset:
    """The examples of one parquet file, as a data set of its own."""
    name = None if label is None else f"{Path(path).stem}:{label}"
    return Dataset(read_parquet(path, name=name, class_names=class_names, label=label))


def _read_file(
    path: Path, called: str | None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    parquet: Any = optional_package("pyarrow.parquet", purpose=f"reading {path}")
    if not path.is_file():
        raise BadInput(f"there is no file {path}; check the path")
    try:
        with parquet.ParquetFile(path) as file:
            # Repeated values take next to no room in the file: rows and columns are counted.
            check_unpacked(path, 4 * file.metadata.num_rows * file.metadata.num_columns)
            table = file.read()
            table.validate(full=True)
    except BadInput:
        raise
    except Exception as error:  # pyarrow's errors have no common root but Exception
        raise BadInput(
            f"{path} cannot be read as a parquet file ({error}); download or write it again"
        ) from error
    columns = table.column_names
    if len(set(columns)) != len(columns):
        raise BadInput(f"{path} has two columns of the same name; rename one: {_listed(columns)}")
    label = columns[label_column(columns, where=str(path), called=called)]
    if table.num_rows == 0:
        raise BadInput(f"{path} has no rows")
    missing = table.column(label).null_count
    if missing:
        where = f"{path}, column {label!r}"
        raise BadInput(f"{where}: {missing} labels are missing; remove those rows")
    labels = np.asarray(table.column(label).to_pylist())
    if labels.ndim != 1 or labels.dtype.kind == "S":  # numpy would cut zeros off the end of bytes
        kind = table.schema.field(label).type
        raise BadInput(f"{path}, column {label!r}: labels of type {kind}; give numbers or text")
    names = _hub_names(table.schema.metadata, label)
    images = [column for column in _IMAGE_COLUMNS if column in columns]
    if len(images) > 1:
        raise BadInput(
            f"{path} has more than one image column. Found: {_listed(columns)}. Expected one "
            f"column named {' or '.join(_IMAGE_COLUMNS)}; rename it"
        )
    if images:
        column, where = table.column(images[0]), f"{path}, column {images[0]!r}"
        inputs = cached_images(
            path, count=table.num_rows, decode=lambda: _decode(column, where=where)
        )
    else:
        inputs = _numbers(table, [column for column in columns if column != label], path)
    return inputs, labels, names


def _hub_names(metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """Class names in the way the public hub stores them with a table; None if there are none."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    if isinstance(names, list) and names and all(isinstance(value, str) for value in names):
        return tuple(names)
    return None


def _decode(column: Any, *, where: str) -> np.ndarray:
    arrow: Any = optional_package("pyarrow", purpose="reading parquet")
    if arrow.types.is_struct(column.type):
        fields = [column.type.field(index).name for index in range(column.type.num_fields)]
        if "bytes" not in fields:
            raise BadInput(f"{where} has the fields {fields}; expected one named bytes")
        compute: Any = optional_package("pyarrow.compute", purpose="reading parquet")
        column = compute.struct_field(column, "bytes")
    if not (arrow.types.is_binary(column.type) or arrow.types.is_large_binary(column.type)):
        raise BadInput(f"{where} holds {column.type}; expected the bytes of encoded images")
    if column.null_count:
        raise BadInput(f"{where}: {column.null_count} images are missing; remove those rows")
    rows = ((f"{where}, row {row}", value.as_py()) for row, value in enumerate(column))
    return stack_images((label, decode_image(data, where=label)) for label, data in rows)


def _numbers(table: Any, columns: Sequence[str], path: Path) -> np.ndarray:
    arrow: Any = optional_package("pyarrow", purpose="reading parquet")
    kind = table.column(columns[0]).type
    is_list = arrow.types.is_list(kind) or arrow.types.is_fixed_size_list(kind)
    if len(columns) == 1 and is_list:
        return _lists(table.column(columns[0]), where=f"{path}, column {columns[0]!r}")
    arrays = []
    for name in columns:
        column = table.column(name)
        if column.null_count:
            raise BadInput(
                f"{path}: column {name!r} misses {column.null_count} values; fill or remove them"
            )
        arrays.append(np.asarray(column.to_numpy()))
        if arrays[-1].dtype.kind not in "iufb":
            raise BadInput(
                f"{path}: column {name!r} holds {column.type}, not numbers; remove it or turn it "
                "into numbers"
            )
    if all(array.dtype == np.uint8 for array in arrays):
        return np.stack(arrays, axis=1)
    # Numbers beyond float32 become infinite, which the check for finite inputs reports.
    with np.errstate(over="ignore"):
        return np.stack([array.astype(np.float32) for array in arrays], axis=1)


def _lists(column: Any, *, where: str) -> np.ndarray:
    arrow: Any = optional_package("pyarrow", purpose="reading parquet")
    compute: Any = optional_package("pyarrow.compute", purpose="reading parquet")
    lengths = compute.list_value_length(column)
    if column.null_count or len(lengths.unique()) != 1:
        raise BadInput(f"{where}: the lists must all have one length, and none may be missing")
    flat = compute.list_flatten(column)
    if flat.null_count or not (
        arrow.types.is_integer(flat.type) or arrow.types.is_floating(flat.type)
    ):
        raise BadInput(f"{where}: the lists must hold numbers and nothing else")
    values = np.asarray(flat.to_numpy())
    return values.reshape(len(column), -1)


def other_labels(path: Path, label: str) -> list[str]:
    """The inputs of a table with this column of labels that are called as such columns are."""
    if path.suffix.lower() == ".parquet":
        parquet: Any = optional_package("pyarrow.parquet", purpose=f"reading {path}")
        columns = parquet.read_schema(path).names
        columns = [] if set(columns) & set(_IMAGE_COLUMNS) else columns
    else:
        with _text_rows(path) as reader:
            columns = next(filter(None, reader), [])
    names = [str(column).strip() for column in columns]
    return [name for name in names if name != label and name.lower() in LABEL_COLUMNS]


@contextmanager
def _text_rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "") or "no columns"


def read_csv(
    path: str | Path, *, class_names: Sequence[str] | None = None, label: str | None = None
) -> Dataset:
    """A data set from a .csv or .tsv file with a header.

    The label column is that of :func:`read_parquet`; labels are whole numbers or text. All other
    columns are inputs and must be numbers.
    """
    path = Path(path)
    try:
        with _text_rows(path) as reader:
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as a table of text ({error})") from error
    (_, header), *body = rows or [(1, list[str]())]
    at = label_column(header, where=f"the header of {path}", called=label)
    if not body:
        raise BadInput(f"{path} has a header and no rows below it")
    inputs = np.empty((len(body), len(header) - 1), dtype=np.float32)
    labels = []
    for number, (line, row) in enumerate(body):
        if len(row) != len(header):
            raise BadInput(f"{path}, line {line} has {len(row)} cells, not {len(header)}")
        labels.append(row.pop(at).strip())
        try:
            inputs[number] = row
        except ValueError as error:
            raise BadInput(
                f"{path}, line {line}: {error}. Inputs must be numbers: turn texts into "
                "numbers, and fill or remove what is missing"
            ) from error
    values = np.array(labels) if class_names and labels[0] in class_names else _as_numbers(labels)
    missing = np.flatnonzero(np.isnan(values) if values.dtype.kind == "f" else values == "")
    if len(missing):
        raise BadInput(
            f"{path}: {len(missing)} labels are missing, the first in line {body[missing[0]][0]}. "
            "Leave such rows out, or give them a class with a name"
        )
    name = path.stem if label is None else f"{path.stem}:{label}"
    return Dataset(Examples.of((inputs, values), class_names=class_names, name=name))


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Labels as numbers where all of them are written as such, so that 1.5 is no class."""
    if all(label.isascii() and label.isdigit() and len(label) < 10 for label in labels):
        return np.array(labels, dtype=np.int64)
    try:
        numbers = np.array(labels, dtype=np.float64)
    except ValueError:
        return np.array(labels)
    return np.array(labels) if np.isinf(numbers).any() else numbers
