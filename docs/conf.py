"""How the site is built: `make docs`. Offline, warnings are errors, nothing is fetched by a page.

Sphinx because the API reference, the search that works from file:// and the checks of every link
come with it; MyST-NB because pages and notebooks stay text that can be read in a diff.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "nonvacuous"
author = "the nonvacuous authors"
copyright = author
version = release = re.search(
    r'__version__ = "(.+)"', (ROOT / "src/nonvacuous/__init__.py").read_text("utf-8")
)[1]
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
nitpicky = False

html_theme = "furo"
html_title = f"nonvacuous {release}"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Reports that scripts/gallery.py made; `make docs` does so first.
html_extra_path = [str(ROOT / "build" / "gallery")]
html_show_sphinx = False
html_copy_source = False
html_domain_indices = False
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["colon_fence", "deflist", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3
suppress_warnings: list[str] = []

nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_excludepatterns = ["questions/*"]
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

linkcheck_ignore = [r"https?://"]  # the build is offline; links between pages are checked


# Docstrings of the house list arguments as `name   what it is`, aligned: made a list here.
ENTRY = re.compile(r"^(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*)  +(\S.*)$")


def _aligned_to_definitions(lines: list[str]) -> list[str]:
    made: list[str] = []
    column = 0
    for line in lines:
        entry = ENTRY.match(line)
        if entry and (column or not made or not made[-1].strip() or made[-1].startswith("    ")):
            column = entry.start(2)
            made += ["", "* " + f"``{entry[1]}``: {_plain(entry[2])}"]
        elif column and line.strip() and len(line) - len(line.lstrip()) >= min(column, 4):
            made.append("  " + _plain(line.strip()))
        else:
            if column and line.strip():
                made.append("")
            column = 0
            # A formula on a line of its own, indented, is a block of its own.
            last = made[-1] if made else ""
            if last.strip() and line.strip() and _indent(line) != _indent(last):
                made.append("")
            made.append(_plain(line))
    return made


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain(line: str) -> str:
    """Bars of KL(Q || P) and |a - b| are no substitutions."""
    return re.sub(r"(``.*?``)|\|", lambda match: match[1] or r"\|", line)


def _docstring(app, what, name, obj, options, lines):
    if isinstance(obj, type) and issubclass(obj, Exception) and not lines:
        return
    lines[:] = _aligned_to_definitions(lines)
    fields = getattr(obj, "model_fields", None)
    if isinstance(obj, type) and fields:
        lines += [""]
        for field, info in fields.items():
            if info.description:
                lines.append(f"* ``{field}``: {_plain(info.description)}")
        lines.append("")


def setup(app):
    app.connect("autodoc-process-docstring", _docstring)
