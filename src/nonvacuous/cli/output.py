"""Where output goes: results on stdout, narration and errors on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from nonvacuous.certificate import Certificate


def result_console() -> Console:
    """Stdout. rich leaves color out when it is not a terminal or when NO_COLOR is set."""
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def narration_console() -> Console:
    """Stderr, for everything that is not the result."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def write_json(record: dict[str, Any]) -> None:
    """The whole result as one JSON object; floats are written exactly."""
    sys.stdout.write(json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def write_certificate(certificate: Certificate, *, as_json: bool) -> None:
    """The four lines, or the very text of certificate.json."""
    text = certificate.model_dump_json(indent=2) if as_json else str(certificate)
    sys.stdout.write(text + "\n")


def write_error(message: str, *, next_command: str) -> None:
    """What went wrong, and the command to try next."""
    ended = message if message.endswith((".", "?", "!")) else f"{message}."
    text = Text.assemble(("Error: ", "bold red"), ended)
    narration_console().print(text, soft_wrap=True)
    write_next(next_command)


def write_next(command: str) -> None:
    """The command that makes sense after this one."""
    narration_console().print(Text.assemble(("Next:  ", "bold"), command), soft_wrap=True)
