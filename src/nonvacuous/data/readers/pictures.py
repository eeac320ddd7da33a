"""Images: the IDX format of MNIST and its relatives, or a folder with one folder per class."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nonvacuous.data.convert import as_inputs, as_labels
from nonvacuous.data.examples import Examples
from nonvacuous.data.images import SUFFIXES, decode_image, stack_images
from nonvacuous.errors import BadInput

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 24


def read_idx_array(path: str | Path) -> np.ndarray:
    """The array in one IDX file."""
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"there is no file {path}; check the path")
    with open(path, "rb") as raw:
        compressed = raw.read(2) == _GZIP_MAGIC
    try:
        with gzip.open(path, "rb") if compressed else open(path, "rb") as stream:
            header = stream.read(4)
            if len(header) < 4 or header[:2] != b"\0\0" or header[2] not in _TYPES or not header[3]:
                raise BadInput(
                    f"{path} is not an IDX file: it starts with {header.hex()}; expected 0000, a "
                    "type from 08 to 0e and the number of dimensions"
                )
            sizes = stream.read(4 * header[3])
            if len(sizes) < 4 * header[3]:
                raise BadInput(f"{path} ends within its header; download it again")
            shape = struct.unpack(f">{header[3]}I", sizes)
            dtype = np.dtype(_TYPES[header[2]])
            expected = math.prod(shape) * dtype.itemsize
            # One byte more than announced, to notice a file that is too long.
            body = _read_at_most(stream, expected + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} cannot be unpacked ({error}); download it again") from error
    if len(body) != expected:
        length = f"{len(body)}" if len(body) < expected else f"more than {expected}"
        raise BadInput(
            f"{path}: the header announces an array of shape {shape}, {expected} bytes, but the "
            f"file holds {length}; download it again"
        )
    return np.frombuffer(body, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _read_at_most(stream: io.BufferedIOBase, limit: int) -> bytes:
    # In pieces: memory then follows what the file holds, and a false header cannot ask for it all.
    pieces = []
    while limit > 0 and (piece := stream.read(min(limit, _PIECE))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def read_idx(
    images: str | Path,
    labels: str | Path,
    *,
    name: str = "idx",
    class_names: Sequence[str] | None = None,
) -> Examples:
    """Examples from a pair of IDX files, images and labels."""
    pixels, classes = read_idx_array(images), read_idx_array(labels)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    inputs, steps = as_inputs(pixels, where=f"{name} ({images})")
    codes, names = as_labels(classes, where=f"{name} ({labels})", class_names=class_names)
    if len(inputs) != len(codes):
        raise BadInput(
            f"{name}: {images} holds {len(inputs)} images but {labels} holds {len(codes)} labels; "
            "the two files do not belong together"
        )
    return Examples(inputs, codes, names, name, steps)


# Written by file managers into every folder they show.
_CLUTTER = ("thumbs.db", "desktop.ini")


def read_images(
    folder: str | Path, *, name: str | None = None, class_names: Sequence[str] | None = None
) -> Examples:
    """Examples from folder/class name/image files; classes in sorted order of their names.

    All images must have one size. If some are gray and some in color, all become color. Hidden
    files are left aside; any other file that is not an image is an error, so that nothing is
    dropped unnoticed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}; check the path")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not _hidden(path))
    if not classes:
        raise BadInput(
            f"{folder} has no folders in it; expected one folder of images per class, such as "
            f"{folder.name}/cat/1.png and {folder.name}/dog/1.png"
        )
    names = tuple(class_names) if class_names is not None else tuple(classes)
    unknown = sorted(set(classes) - set(names))
    if unknown:
        raise BadInput(
            f"{folder} has a folder {unknown[0]!r} that is none of the classes of the training "
            "data; rename or remove it"
        )
    images: list[tuple[str, np.ndarray]] = []
    labels: list[int] = []
    for class_name in classes:
        files = _image_files(folder / class_name)
        if not files:
            raise BadInput(f"{folder / class_name} has no images; add some or remove the folder")
        for path in files:
            images.append((str(path), decode_image(path, where=str(path))))
            labels.append(names.index(class_name))
    return Examples.of(
        (stack_images(images), np.array(labels)), class_names=names, name=name or folder.name
    )


def _image_files(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if not _hidden(path))
    for path in files:
        if path.is_dir():
            raise BadInput(f"{path} is a folder inside a class; put images directly into {folder}")
        if path.suffix.lower() not in SUFFIXES:
            raise BadInput(
                f"{path} is not an image file this reader knows ({', '.join(SUFFIXES)}); remove it"
            )
    return files


def _hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in _CLUTTER
