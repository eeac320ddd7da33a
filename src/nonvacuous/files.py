"""Writing files so that nobody ever reads half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


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
