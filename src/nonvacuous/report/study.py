"""The page of a study: an answer first, then its pictures and tables, in one file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from rich.console import Console
from rich.table import Table as Grid

from nonvacuous import __version__
from nonvacuous.errors import BadInput
from nonvacuous.report import html

#: Entries with more letters than this are sentences; on a narrow screen, entries with no more
#: than this, heading included, stand two by two.
_SENTENCE, _BRIEF = 40, 20
#: More columns than this are set smaller.
_MANY = 8


def or_dash(value: float | None, form: str = "") -> str:
    """An entry of a table: the number as ``form`` writes it, or a dash where there is none.

    >>> or_dash(0.25, ".1%"), or_dash(None, ".1%")
    ('25.0%', '-')
    """
    return "-" if value is None else format(value, form)


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers. ``numeric`` says which columns are numbers, set to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    numeric: tuple[bool, ...] | None = None

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[str, str]],
        caption: str = "",
        words: Collection[str] | None = None,
    ) -> Table:
        """One row at least, entries under their headings; ``words``: columns without numbers."""
        every = tuple(rows)
        headings = tuple(every[0])
        numeric = None if words is None else tuple(heading not in words for heading in headings)
        return cls(headings, tuple(tuple(row.values()) for row in every), caption, numeric)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise BadInput(
                    f"a table of {len(self.headings)} columns has a row of {len(row)}: {row}"
                )

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers: as told, else whether every entry starts like one."""
        if self.numeric is not None:
            return self.numeric[column]
        entries = [row[column] for row in self.rows if row[column] not in ("", "-")]
        return column > 0 and all(entry.lstrip("+-<>≤≥~± ")[:1].isdigit() for entry in entries)

    def print(self, console: Console) -> None:
        """Write it on a terminal, the caption below."""
        grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        for column, heading in enumerate(self.headings):
            if not self.is_numeric(column):
                grid.add_column(heading, overflow="fold")
                continue
            # A heading may be broken into lines, a number may not.
            longest = max((len(row[column]) for row in self.rows), default=0)
            grid.add_column(heading, justify="right", min_width=longest)
        for row in self.rows:
            grid.add_row(*row)
        console.print(grid)
        if self.caption:
            console.print(self.caption, soft_wrap=True)

    def is_long(self, column: int) -> bool:
        """Whether a column holds sentences, which need room."""
        return any(len(row[column]) > _SENTENCE for row in self.rows)

    @property
    def shape(self) -> str:
        """What a narrow screen makes of it: two columns stay side by side, more become cards."""
        if len(self.headings) < 3:
            return "pair"
        brief = all(
            len(heading) + len(entry) <= _BRIEF
            for row in self.rows
            for heading, entry in zip(self.headings[1:], row[1:], strict=True)
        )
        many = len(self.headings) > _MANY
        return f"cards{' brief' if brief else ''}{' many' if many else ''}"


@dataclass(frozen=True)
class Figure:
    """A picture made by :mod:`nonvacuous.report.plots` or :mod:`nonvacuous.report.svg`."""

    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    #: What the tables are called where only whoever asks for them sees them; printed always.
    folded: str = ""

    @classmethod
    def of(cls, heading: str, *content: str | Figure | Table, folded: str = "") -> Section:
        """What it holds, in any order, sorted by kind; empty paragraphs are left out."""
        paragraphs = tuple(part for part in content if part and isinstance(part, str))
        figures = tuple(part for part in content if isinstance(part, Figure))
        tables = tuple(part for part in content if isinstance(part, Table))
        return cls(heading, paragraphs, figures, tables, folded)


@dataclass(frozen=True)
class StudyPage:
    """What a page says.

    title     which study, in the corner; kind  the word before it
    question  what was asked, a few words above the answer
    lead      the answer, in one sentence
    badges    what to know at a glance
    footer    the command, the seed and the versions that give the same page again
    """

    title: str
    lead: str
    question: str = "What was found?"
    kind: str = "Study"
    badges: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    footer: tuple[str, ...] = ()


def write_study(page: StudyPage, path: str | os.PathLike[str]) -> Path:
    """Write the page as one HTML file that loads nothing and runs no script."""
    return html.write(render(page), path)


def render(page: StudyPage) -> str:
    """The text of the page. Everything but the pictures is escaped."""
    return html.page("study.html.jinja", page=page, picture=Markup, version=__version__)
