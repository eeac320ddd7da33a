"""Every exception that nonvacuous raises on purpose.

A message says what is wrong, where, why it matters and what to do next.
"""

from __future__ import annotations

TYPE_CHECKING = False  # spares the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Instead = Mapping[str, str | tuple[str, ...] | None] | str | None


def nearest(
    name: object, names: Iterable[object], said: str = "{}", other: str = "", cutoff: float = 0.6
) -> str:
    """What is said of the one of the names that was probably meant; else the other words.

    >>> nearest("reszale", ["rescale", "report"], "; did you mean {}?"), nearest("x", [])
    ('; did you mean rescale?', '')
    """
    import difflib  # no good call waits for it

    close = difflib.get_close_matches(str(name), map(str, names), n=1, cutoff=cutoff)
    return said.format(close[0]) if close else other


class NonvacuousError(Exception):
    """The root: catch this to catch everything the library raises on purpose."""


class BadInput(NonvacuousError, ValueError):
    """An argument, a file or a data set is not what it must be.

    instead   flags with which the command might do: a value for each, several as a tuple, or None
              for a switch; or another command to try
    """

    def __init__(self, *message: object, instead: Instead = None) -> None:
        super().__init__(*message)
        self.instead = instead if isinstance(instead, str) else dict(instead or {})


class Unrecognized(BadInput):
    """A name, a path or a specification stands for nothing here: it was not meant like this."""


class Overspent(BadInput):
    """More failure probability was asked for than the confidence budget holds."""


class FolderTaken(BadInput):
    """The folder holds another run: it is neither overwritten nor gone on with unasked."""


class FolderBusy(FolderTaken):
    """Another process is computing in the folder at this moment."""


class Unsupported(NonvacuousError):
    """No theorem covers this: it will never be certified as it stands."""


class Refused(Unsupported):
    """The audit found an assumption of the theorem false, before anything was computed."""


class NotYetSupported(Unsupported):
    """A theorem covers this, but the library does not implement it."""


class WrongMode(NonvacuousError):
    """The network is in a mode in which its predictions are not those of one fixed function."""


class InvalidCertificate(NonvacuousError):
    """A certificate contradicts itself, its run folder or its data."""
