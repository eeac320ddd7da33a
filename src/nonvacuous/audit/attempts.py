"""The memory of a folder of runs: which settings were certified on which examples.

Reporting the best of several certificates on the same examples is a search. It can only be charged
if somebody remembers how many there were: one line per attempt in ``attempts.jsonl``, which is
only ever appended to. What counts are the examples that were given, not the part of them that
enters the bound: another seed makes another split, and the best of several splits is a search too.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput

FILE_NAME = "attempts.jsonl"


@dataclass(frozen=True)
class Attempt:
    """One certificate.

    examples   digest of all examples that were given, in whatever order; empty in lines of older
               versions, which knew the bound examples only
    bound      content digest of the bound examples
    config     digest of the settings, with the seed: the same settings again (a resumed run) are
               the same attempt
    paid       the number of certificates that share the failure probability with it
    """

    examples: str
    bound: str
    config: str
    paid: int = 1

    def __post_init__(self) -> None:
        for name in ("examples", "bound", "config"):
            value = getattr(self, name)
            if not isinstance(value, str) or (not value and name != "examples"):
                raise BadInput(f"the {name} digest must be hexadecimal, got {value!r}.")
        if type(self.paid) is not int or self.paid < 1:
            raise BadInput(f"a certificate pays for a number of certificates, not {self.paid!r}.")

    def rivals(self, other: Attempt) -> bool:
        """Whether whoever sees both certificates could pick the better one."""
        return self.bound == other.bound or (
            bool(self.examples) and self.examples == other.examples
        )


def record_attempt(folder: str | Path, attempt: Attempt) -> None:
    """Append one line, durably, to the memory of the folder that holds the run folders.

    Settings that are recorded already are not written again, unless by an older version, without
    the digest of all examples, or with another number of certificates paid for.
    """
    path = Path(folder) / FILE_NAME
    if attempt in _entries(path):
        return
    # The line break in front ends a line that a crash may have left unfinished. One write of an
    # append-only descriptor keeps the lines of several processes apart.
    line = json.dumps(
        {
            "examples": attempt.examples,
            "bound": attempt.bound,
            "config": attempt.config,
            "paid": attempt.paid,
        }
    )
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


def earlier_attempts(folder: str | Path, attempt: Attempt) -> tuple[int, ...]:
    """What each certificate paid that other settings had on these examples before these ones.

    Settings that are in the file already are counted as of their first line, so that a run which
    is resumed later, after others, finds what it found at first. A certificate that was computed
    again for a larger number of them promises less, and counts as what it is now.
    """
    paid: dict[str, int] = {}
    for entry in _entries(Path(folder) / FILE_NAME):
        if entry.rivals(attempt):
            paid[entry.config] = max(entry.paid, paid.get(entry.config, 1))
    # In the order of their first lines.
    configs = list(paid)
    first = configs.index(attempt.config) if attempt.config in paid else len(configs)
    return tuple(paid[config] for config in configs[:first])


def _entries(path: Path) -> Iterator[Attempt]:
    """All attempts in their order; blank, torn and foreign lines are passed over."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"Cannot read {path}: {error.strerror}.") from error
    for line in content.split(b"\n"):
        try:
            entry: Any = json.loads(line)
            found = Attempt(
                entry.get("examples", ""), entry["bound"], entry["config"], entry.get("paid", 1)
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadInput):
            continue
        yield found
