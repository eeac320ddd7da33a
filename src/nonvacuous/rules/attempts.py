"""The ledger of attempts: which bounds were computed on which examples, and what each has spent.

Reporting the best of several certificates on the same examples is a search. It can only be charged
if somebody remembers how many there were: one line per attempt in a file that is only ever appended
to. What counts are the examples that were given, not the part of them that enters the bound:
another seed makes another split, and the best of several splits is a search too.

An attempt is what came out, not what it was called: settings do not know that an activation
function, a Python number or the number of threads has changed. So two attempts are one only if
settings and outcome are equal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.files import sync_folder

FILE_NAME = "attempts.jsonl"
#: Data sets that differ by less than one part in so many may be the same in other clothes.
_LIKENESS = 100


@dataclass(frozen=True)
class Attempt:
    """One line: a bound that was computed, or begun so far that a number could be seen.

    examples   digest of all examples that were given, in whatever order; empty in lines of older
               versions, which knew the bound examples only
    bound      content digest of the bound examples
    config     digest of the settings, with the seed
    paid       the number of certificates that share the failure probability with it
    outcome    digest of what came out; empty in lines of older versions, and before the end
    begun      digest of what it began with; a line with this and no outcome waits for its end
    classes    examples of each class, largest first: all that is known of examples in disguise
    different  the user's words on why examples with the same labels are other data
    command    what computed it
    threshold  of a certificate by checkpoints: the gate that it declared, or "no gate"; empty in
               lines of older versions
    """

    examples: str
    bound: str
    config: str
    paid: int = 1
    outcome: str = ""
    begun: str = ""
    classes: tuple[int, ...] = ()
    different: str = ""
    command: str = "certify"
    threshold: str = ""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("paid", "classes"):
                continue
            if not isinstance(value, str) or (not value and name in ("bound", "config")):
                raise BadInput(f"the {name} digest must be hexadecimal, got {value!r}.")
        if type(self.paid) is not int or self.paid < 1:
            raise BadInput(f"a certificate pays for a number of certificates, not {self.paid!r}.")
        if any(type(count) is not int or count < 0 for count in self.classes):
            raise BadInput(f"classes have whole numbers of examples, not {self.classes!r}.")

    def same_labels(self, other: Attempt) -> bool:
        """Whether the examples could be the same in other clothes: scaled, reordered, renamed.

        Inputs can be dressed in endless ways, so they say nothing. Labels can be renamed and put
        in another order, which leaves the sizes of the classes; they agree up to 1 % of all
        examples, and one example.
        """
        if not self.classes or not other.classes:
            return False
        allowed = max(1, max(sum(self.classes), sum(other.classes)) // _LIKENESS)
        pairs = zip_longest(self.classes, other.classes, fillvalue=0)
        return sum(abs(one - another) for one, another in pairs) <= allowed


@dataclass(frozen=True)
class Standing:
    """What a ledger says about one attempt, as of its place among the others.

    earlier   for each attempt on the same examples before it, the fewest certificates that it ever
              shared the failure probability with: spent confidence stays spent
    alike     the same for examples that have the same labels and may be the same in disguise
    declared  words by which examples with the same labels are said to be different data; such
              attempts are not counted
    issued    the fewest certificates that this attempt itself ever shared with; None if unknown
    thresholds
              of the earlier ones by checkpoints: what each declared as its gate
    """

    earlier: tuple[int, ...] = ()
    alike: tuple[int, ...] = ()
    declared: tuple[str, ...] = ()
    issued: int | None = None
    thresholds: tuple[str, ...] = ()

    def shares(self, paid: int) -> Fraction:
        """How often all of them together may fail, in units of one failure probability."""
        own = Fraction(1, min(paid, self.issued or paid))
        return sum((Fraction(1, others) for others in (*self.earlier, *self.alike)), own)


def ledger_beside(run_folder: str | Path) -> Path:
    """The ledger of a run without a named one: in the folder that holds the run folders."""
    return Path(run_folder).resolve().parent / FILE_NAME


def read_attempts(ledger: str | Path) -> tuple[Attempt, ...]:
    """All lines in their order; blank, torn and foreign ones are passed over, no file is empty."""
    path = Path(ledger)
    if path.exists() and not path.is_file():
        raise BadInput(f"The ledger {path} is no file that keeps what is written; name another.")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise BadInput(f"Cannot read the ledger {path}: {error.strerror}.") from error
    lines = (_parsed(line) for line in content.split(b"\n") if line)
    return tuple(attempt for attempt in lines if attempt is not None)


def record_attempt(ledger: str | Path, attempt: Attempt) -> Standing:
    """Append one line, durably, and say where the attempt stands.

    First written, then read: of two processes at the same moment one finds the other's line before
    its own. A line that is there already is not written again, nor the beginning of an attempt
    that is known.
    """
    path = Path(ledger)
    entries = read_attempts(path)
    begins = bool(attempt.begun) and not attempt.outcome
    # A beginning that is known already, for as many certificates or fewer, is not news.
    known = attempt in entries or any(
        begins and _beginning(entry) == _beginning(attempt) and entry.paid <= attempt.paid
        for entry in entries
    )
    if not known:
        _append(path, attempt)
        entries = read_attempts(path)
    return standing(entries, attempt)


def standing(entries: Sequence[Attempt], attempt: Attempt) -> Standing:
    """Where an attempt stands among the lines of a ledger; after all of them if it is not there.

    It counts as of the line in which it took its largest share, so that a run which is resumed
    later finds what it found at first, and one that takes more pays for all that came between.
    """
    lines = list(entries) if attempt in entries else [*entries, attempt]
    attempts = _attempts(lines)
    number = lines.index(attempt)
    own = next(each for each in attempts if any(line == number for line, _ in each.issues))
    issued = min(paid for _, paid in own.issues)
    here = next(line for line, paid in own.issues if paid == issued)
    earlier, alike = list[int](), list[int]()
    declared, thresholds = [], []
    for other in attempts:
        paid = min((paid for line, paid in other.issues if line < here), default=None)
        if other is own or paid is None:
            continue
        entry = other.entry
        same = entry.examples == attempt.examples and bool(attempt.examples)
        same = same or entry.bound == attempt.bound  # at least the same bound examples
        said = "" if same else attempt.different or entry.different
        if not same and not entry.same_labels(attempt):
            continue
        if said:
            declared.append(said)
            continue
        (earlier if same else alike).append(paid)
        thresholds += [entry.threshold] if entry.threshold else []
    words, gates = (tuple(dict.fromkeys(each)) for each in (declared, thresholds))
    return Standing(tuple(earlier), tuple(alike), words, issued, gates)


@dataclass(eq=False)
class _Known:
    """One attempt, from all of its lines: the number of each line, and what it was issued for."""

    entry: Attempt
    outcome: str
    issues: list[tuple[int, int]] = field(default_factory=list)


def _attempts(entries: Sequence[Attempt]) -> list[_Known]:
    """Lines that belong together, in the order of their first ones."""
    attempts: list[_Known] = []
    by_outcome: dict[tuple[str, ...], _Known] = {}
    by_beginning: dict[tuple[str, ...], _Known] = {}
    for number, line in enumerate(entries):
        ends, begins = (line.bound, line.config, line.outcome), _beginning(line)
        known = by_outcome.get(ends) if line.outcome else by_beginning.get(begins)
        if known is None and line.outcome and line.begun:
            # The first end of what was begun; another end of the same is another attempt.
            waiting = by_beginning.get(begins)
            known = waiting if waiting is not None and not waiting.outcome else None
        if known is None:
            known = _Known(line, line.outcome)
            attempts.append(known)
        if line.outcome:
            known.outcome = line.outcome
            by_outcome.setdefault(ends, known)
        if line.begun:
            by_beginning.setdefault(begins, known)
        known.issues.append((number, line.paid))
    return attempts


def _beginning(line: Attempt) -> tuple[str, ...]:
    return (line.bound, line.config, line.begun)


def _append(path: Path, attempt: Attempt) -> None:
    usual = {each.name: each.default for each in fields(attempt) if each.name != "paid"}
    record = {k: v for k, v in vars(attempt).items() if k not in usual or v != usual[k]}
    # The line break in front ends a line that a crash may have left unfinished. One write of an
    # append-only descriptor keeps the lines of several processes apart.
    content = f"\n{json.dumps(record)}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise BadInput(
            f"Cannot write {path}, which remembers the certificates computed here: "
            f"{error.strerror}. Choose a ledger, or a folder, that can be written to."
        ) from error
    try:
        if os.write(descriptor, content) != len(content):
            raise BadInput(f"Cannot write {path}: the disk is full. Free some space and go on.")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def _parsed(line: bytes) -> Attempt | None:
    try:
        entry: Any = json.loads(line)
        known = {each.name: entry[each.name] for each in fields(Attempt) if each.name in entry}
        return Attempt(**{"examples": "", **known, "classes": tuple(entry.get("classes", ()))})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadInput):
        return None
