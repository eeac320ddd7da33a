"""A data set from the user's own function, named as package.module:function."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.errors import BadInput
from nonvacuous.foreign import imported


def dataset_from_function(spec: str, class_names: Sequence[str] | None = None) -> Dataset:
    """Import and call the function; see `as_dataset` for what it may return."""
    function = import_function(spec)
    with _current_folder_last():
        try:
            result = function()
        except Exception as error:  # the user's code may raise anything
            raise BadInput(
                f"{spec}() raised {type(error).__name__}: {error}; call it in Python to see why"
            ) from error
    return as_dataset(result, where=spec, class_names=class_names)


def import_function(spec: str) -> Any:
    """The callable behind "package.module:function"; the current folder is searched too."""
    with _current_folder_last():
        return imported(spec)


def as_dataset(result: Any, *, where: str, class_names: Sequence[str] | None = None) -> Dataset:
    """A Dataset out of what a function returned.

    Accepted: Dataset; Examples or anything `Examples.of` takes; a pair of two such things, for
    training and test; a mapping with the keys train and, optionally, test.
    """
    if isinstance(result, Dataset):
        return result
    if isinstance(result, Mapping):
        if "train" not in result or set(result) - {"train", "test"}:
            raise BadInput(
                f"{where} returned a mapping with the keys {sorted(map(str, result))}; expected "
                "train and, optionally, test"
            )
        return _both(result["train"], result.get("test"), class_names, where=where)
    # A pair (inputs, labels) starts with an array; a pair (train, test) with something that holds
    # both. Only tuples count: a list may be an array written out.
    holds = (Examples, tuple, torch.utils.data.Dataset)
    if isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[0], holds):
        return _both(result[0], result[1], class_names, where=where)
    if result is None:
        raise BadInput(f"{where} returned nothing; it must return (inputs, labels)")
    if isinstance(result, str):
        raise BadInput(f"{where}: cannot read examples from str; it must return (inputs, labels)")
    return _both(result, None, class_names, where=where)


def _both(train: Any, test: Any, class_names: Sequence[str] | None, *, where: str) -> Dataset:
    named = None if isinstance(train, Examples) else where
    first = Examples.of(train, name=named, class_names=class_names)
    if test is None:
        return Dataset(first)
    if isinstance(test, Examples):
        return Dataset(first, test)
    return Dataset(first, Examples.of(test, class_names=first.class_names, name=f"{where} (test)"))


@contextmanager
def _current_folder_last() -> Iterator[None]:
    # An installed command does not search the current folder, unlike `python -m`. It comes last,
    # so that a file there cannot stand in for an installed package.
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        # From the end: the same folder may stand earlier in the path, for another reason.
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]
