"""The memory of a folder of runs: which settings were certified on which bound examples.

Reporting the best of several certificates on the same examples is a search. It can only be charged
if somebody remembers how many there were: one line per attempt in ``attempts.jsonl``, which is
only ever appended to.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from nonvacuous.errors import BadInput

FILE_NAME = "attempts.jsonl"


def record_attempt(folder: str | Path, bound_digest: str, config_digest: str) -> None:
    """Append one line, durably. Settings that are recorded already are not written again.

    folder          the folder that holds the run folders
    bound_digest    content digest of the bound examples
    config_digest   digest of the settings: the same settings again (a resumed run) are the same
                    attempt
    """
    _check(bound_digest, config_digest)
    path = Path(folder) / FILE_NAME
    if any(entry == (bound_digest, config_digest) for entry in _entries(path)):
        return
    # The line break in front ends a line that a crash may have left unfinished. One write of an
    # append-only descriptor keeps the lines of several processes apart.
    line = json.dumps({"bound": bound_digest, "config": config_digest})
    content = f"\n{line}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise BadInput(
            f"Cannot write {path}, which remembers the certificates computed here: "
            f"{error.strerror}. Choose a folder that can be written to."
        ) from error
    try:
        if os.write(descriptor, content) != len(content):
            raise BadInput(f"Cannot write {path}: the disk is full. Free some space and go on.")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        parent = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def earlier_attempts(folder: str | Path, bound_digest: str, config_digest: str) -> int:
    """How many other settings were certified on these bound examples before these ones.

    Settings that are in the file already are counted as of their first line, so that a run which
    is resumed later, after others, finds the number it had at first.
    """
    _check(bound_digest, config_digest)
    earlier: set[str] = set()
    for bound, config in _entries(Path(folder) / FILE_NAME):
        if bound != bound_digest:
            continue
        if config == config_digest:
            break
        earlier.add(config)
    return len(earlier)


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    """The (bound, config) pairs in their order; blank, torn and foreign lines are passed over."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror}.") from error
    for line in content.split(b"\n"):
        try:
            entry = json.loads(line)
            pair = entry["bound"], entry["config"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if all(isinstance(part, str) for part in pair):
            yield pair


def _check(bound_digest: str, config_digest: str) -> None:
    for name, value in (("bound_digest", bound_digest), ("config_digest", config_digest)):
        if not isinstance(value, str) or not value:
            raise BadInput(f"{name} must be a digest in hexadecimal, got {value!r}.")
