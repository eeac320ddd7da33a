"""Pages from templates: one file each that needs nothing else and asks nobody anything."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.report import wording

if TYPE_CHECKING:
    from jinja2 import Environment


def page(template: str, **values: Any) -> str:
    """A template of ours, filled in. What comes from data is escaped, what is Markup is not."""
    return _environment().get_template(template).render(**values)


def words(template: str, **values: Any) -> str:
    """What a template says, on one line."""
    return " ".join(page(template, **values).split())


def write(text: str, path: str | os.PathLike[str], *, kind: str = "page") -> Path:
    """Write a page whole or not at all; return where it lies."""
    target = Path(path)
    try:
        write_atomically(target, text.encode(errors="replace"))
    except OSError as error:
        raise BadInput(
            f"Cannot write the {kind} {target}: {error.strerror}. Name a file in a folder that "
            "exists and that you may write to."
        ) from error
    return target


@cache
def _environment() -> Environment:
    """Our templates, which say numbers and names in our words; what they are given is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # no help waits for it

    templates = Environment(
        loader=PackageLoader("nonvacuous.report"),
        autoescape=lambda name: name is None or not name.endswith((".md.jinja", ".txt.jinja")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    # How templates write numbers and names.
    templates.filters |= {name: words for name, words in vars(wording).items() if callable(words)}
    templates.filters["shown_up"] = shown_up
    return templates
