"""The function behind a cell: found by its name, checked against the settings, called."""

from __future__ import annotations

import inspect
import os
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.foreign import imported
from nonvacuous.study.sweep import Cell

#: Given to a function that has parameters of these names; no setting may be called so.
_OURS = ("seed", "folder")


def find_function(spec: str) -> Callable[..., Any]:
    """The callable "package.module:function"; the current folder is searched too."""
    here = os.getcwd()
    if here not in sys.path:
        # Last and for good: the function may import its neighbors when it is called.
        sys.path.append(here)
    function: Callable[..., Any] = imported(spec)
    return function


def arguments_of(
    function: Callable[..., Any], cell: Cell, folder: Path, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the function is called with; an error names the setting that does not fit.

    given   what it may use besides if it has parameters of these names; no part of the cell
    """
    ours = {"seed": cell.seed, "folder": folder, **(given or {})}
    taken = [name for name in cell.settings if name in ours]
    if taken:
        raise BadInput(f"the setting {taken[0]} is given by the sweep itself; rename yours.")
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    arguments = {
        **cell.settings,
        **{n: ours[n] for n in ours if n in signature.parameters or (takes_all and n in _OURS)},
    }
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise BadInput(
            f"{cell.run}{signature} cannot take the settings of {cell.name}: {error}."
        ) from error
    return arguments


def call(
    spec: str, cell: Cell, folder: Path, given: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Call the function for one cell and return what it found, as plain numbers and texts."""
    function = find_function(spec)
    arguments = arguments_of(function, cell, folder, given)
    # What it draws depends on its cell, and not on what the process did before.
    random.seed(cell.seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(cell.seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(cell.seed)
    result = function(**arguments)
    if result is None:
        return {}
    if not isinstance(result, Mapping):
        raise BadInput(
            f"{spec} returned a {type(result).__name__}; a cell returns a mapping of names to "
            "numbers and texts, or nothing."
        )
    return {
        str(name): plain(value, partial(_refuse, f"{spec} returned {name}"))
        for name, value in result.items()
    }


def plain(value: Any, other: Callable[[Any], Any]) -> Any:
    """A value that JSON can keep, numpy's and torch's as Python's; ``other`` of what it cannot."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(inner, other) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, other) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), other)
    if isinstance(value, float):
        # JSON has no words for these, and null says it: there is no number.
        return value if value - value == 0.0 else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return other(value)


def _refuse(what: str, value: Any) -> Any:
    raise BadInput(
        f"{what} as a {type(value).__name__}: return numbers, texts, and lists or mappings of them."
    )
