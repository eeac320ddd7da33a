"""A cache of decoded images: decoding 60,000 of them takes far longer than reading them back.

Files lie under $NONVACUOUS_CACHE, or ~/.cache/nonvacuous. The name of a file is made of the digest
of what it was decoded from, so a changed source never meets an old cache. The cache is only ever a
shortcut: when it is damaged it is made again, when it cannot be written nothing happens.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nonvacuous.data.files import read_npz_arrays, sha256_of_file, write_npz
from nonvacuous.errors import BadInput

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
