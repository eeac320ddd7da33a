"""Writing files so that nobody ever reads half of one, or is led out of a folder by a link."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from nonvacuous.errors import BadInput

#: How the names of unfinished files end.
_PART = ".part"


#: What a file is to hold, or a function that writes it.
Content = str | bytes | Callable[[BinaryIO], object]


def write_atomically(path: Path, content: Content) -> None:
    """Fill a temporary file beside `path`, then rename it to `path`.

    A reader sees the old file or the whole new one, never half of it, even after a power cut:
    the bytes reach the disk (fsync) before the name does. A link at `path` is replaced, not
    followed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path, content) as temporary:
        os.replace(temporary, path)


def check_may_write(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, before anything was computed for it."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        why = "a folder that you may not write to" if there.is_dir() else "not a folder"
        raise BadInput(
            f"nothing can be kept in {folder}: {there} is {why}. Name a folder that you may write "
            "to with --out (folder=).",
            instead={"--out": "FOLDER"},
        )


def create_once(path: Path, content: bytes, *, durable: bool = False) -> bool:
    """Write a file that appears whole and only if there is none; False where there is one.

    ``durable``: it is to survive a power cut.
    """
    with (
        _beside(path, content, durable=durable) as temporary,
        contextlib.suppress(FileExistsError),
    ):
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:
            # No hard links here: a kill may leave half a file, but never two owners.
            with open_here(path, "xb") as stream:
                stream.write(content)
        return True
    return False


@contextlib.contextmanager
def _beside(path: Path, content: Content, *, durable: bool = True) -> Iterator[Path]:
    """A file with the content, which takes the name of `path` in this block or is gone after it."""
    # Made with the usual permissions (tempfile would make it readable by its owner only), and with
    # a name of its own, so that two processes writing the same path do not meet and nobody can
    # plant something there. The process in it tells a leftover from a file under way.
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}{_PART}"
    try:
        with open_here(temporary, "xb") as stream:
            if callable(content):
                content(cast(BinaryIO, stream))
            else:
                stream.write(content.encode() if isinstance(content, str) else content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if durable:
            sync_folder(path.parent)


def meant(path: Path) -> Path:
    """The file for whose sake a passing one was opened: the unfinished one, or its lock.

    >>> meant(Path("run/.table.md.23769.664750b2.part")), meant(Path("watch.json.lock")).name
    (PosixPath('run/table.md'), 'watch.json')
    """
    if path.suffix == _PART:
        return path.with_name(path.name[1:].rsplit(".", 3)[0])
    return path.with_suffix("") if path.suffix == ".lock" else path


def open_here(path: Path, mode: str, **settings: Any) -> IO[Any]:
    """``open`` for a file whose folder may be a stranger's: it follows no link, waits on no pipe.

    Appending through a planted link would change a file somewhere else.
    """
    try:
        return open(path, mode, opener=_without_links, **settings)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise BadInput(
            f"{path} is a link or a pipe, not a file: what is written there would end up elsewhere."
            " Remove it, or name another folder"
        ) from error


def inside(folder: Path, *names: str) -> Path:
    """The path of a file in a folder that may be a stranger's; one that leads elsewhere is refused.

    A link to another file of the same folder is none of these, and neither is a folder that is
    itself reached by a link.
    """
    path = folder.joinpath(*names)
    root, real = os.path.realpath(folder), os.path.realpath(path)
    if os.path.commonpath([root, real]) != root:
        raise BadInput(
            f"{path} is a link that leads out of the folder, to {real}: nothing outside of it is "
            "read or written. Put the file itself there"
        )
    if os.path.exists(real) and not (os.path.isfile(real) or os.path.isdir(real)):
        raise BadInput(f"{path} is neither a file nor a folder; remove it")
    return path


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files that a kill left; those of living processes are let alone."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(".") and entry.name.endswith((_PART, ".partial")):
                process = entry.name.removesuffix(_PART).split(".")[-2:-1]
                if not (process and process[0].isdecimal() and lives(int(process[0]))):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


def lives(process: int) -> bool:
    """Whether there is a process of that number on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it lives, and belongs to somebody else
    return True


def _without_links(path: str, flags: int) -> int:
    safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | safe, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
    return descriptor


def sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be synced; the rename itself is already atomic.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
