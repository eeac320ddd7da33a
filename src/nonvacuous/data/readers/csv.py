"""Tables as text: one row per example, a header, numbers, and one column of labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.data.torch_datasets import label_column
from nonvacuous.errors import BadInput


def read_csv(
    path: str | Path, *, name: str | None = None, class_names: Sequence[str] | None = None
) -> Dataset:
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
    at = label_column(header, where=f"the header of {path}")
    if not body:
        raise BadInput(f"{path} has a header and no rows below it")
    inputs = np.empty((len(body), len(header) - 1), dtype=np.float32)
    labels = []
    for number, row in enumerate(body):
        if len(row) != len(header):
            raise BadInput(f"{path}, row {number + 2} has {len(row)} cells, not {len(header)}")
        labels.append(row.pop(at).strip())
        try:
            inputs[number] = row
        except ValueError as error:
            raise BadInput(
                f"{path}, row {number + 2}: {error}. Inputs must be numbers: turn texts into "
                "numbers, and fill or remove what is missing"
            ) from error
    values = np.array(labels) if class_names and labels[0] in class_names else _as_numbers(labels)
    return Dataset(Examples.of((inputs, values), class_names=class_names, name=name or path.stem))


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Labels as numbers where all of them are written as such, so that 1.5 is no class."""
    if all(label.isascii() and label.isdigit() and len(label) < 10 for label in labels):
        return np.array(labels, dtype=np.int64)
    try:
        numbers = np.array(labels, dtype=np.float64)
    except ValueError:
        return np.array(labels)
    return numbers if np.isfinite(numbers).all() else np.array(labels)
