"""Examples: inputs and labels that belong together, and a Dataset of a training and a test set.

And the checks of them: what would make a certificate wrong or meaningless, found before training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from nonvacuous.data.convert import as_inputs, as_labels, read_pair
from nonvacuous.data.files import hash_examples, hash_of_hashes
from nonvacuous.errors import BadInput

#: Versions of inputs and labels, and the hashes of the examples as they were then.
_Hashes = tuple[tuple[int, ...], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Examples:
    """Labeled examples for classification.

    inputs          (examples, ...) float32
    labels          (examples,) int64, values 0..classes-1
    class_names     one name per class, in the order of the labels
    name            where they come from, for messages and reports
    preprocessing   the fixed steps that made `inputs` from the stored data, in order

    The tensors are not copied and must not be written to afterwards.
    """

    inputs: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    name: str
    preprocessing: tuple[str, ...] = ()
    #: They are the training part of data that come with a test part.
    beside_test: bool = False
    _known_hashes: _Hashes | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "preprocessing", tuple(self.preprocessing))
        check_structure(self)
        if self.inputs.requires_grad:
            object.__setattr__(self, "inputs", self.inputs.detach())  # the same memory

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def example_shape(self) -> tuple[int, ...]:
        """The shape of one input, such as (1, 28, 28)."""
        return tuple(self.inputs.shape[1:])

    @property
    def steps(self) -> str:
        """The preprocessing in words."""
        return "; ".join(self.preprocessing) or "as given"

    def class_counts(self, indices: np.ndarray | None = None) -> tuple[int, ...]:
        """How many examples each class has, among those at these positions or among all."""
        labels = self.labels.cpu().numpy()
        chosen = labels if indices is None else labels[indices]
        return tuple(np.bincount(chosen, minlength=self.classes).tolist())

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> Examples:
        """The examples at these positions, in this order."""
        positions = checked_positions(indices, f"{self.name}: a subset", below=len(self))
        if np.array_equal(positions, np.arange(len(self))):
            return self.to(self.labels.device)  # all of them: the same tensors, not a copy
        chosen = torch.from_numpy(positions).to(self.labels.device)
        return self._changed(positions, inputs=self.inputs[chosen], labels=self.labels[chosen])

    def prepared(self, inputs: Tensor, *steps: str) -> Examples:
        """The same examples with the inputs that these steps made of theirs."""
        return replace(self, inputs=inputs, preprocessing=(*self.preprocessing, *steps))

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on another device."""
        return self._changed(inputs=self.inputs.to(device), labels=self.labels.to(device))

    def content_hashes(self) -> np.ndarray:
        """One sha256 per example over input and label, as dtype ``S64``; computed once."""
        return self._hashes()[0]

    def input_hashes(self) -> np.ndarray:
        """One sha256 per example over the input alone, so that relabeled copies are found too."""
        return self._hashes()[1]

    def content_hash(self) -> str:
        """One sha256 over all examples in their order."""
        return hash_of_hashes(self.content_hashes())

    @staticmethod
    def of(
        anything: Any, *, class_names: Sequence[str] | None = None, name: str | None = None
    ) -> Examples:
        """Examples from what people have at hand, checked.

        Accepted: Examples; a path or a name, as for ``nv.data.load``, or what that gives, of which
        the training part is taken; a pair (inputs, labels) of tensors, numpy arrays, pandas frames
        or nested lists; one frame with a label column; a torch Dataset whose items are (input,
        label), or a DataLoader, whose dataset is read. Shapes are kept as given, since the network
        was built for them; 8-bit unsigned inputs are divided by 255.
        """
        if isinstance(anything, Dataset | str | os.PathLike):
            anything = Dataset.of(anything, class_names=class_names).train
        if isinstance(anything, Examples):
            given: dict[str, Any] = {"name": name, "class_names": class_names}
            changes = {field: value for field, value in given.items() if value is not None}
            return replace(anything, **changes) if changes else anything
        where = name or "examples"
        inputs, labels = read_pair(anything, where=where)
        input_tensor, steps = as_inputs(inputs, where=where)
        label_tensor, names = as_labels(labels, where=where, class_names=class_names)
        if len(input_tensor) != len(label_tensor):
            raise BadInput(
                f"{where}: {len(input_tensor)} inputs but {len(label_tensor)} labels; "
                "every example needs one of each"
            )
        check_finite(input_tensor, where=where)
        return Examples(input_tensor, label_tensor.to(input_tensor.device), names, where, steps)

    def _versions(self) -> tuple[int, ...]:
        # torch counts in-place writes; hashes from before such a write are worthless.
        return tuple(-1 if t.is_inference() else t._version for t in (self.inputs, self.labels))

    def _hashes(self) -> tuple[np.ndarray, np.ndarray]:
        if self._known_hashes is None or self._known_hashes[0] != self._versions():
            known = self._versions(), hash_examples(self.inputs, self.labels)
            object.__setattr__(self, "_known_hashes", known)
        assert self._known_hashes is not None
        return self._known_hashes[1]

    def _changed(self, positions: np.ndarray | None = None, **changes: Any) -> Examples:
        """The examples at these positions, changed; their hashes stay known where they are."""
        other = replace(self, **changes)
        if self._known_hashes is not None and self._known_hashes[0] == self._versions():
            hashes = self._known_hashes[1]
            if positions is not None:
                hashes = hashes[0][positions], hashes[1][positions]
            for each in hashes:
                each.setflags(write=False)
            object.__setattr__(other, "_known_hashes", (other._versions(), hashes))
        return other


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set, and a test set where one is published apart from it."""

    #: What reads a path or a name. ``load`` enters itself: it reads into what is defined here.
    reader: ClassVar[Callable[..., Dataset]]

    train: Examples
    test: Examples | None = None
    #: Arrays of the file that were not read.
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.test is None:
            return
        if self.test.example_shape != self.train.example_shape:
            raise BadInput(
                f"{self.train.name}: training inputs have shape {self.train.example_shape} but "
                f"test inputs have shape {self.test.example_shape}; they must be equal"
            )
        if self.test.class_names != self.train.class_names:
            raise BadInput(
                f"{self.train.name}: training and test set name different classes; "
                "give both the same class_names"
            )
        object.__setattr__(self, "train", self.train._changed(beside_test=True))

    @staticmethod
    def of(anything: Any, *, class_names: Sequence[str] | None = None) -> Dataset:
        """A data set from a path, a name or whatever ``Examples.of`` takes."""
        if isinstance(anything, str | os.PathLike):
            return Dataset.reader(os.fspath(anything), class_names=class_names)
        if isinstance(anything, Dataset):
            return anything
        return Dataset(Examples.of(anything, class_names=class_names))

    @staticmethod
    def read(
        reader: Callable[..., Examples],
        train: Any,
        test: Any,
        *,
        name: str,
        class_names: Sequence[str] | None,
        unused: tuple[str, ...] = (),
    ) -> Dataset:
        """Both parts by one reader; the test part (None if there is none) has the same classes."""
        first = reader(train, name=name, class_names=class_names)
        if test is None:
            return Dataset(first, unused=unused)
        second = reader(test, name=f"{name} (test)", class_names=first.class_names)
        return Dataset(first, second, unused)

    @property
    def name(self) -> str:
        """The name of the training set."""
        return self.train.name


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


def checked_positions(
    indices: Sequence[int] | np.ndarray | Tensor, what: str, *, below: int | None = None
) -> np.ndarray:
    """Positions of examples as int64: a flat list of whole numbers from 0 up."""
    array = np.asarray(indices.cpu() if isinstance(indices, Tensor) else indices)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise BadInput(
            f"{what} must be a list of integer positions, not an array of shape {array.shape} and "
            f"dtype {array.dtype} (for a mask use numpy.flatnonzero(mask))"
        )
    array = array.astype(np.int64)
    if array.size and array.min() < 0:
        raise BadInput(f"{what} has the negative position {int(array.min())}")
    if below is not None and array.size and array.max() >= below:
        raise BadInput(f"{what} has position {int(array.max())}, outside 0..{below - 1}")
    return array
