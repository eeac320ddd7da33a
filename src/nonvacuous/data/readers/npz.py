"""Arrays and tensors in files: npz archives, folders of npy files, what torch.save wrote.

A training set, and a test set where there is one. Files are read as data alone, since unpickling
anything else can run code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.data.files import read_npz_arrays
from nonvacuous.errors import BadInput

_TRAIN_KEYS = (("inputs", "labels"), ("x", "y"), ("x_train", "y_train"))
_TEST_KEYS = ("x_test", "y_test")
_CHANNELS = (1, 3, 4)


def read_npz(path: str | Path, *, class_names: Sequence[str] | None = None) -> Dataset:
    """A data set from an npz file.

    Keys: inputs/labels, or x/y, or x_train/y_train with x_test/y_test where there is a test set; in
    capitals or not.

    Labels are integers or text; an optional key class_names names the classes. Images may have
    their channels last: arrays of shape (n, height, width, channels) are turned, and arrays of
    8-bit pixels of shape (n, height, width) get one channel. Files with Python objects are refused.
    """
    path = Path(path)
    return dataset_of_arrays(read_npz_arrays(path), path, class_names)


def dataset_of_arrays(
    arrays: dict[str, np.ndarray], path: Path, class_names: Sequence[str] | None
) -> Dataset:
    """A data set from named arrays, whatever file they were in; X_train is x_train."""
    lowered = {key.lower(): array for key, array in arrays.items()}
    arrays = lowered if len(lowered) == len(arrays) else arrays
    train = _train_keys(arrays, path)
    if len({key in arrays for key in _TEST_KEYS}) > 1:
        raise BadInput(
            f"{path} has only one of the keys x_test and y_test; a test set needs both "
            f"(found: {_listed(arrays)})"
        )

    def pair(keys: tuple[str, str], **names: Any) -> Examples:
        return Examples.of((_channels_first(arrays[keys[0]]), arrays[keys[1]]), **names)

    return Dataset.read(
        pair,
        train,
        _TEST_KEYS if _TEST_KEYS[0] in arrays else None,
        name=path.stem,
        class_names=class_names or _class_names(arrays, path),
        unused=tuple(sorted(set(arrays) - {*train, "class_names", *_TEST_KEYS})),
    )


def _train_keys(arrays: dict[str, np.ndarray], path: Path) -> tuple[str, str]:
    present = [pair for pair in _TRAIN_KEYS if pair[0] in arrays and pair[1] in arrays]
    if len(present) != 1:
        reason = "more than one pair of" if present else "not the expected"
        raise BadInput(
            f"{path} has {reason} keys. Found: {_listed(arrays)}. Expected: inputs and labels, or "
            "x and y, or x_train and y_train (with x_test and y_test where there is a test set). "
            "Write it with numpy.savez(path, inputs=..., labels=...)"
        )
    return present[0]


def _class_names(arrays: dict[str, np.ndarray], path: Path) -> tuple[str, ...] | None:
    if "class_names" not in arrays:
        return None
    names = arrays["class_names"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise BadInput(f"{path}: class_names must be a list of text, one name per class")
    return tuple(str(value) for value in names.tolist())


def _channels_first(array: np.ndarray) -> np.ndarray:
    # Decided by shape alone, and only where the shape leaves no doubt.
    if array.ndim == 3 and array.dtype == np.uint8:
        return array[:, None]
    if array.ndim == 4 and array.shape[3] in _CHANNELS and array.shape[1] not in _CHANNELS:
        return np.moveaxis(array, 3, 1)
    return array


def _listed(arrays: dict[str, np.ndarray]) -> str:
    return ", ".join(sorted(arrays)) if arrays else "no keys at all"


def has_arrays(folder: Path) -> bool:
    """Whether the folder holds a training set that :func:`read_arrays` reads."""
    return (folder / "train-inputs.npy").is_file()


def read_arrays(
    folder: str | Path, *, name: str | None = None, class_names: Sequence[str] | None = None
) -> Dataset:
    """A data set from train-inputs.npy and train-labels.npy, and test-*.npy where they are.

    Inputs are kept in their shape, channels first; 8-bit pixels are divided by 255. Files with
    Python objects are refused.
    """
    folder = Path(folder)
    train, test = (
        [folder / f"{part}-{what}.npy" for what in ("inputs", "labels")]
        for part in ("train", "test")
    )

    def pair(files: list[Path], **names: Any) -> Examples:
        return Examples.of((_array(files[0]), _array(files[1])), **names)

    second = test if any(file.is_file() for file in test) else None
    return Dataset.read(pair, train, second, name=name or folder.name, class_names=class_names)


def _array(path: Path) -> np.ndarray:
    if not path.is_file():
        raise BadInput(
            f"{path.parent} has no file {path.name}; inputs and labels come in pairs of .npy files"
        )
    try:
        # Mapping would keep the file open for as long as the tensors live; a copy does not.
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(
            f"{path} cannot be read as one plain array ({error}); write it with "
            "numpy.save(path, array)"
        ) from error
    if not isinstance(loaded, np.ndarray):
        raise BadInput(f"{path} holds several arrays; write one with numpy.save(path, array)")
    return loaded


def read_pt(path: str | Path, *, class_names: Sequence[str] | None = None) -> Dataset:
    """A data set from a .pt file: a pair (inputs, labels) of tensors, or a dict of the npz keys."""
    path = Path(path)
    try:
        # The one place where torch.load is allowed: with weights_only it builds tensors, nothing
        # that a file names is imported or called.
        stored: Any = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
    except Exception as error:  # unpicklers and archives break in many ways
        raise BadInput(
            f"{path} cannot be read as tensors alone ({type(error).__name__}). Save a pair or a "
            "dict of tensors, torch.save((inputs, labels), path); whole objects are refused "
            "because reading them can run code"
        ) from error
    if isinstance(stored, (tuple, list)) and len(stored) == 2:
        stored = {"inputs": stored[0], "labels": stored[1]}
    if not isinstance(stored, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in stored.items()
    ):
        raise BadInput(f"{path} holds no pair (inputs, labels) and no dict of named tensors")
    arrays: dict[str, np.ndarray] = {
        key: (value.float() if value.is_floating_point() else value).detach().numpy()
        for key, value in stored.items()
    }
    return dataset_of_arrays(arrays, path, class_names)
