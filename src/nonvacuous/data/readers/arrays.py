"""A folder of plain numpy arrays: images decoded once, for machines that cannot decode them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.errors import BadInput


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
    name = name or folder.name
    train = Examples.of(_pair(folder, "train"), class_names=class_names, name=name)
    if not any((folder / f"test-{part}.npy").is_file() for part in ("inputs", "labels")):
        return Dataset(train)
    test = Examples.of(_pair(folder, "test"), class_names=train.class_names, name=f"{name} (test)")
    return Dataset(train, test)


def _pair(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    return _array(folder / f"{part}-inputs.npy"), _array(folder / f"{part}-labels.npy")


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
