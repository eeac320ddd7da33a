"""The data a command is about."""

from __future__ import annotations

import difflib
from pathlib import Path

from nonvacuous.cli.exits import passed_on
from nonvacuous.data import NAMES, Dataset, load
from nonvacuous.errors import BadInput


def load_data(source: str, data_dir: Path | None, classes: str | None = None) -> Dataset:
    """The data set behind --data; an error says which command shows more."""
    names = None if classes is None else [name.strip() for name in classes.split(",")]
    try:
        return load(source, data_dir=data_dir, class_names=names)
    except BadInput as error:
        raise passed_on(error, next_command=_next_command(source)) from error


def _next_command(source: str) -> str:
    close = difflib.get_close_matches(source.lower().replace("_", "-"), NAMES, n=1)
    if close and source != "digits":
        # A known name without its files, or a slip of the finger.
        return f"nonvacuous data {'digits' if source in NAMES else close[0]}"
    return "nonvacuous data --help"
