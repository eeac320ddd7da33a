"""Checks of examples: what would make a certificate wrong or meaningless, found before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.data.examples import Examples

MINIMUM_EXAMPLES = 50
"""Below this no bound says anything: even zero errors on 50 examples certify only 5.8 % at 95 %."""


def check_examples(
    examples: Examples, *, minimum: int = MINIMUM_EXAMPLES, every_class: bool = True
) -> None:
    """Raise BadInput unless these examples can be trained on and certified.

    minimum       the fewest examples accepted
    every_class   whether each class must have at least one example; set it to False for a part of
                  a data set, which may miss a rare class by chance
    """
    check_structure(examples)
    where = examples.name
    if len(examples) < minimum:
        raise BadInput(
            f"{where}: {len(examples)} examples are too few; at least {minimum} are needed for "
            "a bound to say anything. Collect more data"
        )
    if examples.classes < 2:
        raise BadInput(
            f"{where}: there is only one class ({', '.join(map(repr, examples.class_names))}), so "
            "every network is right; classification needs two or more"
        )
    present = torch.bincount(examples.labels, minlength=examples.classes) > 0
    if every_class and not bool(present.all()):
        missing = int((~present).nonzero()[0])
        raise BadInput(
            f"{where}: no example of class {missing} ({examples.class_names[missing]!r}); labels "
            "must use every value 0, 1, 2, ... without gaps, or the class must be removed"
        )
    check_finite(examples.inputs, where=where)


def check_structure(examples: Examples) -> None:
    """Raise BadInput unless types, shapes, labels and class names fit together."""
    where, inputs, labels = examples.name, examples.inputs, examples.labels
    if not isinstance(inputs, Tensor) or not isinstance(labels, Tensor):
        raise BadInput(
            f"{where}: inputs and labels must be torch tensors; Examples.of converts numpy arrays"
        )
    if inputs.dtype != torch.float32 or labels.dtype != torch.int64:
        raise BadInput(
            f"{where}: inputs must be float32 and labels int64, not {inputs.dtype} and "
            f"{labels.dtype}; Examples.of((inputs, labels)) converts them"
        )
    if inputs.ndim < 2 or labels.ndim != 1 or len(inputs) != len(labels):
        raise BadInput(
            f"{where}: inputs have shape {tuple(inputs.shape)} and labels {tuple(labels.shape)}; "
            "expected (examples, ...) and (examples,)"
        )
    if inputs.device != labels.device:
        raise BadInput(f"{where}: inputs are on {inputs.device} but labels on {labels.device}")
    names = examples.class_names
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise BadInput(f"{where}: class_names must be different strings, one per class")
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"{where}: class name {name!r} is not valid text, so no report could hold it; "
                "rename the class"
            ) from error
    if len(labels):
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(names):
            raise BadInput(
                f"{where}: labels go from {low} to {high} but there are {len(names)} class names; "
                f"labels must be 0..{len(names) - 1}"
            )


def check_finite(inputs: Tensor, *, where: str) -> None:
    """Raise BadInput if an input contains NaN or infinity, and say which."""
    if inputs.numel() == 0:
        return
    # The lowest and highest value carry every NaN and infinity, and cost a tenth of a full test.
    lowest, highest = torch.aminmax(inputs)
    if bool(torch.isfinite(lowest)) and bool(torch.isfinite(highest)):
        return
    bad = ~torch.isfinite(inputs).flatten(1).all(dim=1)
    raise BadInput(
        f"{where}: {int(bad.sum())} of {len(inputs)} inputs contain NaN or infinity, the first "
        f"at position {int(bad.nonzero()[0])}; repair or remove them before anything is trained"
    )


def find_duplicates(
    first: Examples, second: Examples, *, ignore_labels: bool = False
) -> np.ndarray:
    """The positions in `second` of examples that also occur in `first`, by content hash."""
    return np.flatnonzero(np.isin(_hashes(second, ignore_labels), _hashes(first, ignore_labels)))


def count_repeats(examples: Examples, *, ignore_labels: bool = False) -> int:
    """How many examples repeat an earlier one of the same set."""
    hashes = _hashes(examples, ignore_labels)
    return len(hashes) - len(np.unique(hashes))


def _hashes(examples: Examples, ignore_labels: bool) -> np.ndarray:
    return examples.input_hashes() if ignore_labels else examples.content_hashes()
