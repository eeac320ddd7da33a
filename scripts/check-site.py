"""Every link, image, script and anchor of a built site leads somewhere, inside the site.

Usage: python scripts/check-site.py build/site. Nothing may be fetched from the network, and every
page must be reachable from the first; external links are listed by --external, not visited.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Page(HTMLParser):
    """What a page has: anchors, what it loads, where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "top"}
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors |= {name for key in ("id", "name") if (name := given.get(key))}
        for key in ("src", "href"):
            if target := given.get(key):
                (self.loads if (tag, key) in LOADED else self.leads).append(target)


def problems(site: Path) -> list[str]:
    """A line for each link that leads nowhere, thing that is fetched, and page that is lost."""
    pages = {file.resolve(): Page(file.read_text("utf-8")) for file in site.rglob("*.html")}
    said, reached = [], {(site / "index.html").resolve()}
    for file, page in pages.items():
        name = file.relative_to(site.resolve())
        for target in page.loads + page.leads:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    said.append(f"{name} loads {target} from elsewhere")
                continue
            aim = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if aim.is_dir():
                aim = aim / "index.html"
            if aim != file:
                reached.add(aim)
            if not aim.is_file():
                said.append(f"{name} leads to {target}, which is not there")
            elif aim in pages and unquote(parts.fragment) not in pages[aim].anchors:
                said.append(f"{name} leads to {target}, which has no such place")
    lost = set(pages) - reached
    said += [f"nothing leads to {file.relative_to(site.resolve())}" for file in sorted(lost)]
    return said


def external(site: Path) -> set[str]:
    """Every address outside of the site."""
    pages = (Page(file.read_text("utf-8")) for file in site.rglob("*.html"))
    return {each for page in pages for each in page.leads if urlsplit(each).scheme}


def main() -> None:
    site = Path(sys.argv[1])
    if "--external" in sys.argv:
        print("\n".join(sorted(external(site))))
        return
    said = problems(site)
    print("\n".join(said) or f"{len(list(site.rglob('*.html')))} pages, every link leads somewhere")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
