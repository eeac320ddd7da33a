"""One folder, one run: who may compute into a folder, and with which settings.

Run folders, studies and reproductions claim their folders here. :func:`own_folder` keeps everybody
else out while a run computes; :func:`claim_folder` writes down what is computed there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from nonvacuous.errors import FolderBusy, FolderTaken, NonvacuousError
from nonvacuous.files import inside, remove_leftovers, write_atomically
from nonvacuous.locks import Claim, Lock, is_mine, owner

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Record:
    """The file in a folder that says with which settings it is computed.

    kind      what is computed with them, for error messages
    before    other files that a run writes before it computes anything
    """

    name: str
    write: Callable[[Mapping[str, Any]], str]
    read: Callable[[str], Mapping[str, Any]]
    kind: str = "reproduction"
    before: tuple[str, ...] = ()


def _to_json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


SETTINGS = Record("settings.json", _to_json, json.loads)


@contextlib.contextmanager
def own_folder(folder: Path, record: Record = SETTINGS) -> Iterator[None]:
    """Nobody else computes in the folder inside this block; what a kill left there is removed.

    Whoever refuses inside before anything was computed leaves no claim: otherwise the corrected
    call would find the folder taken by a run that never was. A thread that owns the folder already
    (a cell of a sweep that is itself a run) goes on owning it.
    """
    mine, made = is_mine(folder), [p for p in (folder, folder.parent) if not p.is_dir()]
    lock = None if mine else Lock.take(folder, Claim(secrets.token_hex(8)))
    if lock is None and not mine:
        holder = owner(folder) or {}
        raise FolderBusy(
            f"another process ({holder.get('pid', 'unknown')} on {holder.get('host', 'unknown')}) "
            f"is computing in {folder} at this moment. Wait until it has ended, or name another "
            "folder"
        )
    try:
        with lock or contextlib.nullcontext(), _given_back_if_refused(folder, record):
            if not mine:
                remove_leftovers(folder)
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty: it was used
            for path in made:
                path.rmdir()


def in_own_folder(record: Record = SETTINGS) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A function with a ``folder`` owns it while it computes, and claims none that it refuses."""

    def guard(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def guarded(*arguments: _P.args, **settings: _P.kwargs) -> _T:
            given: Any = settings.get("folder")
            folder = getattr(given, "folder", given)
            if not isinstance(folder, str | Path):
                return function(*arguments, **settings)
            with own_folder(Path(folder), record):
                return function(*arguments, **settings)

        return guarded

    return guard


def claim_folder(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    results: Sequence[str],
    resume: bool,
    force: bool,
    may_change: Collection[str] = (),
    record: Record = SETTINGS,
) -> None:
    """Write the settings into the folder, or find the same ones there.

    results      patterns of the files that were computed with the settings; with ``force`` they go
    may_change   settings that may differ from one call to the next
    """
    text = record.write(settings)
    path = inside(folder, record.name)
    known = path.is_file()
    ways = "go on with it (resume), overwrite it (force), or name another folder"
    if known and not force:
        if not resume:
            raise FolderTaken(f"{folder} holds a {record.kind} already: {ways}")
        changed = [name for name in _changed(path, text, record) if name not in may_change]
        if changed:
            raise FolderTaken(
                f"{folder} holds a {record.kind} with other settings ({', '.join(changed)}); "
                f"resume it with the settings in its {record.name}, name another folder, or "
                "overwrite it (force)"
            )
    old = [file for pattern in results for file in folder.glob(pattern)]
    if old and not known and not force:
        raise FolderTaken(
            f"{folder} holds results, such as {old[0].name}, but not the settings they were "
            "computed with; overwrite them (force), or name another folder"
        )
    if force:
        for file in old:
            file.unlink()
    if force or not known or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """A record as JSON, whole or not at all."""
    write_atomically(path, _to_json(record))


def _changed(path: Path, text: str, record: Record) -> list[str]:
    """The settings that differ, as both will be read back: lists, not tuples."""
    now = record.read(text)
    try:
        stored = record.read(path.read_text(encoding="utf-8"))
        if not isinstance(stored, Mapping):
            raise ValueError("it holds no settings")
    except (ValueError, RecursionError) as error:
        raise FolderTaken(
            f"{path} cannot be read ({error}), so nobody can say what was computed here; name "
            "another folder"
        ) from error
    return sorted(key for key in now.keys() | stored.keys() if now.get(key) != stored.get(key))


@contextlib.contextmanager
def _given_back_if_refused(folder: Path, record: Record) -> Iterator[None]:
    before = _files(folder)
    try:
        yield
    except NonvacuousError:
        after = _files(folder)
        new = {name for name in after if before.get(name) != after[name]}
        # Where another run was overwritten, everything that is left is this one's.
        own = after.keys() if record.name in before else new
        begun = any((folder / name).stat().st_size for name in own if name.endswith(".jsonl"))
        if record.name in new and own <= {record.name, *record.before} and not begun:
            for name in own:
                (folder / name).unlink()
        raise


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """What is in a folder, told apart from what takes its name later."""
    entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats}
