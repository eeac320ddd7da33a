"""Digests of files, and npz archives without objects."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write plain arrays to an npz file, atomically. Arrays of Python objects are refused."""
    for key, array in arrays.items():
        if array.dtype.hasobject:
            raise BadInput(
                f"array {key!r} for {path} holds Python objects; only plain arrays are written"
            )
    write_atomically(path, lambda stream: np.savez(stream, allow_pickle=False, **arrays))


def read_npz_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of an npz file. Nothing in the file can run code: objects are refused."""
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"there is no file {path}; check the path")
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(
            f"{path} cannot be read as an npz file ({error}); write it with "
            "numpy.savez(path, inputs=..., labels=...)"
        ) from error
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise BadInput(
            f"{path} holds a single array, not an npz archive; write it with "
            "numpy.savez(path, inputs=..., labels=...)"
        )
    arrays: dict[str, np.ndarray] = {}
    with loaded:
        for key in loaded.files:
            try:
                arrays[key] = loaded[key]
            except (
                ValueError,
                OSError,
                EOFError,
                MemoryError,
                zipfile.BadZipFile,
                zlib.error,
            ) as error:
                raise BadInput(
                    f"array {key!r} in {path} cannot be read ({error}). Arrays of Python objects "
                    "are refused because reading them can run code: save numbers as numbers and "
                    "text as numpy strings (array.astype(str)). A damaged file must be made again."
                ) from error
    return arrays


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
