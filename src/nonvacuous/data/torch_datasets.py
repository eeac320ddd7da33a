"""The pair (inputs, labels) out of tuples and torch datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput

_PROBE = 32
#: What the column of labels may be called.
LABEL_COLUMNS = ("label", "labels", "y", "target", "class")


def read_pair(anything: Any, *, where: str) -> tuple[Any, Any]:
    if isinstance(anything, torch.utils.data.DataLoader):
        return read_pair(anything.dataset, where=where)  # not shuffled, not batched
    if isinstance(anything, torch.utils.data.TensorDataset):
        if len(anything.tensors) != 2:
            raise BadInput(
                f"{where}: the TensorDataset holds {len(anything.tensors)} tensors; expected two, "
                "inputs and labels"
            )
        return anything.tensors[0], anything.tensors[1]
    if isinstance(anything, torch.utils.data.Dataset):
        return _read_items(anything, where=where)
    if hasattr(anything, "columns") and hasattr(anything, "to_numpy"):
        return _read_frame(anything, where=where)
    if isinstance(anything, (tuple, list)) and len(anything) == 2:
        return _unframed(anything[0]), _unframed(anything[1])
    raise BadInput(
        f"{where}: cannot read examples from {type(anything).__name__}; give a pair "
        "(inputs, labels), a frame with a label column, the path of a file, a torch Dataset or "
        "nonvacuous.data.Examples"
    )


def label_column(columns: Sequence[Any], *, where: str) -> int:
    """Which column of a table holds the labels, by its name."""
    names = [str(column).strip() for column in columns]
    known = [at for at, name in enumerate(names) if name.lower() in LABEL_COLUMNS]
    if len(known) != 1 or len(names) < 2:
        raise BadInput(
            f"{where} needs one column named {' or '.join(LABEL_COLUMNS)}, in capitals or not, and "
            f"others beside it; its columns are {', '.join(names[:20])!r}"
        )
    return known[0]


def _read_frame(frame: Any, *, where: str) -> tuple[Any, Any]:
    columns = list(frame.columns)
    at = label_column(columns, where=where)
    return frame.drop(columns=[columns[at]]).to_numpy(), frame[columns[at]].to_numpy()


def _unframed(value: Any) -> Any:
    """The array in a frame or a series of pandas, which is not imported for that."""
    return value.to_numpy() if hasattr(value, "to_numpy") else value


def _read_items(dataset: Any, *, where: str) -> tuple[Tensor, list[Any]]:
    if not hasattr(dataset, "__len__") or isinstance(dataset, torch.utils.data.IterableDataset):
        raise BadInput(f"{where}: the dataset has no length; give one with __len__ and __getitem__")
    items = [_item(dataset, index, where=where) for index in range(len(dataset))]
    if not items:
        raise BadInput(f"{where}: the dataset is empty")
    # A random augmentation would make the measured risk that of other inputs than the stored ones.
    for index in range(min(_PROBE, len(items))):
        if not torch.equal(items[index][0], _item(dataset, index, where=where)[0]):
            raise BadInput(
                f"{where}: item {index} of the dataset is different each time it is read; remove "
                "the random augmentation, because a certificate is about the examples themselves"
            )
    inputs = [item[0] for item in items]
    shapes = {tuple(tensor.shape) for tensor in inputs}
    if len(shapes) > 1:
        raise BadInput(f"{where}: inputs have different shapes {sorted(shapes)[:4]}")
    return torch.stack(inputs), [item[1] for item in items]


def _item(dataset: Any, index: int, *, where: str) -> tuple[Tensor, Any]:
    item = dataset[index]
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise BadInput(f"{where}: item {index} of the dataset is not a pair (input, label)")
    value, label = item
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise BadInput(
                f"{where}: input {index} is a {type(value).__name__}, not a tensor; add a "
                "transform that turns it into numbers"
            )
        value = torch.from_numpy(np.array(array))
    return value, label.item() if isinstance(label, Tensor) and label.numel() == 1 else label
