"""Records in a folder that may be a stranger's: data, of bounded size, and never a traceback."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.files import inside

#: Bytes of a record that are read; ours are a thousand times shorter.
LONGEST = 64 * 2**20


def read_bytes(path: Path, *, longest: int = LONGEST) -> bytes:
    """The content of a file, unless it is longer than anything that is meant to be there."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(longest + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; check the path") from error
    if len(content) > longest:
        raise BadInput(f"{path} is longer than {longest:,} bytes: it is no record of ours")
    return content


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return _parsed(path, json.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    return dict(_parsed(path, lambda content: tomllib.loads(content.decode()), "TOML"))


def run_settings(folder: Path) -> dict[str, Any]:
    """What the config.toml of a run folder says; nothing where it cannot be read."""
    try:
        return read_toml(inside(folder, "config.toml"))
    except BadInput:
        return {}


def _parsed(path: Path, parse: Callable[[bytes], Any], kind: str) -> Any:
    content = read_bytes(path)
    try:
        return parse(content)
    except (ValueError, RecursionError) as error:  # a bad letter is a ValueError too
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(f"{path} is not {kind}: {why}") from error
