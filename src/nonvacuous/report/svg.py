"""What makes matplotlib's SVG fit for a page.

The page must look the same twice, follow the reader's light or dark setting, and show a hostile
name as a name. So the drawing is made without global state, its colors become the page's own
variables, its text stays text in the page's font, and names are never read as formulas.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

#: Roles and their colors on paper. The page maps each to a variable of the same name.
COLORS = {
    "ink": "#1c2127",
    "muted": "#59626e",
    "line": "#c4cad3",
    "paper": "#fefefe",
    "ruled": "#eceff3",
    "possible": "#bcd7f2",
    "certificate": "#0b58a6",
    "twin": "#0b7357",
    "test": "#b0460a",
    "training": "#3d444d",
    "guessing": "#6a4c93",
}
_ROLES = {color: role for role, color in COLORS.items()}
_RENDERER: Any = RendererAgg(1, 1, 72)  # type: ignore[no-untyped-call]
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_COLOR = re.compile(rf"(?:{'|'.join(_ROLES)})\b")
_FONT = re.compile(r"^(?:(?P<weight>[a-z0-9]+) )?(?P<size>[0-9.]+px) .*$")


def text_width(words: str, *, size: float) -> float:
    """The width of the words in units of a drawing, in a font wider than those of most pages."""
    font = FontProperties(size=size)
    return float(_RENDERER.get_text_width_height_descent(words, font, False)[0])


def wrapped(words: str, *, size: float, width: float) -> list[str]:
    """The words in lines of at most this width; a word that is wider is broken."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size=size) <= width:
            lines[-1] = longer
            continue
        while text_width(word, size=size) > width and len(word) > 1:
            fits = max(
                (n for n in range(1, len(word)) if text_width(word[:n], size=size) <= width),
                default=1,
            )
            lines.append(word[:fits])
            word = word[fits:]
        lines.append(word)
    return lines


def element(figure: Figure, *, name: str, title: str, description: str) -> str:
    """A matplotlib figure as an ``<svg>`` element of a page; ``name`` keeps its ids its own."""
    for ground in (figure.patch, *(axes.patch for axes in figure.axes)):
        ground.set(facecolor="none", edgecolor="none")
    target = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": f"nonvacuous {name}"}):
        # Not by savefig, which draws everything twice.
        FigureCanvasSVG(figure).print_svg(target)  # type: ignore[no-untyped-call]
    return _for_a_page(target.getvalue(), name, title, description)


@contextmanager
def plain_settings() -> Iterator[None]:
    """Draw with matplotlib's own defaults, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A sign that the measuring font lacks is still shown by the page's.
        warnings.filterwarnings("ignore", message="Glyph ")
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.fonttype"] = "none"
        yield


def _for_a_page(svg: bytes, name: str, title: str, description: str) -> str:
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            tag = str(child.tag)
            if not tag.startswith(_SVG) or tag.removeprefix(_SVG) in ("metadata", "style"):
                parent.remove(child)
    used = {element.attrib.get(_LINK, "#")[1:] for element in root.iter()}
    for element in root.iter():
        used.update(re.findall(r"url\(#([^)]+)\)", " ".join(element.attrib.values())))
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.attrib = {
            key.replace(_LINK, "href"): _attribute(key, value, name)
            for key, value in element.attrib.items()
            if (key != "id" or value in used) and key != "version"
        }
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-description",
        "class": f"figure {name}",
        "stroke-linejoin": "round",
    }
    heading = ElementTree.Element("title", {"id": f"{name}-title"})
    heading.text = title
    details = ElementTree.Element("desc", {"id": f"{name}-description"})
    details.text = description
    root[:0] = [heading, details]
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == _LINK:
        return f"#{name}-{value[1:]}"
    value = value.replace("url(#", f"url(#{name}-")
    return _style(value) if key == "style" else value


def _style(declarations: str) -> str:
    """Colors by role, and the size and weight of a font but never its family."""
    kept = []
    for declaration in filter(None, map(str.strip, declarations.split(";"))):
        key, _, value = declaration.partition(":")
        key, value = key.strip(), value.strip()
        font = _FONT.match(value) if key == "font" else None
        if font is not None:
            kept.append(f"font-size: {font['size']}")
            if font["weight"]:
                kept.append(f"font-weight: {font['weight']}")
        elif key != "font-family":
            ours = _COLOR.sub(lambda match: f"var(--{_ROLES[match[0]]}, {match[0]})", value)
            kept.append(f"{key}: {ours}")
    return "; ".join(kept)
