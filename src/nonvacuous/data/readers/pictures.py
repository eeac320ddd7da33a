"""Images: the IDX format of MNIST and its relatives, a folder with one folder per class; decoding.

Decoding 60,000 images takes far longer than reading them back. Cached files lie under
$NONVACUOUS_CACHE, or ~/.cache/nonvacuous. The name of a file is made of the digest of what it was
decoded from, so a changed source never meets an old cache. The cache is only ever a shortcut: when
it is damaged it is made again, when it cannot be written nothing happens.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import logging
import math
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nonvacuous.data.convert import as_inputs, as_labels
from nonvacuous.data.examples import Examples
from nonvacuous.data.files import read_npz_arrays, sha256_of_file, write_npz
from nonvacuous.errors import BadInput

_LOGGER = logging.getLogger(__name__)

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 24
# Only formats that are decoded inside Pillow: its EPS reader starts another program, and a data
# file must never make anything run.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
)  # fmt: skip
_GRAY = ("L", "1")
_COLOR = ("RGB", "RGBA", "P", "PA", "LA", "CMYK", "YCbCr")
# Changes when the way images are decoded changes, so that old files are left aside.
_FORMAT = "images 1"


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


def optional_package(name: str, *, purpose: str) -> ModuleType:
    """Import a package of the `data` extra, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        shown = {"PIL": "pillow"}.get(package, package)
        raise BadInput(
            f"{purpose} needs the package {shown}, which is not installed; "
            "run: pip install nonvacuous[data]"
        ) from error


def decode_image(source: bytes | Path, *, where: str) -> np.ndarray:
    """One image as uint8 (channels, height, width): one channel when it is gray, three otherwise.

    Transparency is dropped. Images of more than 8 bits per channel are refused, because cutting
    them down would be a choice that belongs to the user.
    """
    pillow: Any = optional_package("PIL.Image", purpose="reading images")
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with warnings.catch_warnings():
            # Pillow warns about images so large that they may be an attack; treat that as an error.
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(stream, formats=FORMATS) as image:
                if image.mode not in _GRAY + _COLOR:
                    raise BadInput(
                        f"{where}: the image has mode {image.mode}, not 8 bits per channel; "
                        "convert it to 8-bit gray or RGB"
                    )
                pixels = np.asarray(image.convert("L" if image.mode in _GRAY else "RGB"))
    except BadInput:
        raise
    except Exception as error:  # decoders raise many kinds, from SyntaxError to struct.error
        raise BadInput(
            f"{where}: the image cannot be read ({error}); it is damaged or not one of "
            f"{', '.join(FORMATS)}. Replace or remove it"
        ) from error
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def stack_images(images: Iterable[tuple[str, np.ndarray]]) -> np.ndarray:
    """Named images as one array (examples, channels, height, width); gray ones join color ones."""
    named = list(images)
    if not named:
        raise BadInput("there are no images")
    first_name, first = named[0]
    for name, image in named:
        if image.shape[1:] != first.shape[1:]:
            raise BadInput(
                f"images differ in size: {first_name} is {_size(first)} and {name} is "
                f"{_size(image)}; bring all images to one size first"
            )
    channels = max(image.shape[0] for _, image in named)
    shape = channels, *first.shape[1:]  # one gray channel is repeated to three
    return np.stack([np.broadcast_to(image, shape) for _, image in named])


def _size(image: np.ndarray) -> str:
    return f"{image.shape[2]} x {image.shape[1]}"


def cache_folder() -> Path:
    """Where decoded data is kept: $NONVACUOUS_CACHE, or ~/.cache/nonvacuous."""
    chosen = os.environ.get("NONVACUOUS_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "nonvacuous"


def cached_images(source: Path, *, count: int, decode: Callable[[], np.ndarray]) -> np.ndarray:
    """The `count` decoded images of a file: from the cache, or by `decode` and then kept."""
    key = hashlib.sha256(
        f"{_FORMAT} {source.stat().st_size} {sha256_of_file(source)}".encode()
    ).hexdigest()
    path = cache_folder() / f"images-{key}.npz"
    if path.exists():
        try:
            # Reading an npz checks the checksum of every byte, so a damaged file is noticed.
            images = read_npz_arrays(path)["images"]
            if images.dtype == np.uint8 and images.ndim == 4 and len(images) == count:
                return images
            _LOGGER.warning("the cached images in %s are not what they should be; made again", path)
        except (BadInput, OSError, KeyError) as error:
            _LOGGER.warning("the cached images are made again: %s", error)
    images = decode()
    try:
        write_npz(path, {"images": images})
    except OSError as error:
        _LOGGER.warning("decoded images could not be kept in %s: %s", path.parent, error)
    return images
