"""Run the examples of pages, and write under each what it prints.

Usage: python scripts/examples.py docs/questions/*.md

All blocks of a page run in one empty folder, in order: `python` in one namespace, `console` lines
that begin with `$ nonvacuous` or `$ python`. A block whose first line is a comment with a file's
name is written to that file instead. A `text` block right below a block is its output, and is
rewritten; a test compares the two. Blocks of any other language are not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from nonvacuous.cli.app import app, main

BLOCK = re.compile(r"^```(python|console|toml|text)\n(.*?)^```\n", re.S | re.M)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
SHELL = ("nonvacuous", "python")


def run_page(text: str) -> str:
    """The page, with every output as it is now."""
    made, end, printed = [], 0, ""
    before = Path.cwd(), dict(os.environ), list(sys.path)
    os.environ |= {"COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb"}
    namespace: dict[str, Any] = {"__name__": "example"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        try:
            for block in BLOCK.finditer(text):
                between = text[end : block.start()]
                language, code = block.groups()
                made.append(between)
                if language == "text" and not between.strip():
                    made.append(f"```text\n{printed}```\n")
                else:
                    made.append(block.group())
                    printed = _run(language, code, namespace)
                end = block.end()
        finally:
            os.chdir(before[0])
            os.environ.clear()
            os.environ.update(before[1])
            sys.path[:] = before[2]
            for name in [n for n, m in sys.modules.items() if _inside(m, folder)]:
                del sys.modules[name]
    return "".join([*made, text[end:]])


def _inside(module: Any, folder: str) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(folder)


def _run(language: str, code: str, namespace: dict[str, Any]) -> str:
    """What the block prints; files are written, and text is no example."""
    file = FILE.match(code)
    if file:
        Path(file[1]).parent.mkdir(parents=True, exist_ok=True)
        Path(file[1]).write_text(code, "utf-8")
        return ""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if language == "python":
            exec(compile(code, "example", "exec"), namespace)
        elif language == "console":
            for line in re.findall(r"^\$ (.*(?:\\\n.*)*)", code, re.M):
                _command(shlex.split(line, comments=True))
    # How long it takes is no part of an example.
    text = re.sub(r", about [^\n]* left", "", said.getvalue())
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def _command(words: list[str]) -> None:
    if not words or words[0] not in SHELL:
        return
    if words[0] == "python":
        argv, sys.argv = sys.argv, words[1:]
        try:
            runpy.run_path(words[1], run_name="__main__")
        finally:
            sys.argv = argv
        return
    app.console = Console(width=96, no_color=True)
    try:
        code = main(words[1:])
    finally:
        app.console = None
    if code:
        print(f"(exit code {code})")


def agree(one: str, other: str) -> bool:
    """Equal but for digests, timings, and what rounding on another processor may change."""
    one, other = _comparable(one), _comparable(other)
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(_close(a, b) for a, b in pairs)


def _comparable(text: str) -> str:
    text = re.sub(r"\b[0-9a-f]{8,64}\b", "<digest>", text)
    text = re.sub(r"\d+(\.\d+)? (seconds|s)\b", "<seconds>", text)
    return re.sub(r"[\s─━│┃┏┓┗┛┡┩┳╇╭╮╰╯└┘┴┼-]+", " ", text)


def _close(one: str, other: str) -> bool:
    a, b = (float(number.replace(",", "")) for number in (one, other))
    digits = len(one.partition(".")[2])
    return abs(a - b) <= max(0.05 * max(a, b), 1.001 * 10.0**-digits if digits else 0.0)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(run_page(page.read_text("utf-8")), "utf-8")
        print(f"ran {name}")
