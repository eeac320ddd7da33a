"""Decoding images to arrays of 8-bit pixels, channels first; a cache keeps what was decoded.

Decoding 60,000 images takes far longer than reading them back. Cached files lie under
$NONVACUOUS_CACHE, or ~/.cache/nonvacuous. The name of a file is made of the digest of what it was
decoded from, so a changed source never meets an old cache. The cache is only ever a shortcut: when
it is damaged it is made again, when it cannot be written nothing happens.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nonvacuous.data.files import read_npz_arrays, sha256_of_file, write_npz
from nonvacuous.errors import BadInput

# Only formats that are decoded inside Pillow: its EPS reader starts another program, and a data
# file must never make anything run.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
)  # fmt: skip
_GRAY = ("L", "1")
_COLOR = ("RGB", "RGBA", "P", "PA", "LA", "CMYK", "YCbCr")


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
    stacked = np.empty((len(named), channels, *first.shape[1:]), dtype=np.uint8)
    for position, (_, image) in enumerate(named):
        stacked[position] = image  # one gray channel is repeated to three
    return stacked


def _size(image: np.ndarray) -> str:
    return f"{image.shape[2]} x {image.shape[1]}"


_LOGGER = logging.getLogger(__name__)

# Changes when the way images are decoded changes, so that old files are left aside.
_FORMAT = "images 1"


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
    images = _read(path, count=count)
    if images is None:
        images = decode()
        try:
            write_npz(path, {"images": images})
        except OSError as error:
            _LOGGER.warning("decoded images could not be kept in %s: %s", path.parent, error)
    return images


def _read(path: Path, *, count: int) -> np.ndarray | None:
    if not path.exists():
        return None
    try:
        # Reading an npz checks the checksum of every byte, so a damaged file is noticed.
        images = read_npz_arrays(path).get("images")
    except (BadInput, OSError) as error:
        _LOGGER.warning("the cached images are made again: %s", error)
        return None
    if images is None or images.dtype != np.uint8 or images.ndim != 4 or len(images) != count:
        _LOGGER.warning("the cached images in %s are not what they should be; made again", path)
        return None
    return images
