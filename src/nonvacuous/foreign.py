"""What others wrote: records in a folder that may be a stranger's, and functions that a user names.

Records are data, of bounded size, and never a traceback; only what the user names is ever run.
"""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.files import inside

#: The reader in ``data/readers`` of each kind of file with examples, by the end of its name; the
#: commands' help lists them. To add one, enter it here.
READERS = {
    ".npz": "npz:read_npz",
    ".parquet": "tables:read_table",
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_csv",
    ".pt": "npz:read_pt",
}
*_FIRST, _LAST = READERS
#: What names a data set, for a person.
SOURCES = (
    f"digits (needs no files), mnist, fashion-mnist, cifar10; a file {', '.join(_FIRST)} or {_LAST}"
    " (arrays are called inputs and labels; for labels in another column of a table than label, y, "
    "target or class: FILE:COLUMN); a folder of images with one folder per class; or "
    "package.module:function returning (inputs, labels)."
)
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


#: Keys that the record of a run has and hardly another config.toml.
_MARKS = {"mode", "split", "examples", "weights"}


def holds_run(folder: Path) -> bool:
    """Whether the folder's config.toml is the record of a run, finished or not."""
    return run_settings(folder).keys() >= _MARKS


def imported(spec: str) -> Any:
    """The callable behind "package.module:function", from wherever modules are searched."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise Unrecognized(f"{spec!r} is not of the form package.module:function")
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:  # the module's own code may raise anything
        # A module that is not there was not meant; one that breaks down has a fault of its own.
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(
            f"{error.name}."
        )
        raise (Unrecognized if absent else BadInput)(
            f"{spec}: the module {module_name} cannot be imported "
            f"({type(error).__name__}: {error}); install it, or run from the folder it is in"
        ) from error
    for name in attribute.split("."):
        if not hasattr(target, name):
            raise Unrecognized(f"{spec}: {module_name} has nothing called {attribute}")
        target = getattr(target, name)
    if not callable(target):
        raise Unrecognized(f"{spec} is a {type(target).__name__}, not a function")
    return target


def _parsed(path: Path, parse: Callable[[bytes], Any], kind: str) -> Any:
    content = read_bytes(path)
    try:
        return parse(content)
    except (ValueError, RecursionError) as error:  # a bad letter is a ValueError too
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(f"{path} is not {kind}: {why}") from error
