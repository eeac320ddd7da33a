"""Data: examples, their readers, checks and splits.

Everything here is fixed before any label is looked at: preprocessing is pixel/255 unless the caller
brings statistics, and splits are random, persisted and never stratified.
"""

from __future__ import annotations

from nonvacuous.data.examples import (
    Dataset,
    Examples,
    check_examples,
    count_repeats,
    find_duplicates,
)
from nonvacuous.data.load import NAMES, describe, digits, import_function, load
from nonvacuous.data.preprocessing import Standardize
from nonvacuous.data.readers.npz import read_npz
from nonvacuous.data.readers.pictures import cache_folder, read_idx, read_images
from nonvacuous.data.readers.tables import read_parquet
from nonvacuous.data.splits import Split, index_digest, make_split, split_examples

__all__ = [
    "NAMES",
    "Dataset",
    "Examples",
    "Split",
    "Standardize",
    "cache_folder",
    "check_examples",
    "count_repeats",
    "describe",
    "digits",
    "find_duplicates",
    "import_function",
    "index_digest",
    "load",
    "make_split",
    "read_idx",
    "read_images",
    "read_npz",
    "read_parquet",
    "split_examples",
]
