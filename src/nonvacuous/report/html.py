"""The page: one file that needs nothing else, runs no script and asks nobody anything."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.report.curves import drawn
from nonvacuous.report.view import View
from nonvacuous.report.wording import WORDS

_ICONS = {"checked": "check", "asserted": "half", "not checkable": "circle", "violated": "cross"}


def render(view: View) -> str:
    """The whole page. What comes from data is escaped; the same view gives the same text."""
    page = environment().get_template("certificate.html.jinja")
    return page.render(
        view=view,
        # Ours, or made by ElementTree, which escapes: these alone are not escaped again.
        css=Markup(source("certificate.css")),
        training=[Markup(drawn(curve, number)) for number, curve in enumerate(view.curves)],
        icons=_ICONS,
        words=WORDS,
    )


def write(text: str, path: str | os.PathLike[str], *, kind: str = "page") -> Path:
    """Write a page whole or not at all; return where it lies."""
    target = Path(path)
    try:
        write_atomically(target, lambda stream: stream.write(text.encode()))
    except OSError as error:
        raise BadInput(
            f"Cannot write the {kind} {target}: {error.strerror}. Name a file in a folder that "
            "exists and that you may write to."
        ) from error
    return target


def source(name: str) -> str:
    """The text of a file among our templates."""
    templates = environment()
    return templates.loader.get_source(templates, name)[0]  # type: ignore[union-attr]


@cache
def environment() -> Environment:
    """Our templates; what they are given is escaped."""
    return Environment(
        loader=PackageLoader("nonvacuous.report"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
