"""A site of many runs: one sortable table, and one page for each certificate. Works from file://."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from nonvacuous import __version__
from nonvacuous.comparison import compare
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.report import html, view
from nonvacuous.study import site_table
from nonvacuous.study.runs import Run
from nonvacuous.study.site_table import Table

INDEX, PAGES = "index.html", "certificates"
_GENERATOR = f"nonvacuous {__version__}"


@dataclass(frozen=True)
class Site:
    """Where the site lies. ``pages``: one for each certificate."""

    index: Path
    pages: tuple[Path, ...]


def write_site(
    runs: Sequence[Run],
    folder: str | os.PathLike[str],
    *,
    title: str,
    progress: Callable[[str, int, int, str], None] | None = None,
) -> Site:
    """Write index.html and certificates/*.html into a folder, replacing an older site there."""
    target = Path(folder)
    index = target / INDEX
    if index.exists() and b'content="nonvacuous ' not in index.read_bytes()[:4000]:
        raise BadInput(
            f"{index} was not written by nonvacuous and is not overwritten; move it away, or "
            "collect the runs in another folder."
        )
    certified = [run for run in runs if run.certificate is not None]
    pages = []
    for number, run in enumerate(certified):
        if progress is not None:
            progress("pages", number, len(certified), "")
        page = target / PAGES / page_name(run.name)
        _write(page, _certificate_page(run))
        pages.append(page)
    if progress is not None and certified:
        progress("pages", len(certified), len(certified), "")
    links = {run.name: f"{PAGES}/{quote(page_name(run.name))}" for run in certified}
    # The table comes last: it never links to a page that is not there yet.
    _write(index, render(site_table.table(runs, title=title, links=links)))
    return Site(index, tuple(pages))


def render(table: Table) -> str:
    """The text of the index. What comes from data is escaped."""
    script = html.source("site.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return html.page(
        "site.html.jinja",
        site=table,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        generator=_GENERATOR,
    )


def page_name(name: str) -> str:
    """A file name for the page of a run, whatever letters the run's name has.

    >>> page_name("a/<b>")
    'a-b-428d8a50d9.html'
    """
    words = re.sub(r"[^A-Za-z0-9._=,]+", "-", name).strip("-.")[:80]
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:10]
    return f"{words}-{digest}.html" if words else f"{digest}.html"


def _certificate_page(run: Run) -> str:
    assert run.certificate is not None
    seen = view.View(
        run.certificate, comparison=compare(run.certificate), history=None, run_folder=run.folder
    )
    return view.render(seen)


def _write(path: Path, text: str) -> None:
    content = text.encode(errors="replace")
    try:
        write_atomically(path, content)
    except OSError as error:
        raise BadInput(
            f"Cannot write {path}: {error.strerror}. Name a folder that you may write to."
        ) from error
