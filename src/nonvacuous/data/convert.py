"""From whatever holds numbers to the two tensors of `Examples`: float32 inputs, int64 labels.

The pair of both comes out of tuples, frames and torch datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput, nearest

#: Classes that an error lists, one and all.
_MOST_NAMED = 20
PIXEL_STEP = "pixel/255"
"""Name of the one preprocessing that happens by default: 8-bit pixels become [0, 1]."""


def as_inputs(values: Any, *, where: str) -> tuple[Tensor, tuple[str, ...]]:
    """Inputs as a float32 tensor, and the names of the preprocessing steps applied.

    8-bit unsigned integers are taken for pixels and divided by 255: a rule fixed before any data
    was seen. Every other kind of number is kept as it is.
    """
    if isinstance(values, Tensor):
        tensor = values.detach()
        dense = tensor.layout == torch.strided
        if tensor.is_complex() or tensor.is_quantized or not dense:
            kind = tensor.dtype if dense else tensor.layout
            raise BadInput(f"{where}: inputs must be plain dense real numbers, not {kind}")
    else:
        array = _as_array(values, where=where, what="inputs")
        if array.dtype.kind not in "fiub":
            raise BadInput(
                f"{where}: inputs must be numbers, but they have dtype {array.dtype}; "
                "convert them to float32"
            )
        # torch knows neither foreign byte order nor negative strides.
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.float32)
        elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
            with np.errstate(over="ignore"):  # what becomes infinite is reported by the checks
                array = array.astype(np.float64)
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if tensor.ndim < 2:
        raise BadInput(
            f"{where}: inputs have shape {tuple(tensor.shape)}; expected one row per example, "
            "such as (examples, features) or (examples, channels, height, width)"
        )
    if 0 in tensor.shape[1:]:
        raise BadInput(f"{where}: inputs have shape {tuple(tensor.shape)}: each input is empty")
    if tensor.dtype == torch.uint8:
        return tensor.to(torch.float32).div_(255.0), (PIXEL_STEP,)
    return tensor.to(torch.float32), ()


def as_labels(
    values: Any, *, where: str, class_names: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as an int64 tensor in 0..classes-1, and the class names.

    Text becomes classes in sorted order of the text. Integers must use every value from 0 up,
    unless `class_names` says which classes exist: whether they do is checked with the examples.
    """
    if isinstance(values, Tensor):
        # numpy has no bfloat16; float64 keeps the kind, and the message below names it.
        values = values.detach().cpu()
        array = (values.double() if values.is_floating_point() else values).numpy()
    else:
        array = _as_array(values, where=where, what="labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise BadInput(
            f"{where}: labels have shape {array.shape}; expected one label per example, "
            f"shape (examples,){_several(array)}"
        )
    if class_names is None and not array.size:
        raise BadInput(f"{where}: there are no labels, so there are no examples")
    if array.dtype.kind in "US":
        return _from_text(array, where=where, class_names=class_names)
    fractions = array[array % 1 > 0] if array.dtype.kind == "f" else array[:0]
    if len(fractions):
        raise BadInput(
            f"{where}: labels have fractions, such as {fractions[0]:g}: this "
            "is regression, which no promise here covers. Make classes of ranges of the target "
            "beforehand, numpy.digitize(target, [limits]), and certify a classifier of those"
        )
    if array.dtype.kind not in "iub":
        raise BadInput(
            f"{where}: labels have dtype {array.dtype}, which is not an integer; labels name "
            "classes 0, 1, 2, ... (if they are whole numbers, convert with labels.astype('int64'))"
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise BadInput(f"{where}: label {int(array.max())} is too large; labels are 0, 1, 2, ...")
    integers = array.astype(np.int64)
    names = tuple(class_names) if class_names is not None else _infer_names(integers, where=where)
    return torch.from_numpy(np.ascontiguousarray(integers)), names


def _several(array: np.ndarray) -> str:
    """What rows of labels probably mean, and what to do."""
    if array.ndim != 2 or array.dtype.kind not in "iubf" or not array.size:
        return ""
    if bool(((array == 0) | (array == 1)).all()) and not bool((array.sum(axis=1) == 1).all()):
        return (
            ". Several ones in a row are multi-label data, which no promise here covers at once: "
            "certify one network for each label, on (inputs, labels[:, k]), with confidence shared "
            f"among them (attempts={array.shape[1]})"
        )
    return "; for one-hot rows pass labels.argmax(axis=1)"


def _infer_names(labels: np.ndarray, *, where: str) -> tuple[str, ...]:
    values = np.unique(labels)
    if int(values[0]) < 0:
        raise BadInput(f"{where}: label {int(values[0])} is negative; labels are 0, 1, 2, ...")
    # Compared by position, never by building 0..max: a stray label of 10**9 must not fill memory.
    wrong = np.flatnonzero(values != np.arange(values.size))
    if wrong.size:
        missing, next_label = int(wrong[0]), int(values[wrong[0]])
        raise BadInput(
            f"{where}: no example has label {missing}, but some have label {next_label}; labels "
            "must use every value 0, 1, 2, ... without gaps (renumber them with "
            "numpy.unique(labels, return_inverse=True)[1], or name all classes with class_names)"
        )
    return tuple(str(value) for value in values.tolist())


def _from_text(
    array: np.ndarray, *, where: str, class_names: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{where}: a text label is not valid UTF-8 ({error})") from error
    values = np.unique(array).tolist()
    names = tuple(values if class_names is None else class_names)
    unknown = sorted(set(values) - set(names))
    if unknown:
        whole = (*names, *unknown)
        every = f": {','.join(map(str, whole))}" if len(whole) <= _MOST_NAMED else ""
        raise BadInput(
            f"{where}: label {unknown[0]!r} is not one of the classes "
            f"{', '.join(map(repr, names[:8]))}{', ...' if len(names) > 8 else ''}; class names "
            f"(--classes) must name all{every}, and without them the training data must have "
            "examples of it"
        )
    position = {name: index for index, name in enumerate(names)}
    codes = [position[name] for name in array.tolist()]
    return torch.tensor(codes, dtype=torch.int64), names


def _as_array(values: Any, *, where: str, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except Exception as error:  # any foreign object may raise anything here
        raise BadInput(f"{where}: {what} cannot be read as an array ({error})") from error
    if array.dtype == object and all(isinstance(value, str) for value in array.flat):
        return array.astype(np.str_)  # what pandas makes of text
    if array.dtype.hasobject:
        raise BadInput(
            f"{where}: {what} are Python objects (rows of unequal length, missing values or mixed "
            "types?); give a numpy array of numbers" + (" or of text" if what == "labels" else "")
        )
    return array


_PROBE = 32
#: What the column of labels may be called.
LABEL_COLUMNS = ("label", "labels", "y", "target", "class")


def read_pair(anything: Any, *, where: str) -> tuple[Any, Any]:
    if isinstance(anything, torch.utils.data.DataLoader):
        _check_loader(anything, where=where)
        return read_pair(anything.dataset, where=where)  # not shuffled, not batched
    if type(anything) is torch.utils.data.TensorDataset:  # a subclass may give other items
        if len(anything.tensors) != 2:
            raise BadInput(
                f"{where}: the TensorDataset holds {len(anything.tensors)} tensors; expected two, "
                "inputs and labels"
            )
        return anything.tensors[0], anything.tensors[1]
    if isinstance(anything, torch.utils.data.Dataset):
        return _read_items(anything, where=where)
    if hasattr(anything, "columns") and hasattr(anything, "to_numpy"):
        columns = list(anything.columns)
        other = "give the pair (inputs, labels)"
        label = columns[label_column(columns, where=where, other=other)]
        return anything.drop(columns=[label]).to_numpy(), anything[label].to_numpy()
    if isinstance(anything, (tuple, list)) and len(anything) == 2:
        # A frame or a series of pandas, which is not imported for that, has an array.
        first, second = (p.to_numpy() if hasattr(p, "to_numpy") else p for p in anything)
        return first, second
    raise BadInput(
        f"{where}: cannot read examples from {type(anything).__name__}; give a pair "
        "(inputs, labels), a frame with a label column, the path of a file, a torch Dataset or "
        "nonvacuous.data.Examples"
    )


def _check_loader(loader: torch.utils.data.DataLoader[Any], *, where: str) -> None:
    """Refuse a loader that gives others than the examples of its dataset, each once."""
    usual = {torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler}
    sampler = loader.sampler
    once = type(sampler) in usual and not getattr(sampler, "replacement", False)
    batches = type(loader.batch_sampler) in (torch.utils.data.BatchSampler, type(None))
    plain = loader.collate_fn in (
        torch.utils.data.default_collate,
        torch.utils.data.default_convert,
    )
    if not (once and batches and plain and len(sampler) == len(loader.dataset)):  # type: ignore[arg-type]
        odd = "sampler" if plain else "collate_fn"
        raise BadInput(
            f"{where}: the DataLoader has a {odd} of its own, so that it gives other examples than "
            "its dataset holds; give the Dataset itself, or a Subset of it, with every transform "
            "in the dataset"
        )


def label_column(
    columns: Sequence[Any],
    *,
    where: str,
    called: str | None = None,
    other: str = "write it behind the file's: FILE:COLUMN",
) -> int:
    """Which column of a table holds the labels: the one that is named, or one with a usual name.

    other   what to do where it is called otherwise
    """
    names = [str(column).strip() for column in columns]
    usual = f"named {' or '.join(LABEL_COLUMNS)}, in capitals or not,"
    known = [at for at, name in enumerate(names) if name.lower() in LABEL_COLUMNS]
    if called is not None:
        usual, known = f"named {called}", [at for at, name in enumerate(names) if name == called]
    if len(known) != 1 or len(names) < 2:
        several = " and ".join(names[at] for at in known) if len(known) > 1 else ""
        hint = f": {several} are {len(known)}, rename all but one" if several else ""
        if not known and called is None:
            hint = f"; for a column of another name {other}"
        elif not known:
            hint = nearest(called, names, "; did you mean {}?")
        listed = names if len(names) <= 20 else [*names[:10], "...", *names[-10:]]
        raise BadInput(
            f"{where} needs one column {usual} and others beside it; its columns are "
            f"{', '.join(listed)!r}{hint}"
        )
    return known[0]


def _read_items(dataset: Any, *, where: str) -> tuple[Tensor, list[Any]]:
    if not hasattr(dataset, "__len__") or isinstance(dataset, torch.utils.data.IterableDataset):
        raise BadInput(f"{where}: the dataset has no length; give one with __len__ and __getitem__")
    items = [_item(dataset, index, where=where) for index in range(len(dataset))]
    if not items:
        raise BadInput(f"{where}: the dataset is empty")
    # A random augmentation would make the measured risk that of other inputs than the stored ones.
    # All over the dataset: some add altered copies of a rare class after the others.
    for index in np.linspace(0, len(items) - 1, min(_PROBE, len(items))).astype(int).tolist():
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
