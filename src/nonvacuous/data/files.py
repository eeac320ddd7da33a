"""Digests of files and of examples, and npz archives without objects."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically

#: A file may unpack to so many times its size, or to so many bytes, whichever is more.
_BOMB, _SMALL = 200, 2**27


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
    except Exception as error:  # damaged archives break zip and numpy in many ways
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
        archive = loaded.zip
        assert archive is not None  # it is open
        check_unpacked(path, sum(int(member.file_size) for member in archive.infolist()))
        for key in loaded.files:
            try:
                _check_header(archive, key)
                arrays[key] = loaded[key]
            except Exception as error:  # damaged archives break zip and numpy in many ways
                raise BadInput(
                    f"array {key!r} in {path} cannot be read ({error}). Arrays of Python objects "
                    "are refused because reading them can run code: save numbers as numbers and "
                    "text as numpy strings (array.astype(str)). A damaged file must be made again."
                ) from error
    return arrays


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a file that would unpack to so much that it can only be meant to fill the memory."""
    packed = path.stat().st_size
    if size > _SMALL and size > _BOMB * packed:
        raise BadInput(
            f"{path} would unpack to {size:,} bytes, more than {_BOMB} times its size; if that is "
            "right, write it uncompressed"
        )


def _check_header(archive: zipfile.ZipFile, key: str) -> None:
    """An array must not announce more numbers than follow: they would be made room for first."""
    name = key if key in archive.namelist() else f"{key}.npy"
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        layout = np.lib.format
        read = layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0
        shape, _, dtype = read(stream)
        if any(size < 0 for size in shape):
            raise ValueError(f"its shape is {shape}")
        announced, there = math.prod(shape) * dtype.itemsize, archive.getinfo(name).file_size
        if announced > there:
            raise ValueError(f"it announces {announced:,} bytes in a part of {there:,}")


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_CHUNK = 4096


def hash_examples(inputs: Tensor, labels: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Two sha256 per example, as 64 hexadecimal characters (numpy dtype ``S64``).

    Hashed are, in this order: the dtype and shape of one input as text, the bytes of the input
    (contiguous, little-endian, in its stored dtype), and the label as eight little-endian bytes.
    The second is without the label: equal ones mean equal inputs.
    """
    header = f"{str(inputs.dtype).removeprefix('torch.')} {tuple(inputs.shape[1:])}\n".encode()
    base, contents, alone = hashlib.sha256(header), [], []
    numbers = labels.detach().cpu().numpy().astype("<i8")
    for start in range(0, len(inputs), _CHUNK):
        part = inputs[start : start + _CHUNK].detach()
        array = part.to(device="cpu", memory_format=torch.contiguous_format).numpy()
        rows = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        for row, label in zip(rows, numbers[start : start + _CHUNK], strict=True):
            digest = base.copy()
            digest.update(row.tobytes())
            alone.append(digest.digest())
            digest.update(label.tobytes())
            contents.append(digest.digest())
    first, second = (b"".join(digests).hex().encode() for digests in (contents, alone))
    return np.frombuffer(first, dtype="S64"), np.frombuffer(second, dtype="S64")


def hash_of_hashes(hashes: np.ndarray) -> str:
    """One sha256 for a whole ordered set: of the examples' hashes, one after the other."""
    return hashlib.sha256(np.ascontiguousarray(hashes, dtype="S64").tobytes()).hexdigest()
