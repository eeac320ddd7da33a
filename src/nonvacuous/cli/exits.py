"""How a command ends: exit codes, and errors that say what to try next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from nonvacuous.errors import BadInput
from nonvacuous.files import meant

if TYPE_CHECKING:
    from nonvacuous.errors import Instead

_words: ContextVar[tuple[str, ...]] = ContextVar("words", default=())


@contextmanager
def started_with(tokens: Sequence[str]) -> Iterator[None]:
    """Remember the words for as long as the command runs."""
    token = _words.set(tuple(tokens))
    try:
        yield
    finally:
        _words.reset(token)


def again(changes: Instead = None, *, without: Sequence[str] = ()) -> str:
    """The same command once more with other flags: a value for each, None for a switch.

    Several values are a tuple, an empty one takes a flag away, and a command stands as it is.

    >>> with started_with(["certify", "--data", "my file.npz", "--device=cuda", "--force"]):
    ...     print(again({"--device": "cpu", "--resume": None, "--force": ""}))
    nonvacuous certify --data 'my file.npz' --device cpu --resume
    """
    if isinstance(changes, str):
        return changes
    left = {**(changes or {}), **dict.fromkeys(without, "")}
    kept: list[str] = []
    words = iter(_words.get())
    for word in words:
        flag, equals, _ = word.partition("=")
        if left.get(flag):
            if not equals:
                next(words, None)
            kept += [flag, *_values(left.pop(flag))]
        elif word not in left:
            kept.append(word)
    for flag, value in left.items():
        kept += [flag] if value is None else [flag, *_values(value)] if value else []
    return shlex.join(["nonvacuous", *kept])


def command(*words: object, **flags: object) -> str:
    """Another command to try; flags without a value are left out.

    >>> command("verify", Path("my run"), data="x.npz", data_dir=None, seed=0)
    "nonvacuous verify 'my run' --data x.npz --seed 0"
    """
    given = {name: value for name, value in flags.items() if value not in (None, "")}
    named = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items()]
    return shlex.join(["nonvacuous", *map(str, words), *chain.from_iterable(named)])


def shown_page(page: Path | None) -> str:
    """The command that opens a page."""
    return shlex.join(["python", "-m", "webbrowser", str(page)])


def _values(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else (str(value),)


DONE = 0
FAILED = 1
USAGE = 2
#: The certificate is worse than ``--max-risk``: a gate for continuous integration.
TOO_RISKY = 3
VERIFICATION_FAILED = 4
#: Nothing is wrong, but data, network or files are missing that would decide.
NOT_VERIFIED = 5
#: What shells report for a program stopped with Ctrl-C, and with the signal TERM.
INTERRUPTED = 130
TERMINATED = 143


class CommandError(BadInput):
    """What the command was given cannot be used; it may know the command to try next, or flags."""


class UsageError(CommandError):
    """The flags given do not make sense, alone or together."""


def not_finished(folder: Path) -> CommandError:
    """What is said of a run folder without its certificate."""
    return CommandError(
        f"{folder} has no certificate.json: its run is not finished. Start the same certify "
        "command again with --resume.",
        instead="nonvacuous certify --help",
    )


@contextmanager
def as_usage(prefix: str = "", *, instead: Instead = None) -> Iterator[None]:
    """Within this block, what is wrong with a value is wrong with the flag that gave it."""
    try:
        yield
    except UsageError:
        raise
    except BadInput as error:
        text = f"{'' if str(error).startswith('--') else prefix}{error}"
        raise UsageError(text, instead=instead or error.instead) from error


def trouble_of(error: OSError, *, writing: bool = False) -> str:
    """What the system says, with the file it says it about, and what to do if that is an output.

    >>> trouble_of(FileNotFoundError(2, "No such file or directory", "x.npz"))
    'x.npz: No such file or directory.'
    >>> trouble_of(PermissionError(13, "No access", "run/.certificate.json.7.0a1b.part"))
    'run/certificate.json: No access. Name a file or folder that you may write to with --out.'
    """
    what = error.strerror or str(error)
    if not error.filename:
        return f"{what}."
    path = Path(os.fsdecode(error.filename))
    file = meant(path)
    writing = writing or file != path or isinstance(error, FileExistsError | NotADirectoryError)
    command = next(iter(_words.get()), "")
    flag = {"monitor": "--state", "inspect": "--svg"}.get(command, "--out")
    remedy = f" Name a file or folder that you may write to with {flag}." if writing else ""
    return f"{file}: {what}.{remedy}"


class Stopped(KeyboardInterrupt):
    """The signal TERM, which schedulers and `kill` send before they use force."""
