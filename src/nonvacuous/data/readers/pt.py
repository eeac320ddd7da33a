"""Tensors saved with torch.save: read as data, since unpickling anything else can run code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.data.examples import Dataset
from nonvacuous.data.readers.npz import dataset_of_arrays
from nonvacuous.errors import BadInput


def read_pt(
    path: str | Path, *, name: str | None = None, class_names: Sequence[str] | None = None
) -> Dataset:
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
    return dataset_of_arrays(arrays, path, name=name, class_names=class_names)
