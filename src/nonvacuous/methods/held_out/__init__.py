"""The plain test on examples that the network never saw. No torch here."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from nonvacuous.certification.method import Method
from nonvacuous.kinds import Mode
from nonvacuous.settings import Flag, Switch


class HeldOut(Method):
    """Count the errors of a network on examples that it never saw."""

    mode: ClassVar[Mode] = "holdout"
    folder: ClassVar[str] = __name__
    trains: ClassVar[bool] = False

    unseen: Annotated[
        Switch,
        Flag(
            "For --mode holdout: declare that the network, and every choice about it, was fixed "
            "before anyone looked at these examples. Without it the certificate is conditional.",
            group="What is certified",
        ),
    ] = False

    @classmethod
    def checking(cls) -> Any:
        from nonvacuous.verification.checking import Checking

        return Checking()
