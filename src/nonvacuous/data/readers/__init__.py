"""One reader per file format; each returns checked examples and runs nothing found in a file."""

from __future__ import annotations

from collections.abc import Callable

from nonvacuous.data.examples import Dataset
from nonvacuous.data.readers.npz import read_npz, read_pt
from nonvacuous.data.readers.tables import read_csv, read_parquet

#: The reader of each kind of file, by the end of its name. To add one, enter it here.
FILE_READERS: dict[str, Callable[..., Dataset]] = {
    ".npz": read_npz,
    ".parquet": lambda file, class_names=None: Dataset(read_parquet(file, class_names=class_names)),
    ".csv": read_csv,
    ".tsv": read_csv,
    ".pt": read_pt,
}
