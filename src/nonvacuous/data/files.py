"""Reading and writing files safely: atomic writes, digests of files, npz without objects."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nonvacuous.errors import BadInput


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    A reader sees the old file or the whole new one, never half of it, even after a power cut:
    the bytes reach the disk (fsync) before the name does.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made with the usual permissions (tempfile would make it readable by its owner only), and with
    # a name of its own, so that two processes writing the same path do not meet.
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part"
    try:
        with open(temporary, "xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be synced; the rename itself is already atomic.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
