"""Tables as text: one row per example, a header, numbers, and one column of labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.errors import BadInput

_LABEL_COLUMNS = ("label", "labels", "y", "target", "class")


def read_csv(path: str | Path, *, name: str | None = None) -> Dataset:
    """A data set from a .csv or .tsv file with a header.

    The label column is called label, labels, y, target or class, in capitals or not; labels are
    whole numbers or text. All other columns are inputs and must be numbers.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            mark = "\t" if path.suffix.lower() == ".tsv" else ","
            rows = [row for row in csv.reader(stream, delimiter=mark) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} cannot be read as a table of text ({error})") from error
    header, *body = rows or [[]]
    at = [i for i, column in enumerate(header) if column.strip().lower() in _LABEL_COLUMNS]
    if len(at) != 1 or len(header) < 2 or not body:
        raise BadInput(
            f"{path} needs a header with one column named {' or '.join(_LABEL_COLUMNS)}, other "
            f"columns and rows below it; its first row is {', '.join(header[:20])!r}"
        )
    inputs = np.empty((len(body), len(header) - 1), dtype=np.float32)
    labels = []
    for number, row in enumerate(body):
        if len(row) != len(header):
            raise BadInput(f"{path}, row {number + 2} has {len(row)} cells, not {len(header)}")
        labels.append(row.pop(at[0]).strip())
        try:
            inputs[number] = row
        except ValueError as error:
            raise BadInput(
                f"{path}, row {number + 2}: {error}. Inputs must be numbers: turn texts into "
                "numbers, and fill or remove what is missing"
            ) from error
    whole = all(label.isascii() and label.isdigit() and len(label) < 10 for label in labels)
    values = np.array(labels, dtype=np.int64 if whole else np.str_)
    return Dataset(Examples.of((inputs, values), name=name or path.stem))
