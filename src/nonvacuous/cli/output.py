"""Where output goes: results on stdout, narration and errors on stderr.

Names, paths and messages come out of files, and a control character in one of them could rewrite
the screen: everything that is written passes :func:`printable` or :func:`_escaped`, here.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from nonvacuous.cli.exits import DONE
from nonvacuous.report.wording import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

    from nonvacuous.certificate import Certificate


def _console(file: TextIO) -> Console:
    """A console on which only rich itself, not a text, moves the cursor or changes colors.

    Made when needed: a command that writes plain text or JSON does not wait for rich.
    """
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control is None and not segment.text.isprintable():
                    lines = segment.text.split("\n")
                    yield Segment("\n".join(map(printable, lines)), segment.style)
                else:
                    yield segment

    return SafeConsole(file=file, highlight=False, markup=False, emoji=False)


def result_console() -> Console:
    """Stdout. rich leaves color out when it is not a terminal or when NO_COLOR is set."""
    return _console(sys.stdout)


def narration_console() -> Console:
    """Stderr, for everything that is not the result."""
    return _console(sys.stderr)


def write_lines(*lines: str) -> None:
    """Results on stdout, each on one line whatever its names contain."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


def say(*lines: str) -> None:
    """The same on stderr, for everything that is not the result."""
    sys.stderr.writelines(f"{printable(line)}\n" for line in lines)


def write_paragraphs(*paragraphs: str) -> None:
    """Plain text on stdout, in lines that fit the terminal; a table comes as lines that do."""
    width = max(40, shutil.get_terminal_size().columns)
    for paragraph in paragraphs:
        for line in paragraph.split("\n"):
            sys.stdout.write((textwrap.fill(line, width) if len(line) > width else line) + "\n")


def plain_table(*headings: str, right: Container[int] = ()) -> Table:
    """A table without lines between its columns; those of numbers are set to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(printable(heading), justify="right" if number in right else "left")
    return table


def write_json(record: dict[str, Any]) -> None:
    """The whole result as one JSON object; floats are written exactly."""
    text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(_escaped(text) + "\n")


def answered(
    record: dict[str, Any],
    write_text: Callable[[dict[str, Any]], None],
    *,
    as_json: bool,
    next_command: str | None = None,
) -> int:
    """The result in one of its two forms, as text with the command to try next: a good end."""
    if as_json:
        write_json(record)
    else:
        write_text(record)
        if next_command is not None:
            write_next(next_command)
    return DONE


def write_certificate(certificate: Certificate, *, as_json: bool) -> None:
    """The four lines, or the very text of certificate.json."""
    text = _escaped(certificate.model_dump_json(indent=2)) if as_json else str(certificate)
    sys.stdout.write(text + "\n")


def write_error(message: str, *, next_command: str | None) -> None:
    """What went wrong, and the command to try next."""
    ended = message if message.endswith((".", "?", "!")) else f"{message}."
    _announce("Error: ", "bold red", ended)
    if next_command is not None:
        write_next(next_command)


def write_next(command: str) -> None:
    """The command that makes sense after this one."""
    _announce("Next:  ", "bold", command)


def _announce(word: str, style: str, text: str) -> None:
    from rich.text import Text

    narration_console().print(Text.assemble((word, style), printable(text)), soft_wrap=True)


def _escaped(text: str) -> str:
    """JSON with the same meaning, in which no character is one that a terminal acts on."""
    return re.sub(
        r"[^\n\x20-\x7e]",
        lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1],
        text,
    )
