"""How a command ends: exit codes, and errors that say what to try next."""

from __future__ import annotations

from nonvacuous.errors import BadInput, NonvacuousError, Unrecognized

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
    """What the command was given cannot be used; it knows the command to try next."""

    def __init__(self, message: str, *, next_command: str | None = None) -> None:
        super().__init__(message)
        self.next_command = next_command


class UsageError(CommandError):
    """The flags given do not make sense, alone or together."""


def exit_code(error: NonvacuousError) -> int:
    """Usage where the value of a flag cannot be meant, failure where its contents are at fault.

    A name that nothing has, a specification that cannot be read, a file that is not there: these
    are found before any work is announced. What goes wrong with something that is there, a file
    with bad numbers or a function that raises, is a failure.
    """
    return USAGE if isinstance(error, (UsageError, Unrecognized)) else FAILED


def passed_on(error: BadInput, *, flag: str = "", next_command: str | None = None) -> CommandError:
    """The library's error as the command's: the same exit code, with the flag and what to try."""
    text = f"{flag}: {error}" if flag else str(error)
    kind = UsageError if isinstance(error, Unrecognized) else CommandError
    return kind(text, next_command=next_command)


def help_of(command: str | None) -> str:
    return "nonvacuous --help" if command is None else f"nonvacuous {command} --help"


def next_step(error: NonvacuousError, command: str | None) -> str:
    """The command to try after ``error``; one that knows better carries its own."""
    return getattr(error, "next_command", None) or help_of(command)


def trouble_of(error: OSError) -> str:
    """What the system says, with the file it says it about.

    >>> trouble_of(FileNotFoundError(2, "No such file or directory", "x.npz"))
    'x.npz: No such file or directory.'
    """
    what = error.strerror or str(error)
    return f"{error.filename}: {what}." if error.filename else f"{what}."
