"""One reader per file format; each returns checked examples and runs nothing found in a file."""

from __future__ import annotations

from nonvacuous.data.readers.arrays import has_arrays, read_arrays
from nonvacuous.data.readers.folder import read_images
from nonvacuous.data.readers.idx import read_idx, read_idx_array
from nonvacuous.data.readers.npz import read_npz
from nonvacuous.data.readers.parquet import read_parquet

__all__ = [
    "has_arrays",
    "read_arrays",
    "read_idx",
    "read_idx_array",
    "read_images",
    "read_npz",
    "read_parquet",
]
