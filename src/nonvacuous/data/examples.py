"""Examples: inputs and labels that belong together, and a Dataset of a training and a test set."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from nonvacuous.data.checks import check_finite, check_structure
from nonvacuous.data.convert import as_inputs, as_labels, read_pair
from nonvacuous.data.files import hash_examples, hash_of_hashes
from nonvacuous.errors import BadInput


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "preprocessing", tuple(self.preprocessing))
        check_structure(self)

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
        positions = self._positions(indices)
        if np.array_equal(positions, np.arange(len(self))):
            return self.to(self.labels.device)  # all of them: the same tensors, not a copy
        chosen = torch.from_numpy(positions).to(self.labels.device)
        part = replace(self, inputs=self.inputs[chosen], labels=self.labels[chosen])
        self._hand_over_hashes(part, positions)
        return part

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on another device."""
        moved = replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))
        self._hand_over_hashes(moved, None)
        return moved

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
            changes: dict[str, Any] = {} if name is None else {"name": name}
            if class_names is not None:
                changes["class_names"] = tuple(class_names)
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

    def _positions(self, indices: Sequence[int] | np.ndarray | Tensor) -> np.ndarray:
        array = indices.detach().cpu().numpy() if isinstance(indices, Tensor) else indices
        array = np.asarray(array)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise BadInput(
                f"{self.name}: subset needs a list of integer positions, not an array of shape "
                f"{array.shape} and dtype {array.dtype} (for a mask use numpy.flatnonzero(mask))"
            )
        if array.size and (int(array.min()) < 0 or int(array.max()) >= len(self)):
            worst = int(array.min()) if int(array.min()) < 0 else int(array.max())
            raise BadInput(f"{self.name}: position {worst} is outside 0..{len(self) - 1}")
        return np.array(array, dtype=np.int64)

    def _versions(self) -> tuple[int, int]:
        # torch counts in-place writes; hashes from before such a write are worthless.
        return (
            -1 if self.inputs.is_inference() else self.inputs._version,
            -1 if self.labels.is_inference() else self.labels._version,
        )

    def _hashes(self) -> tuple[np.ndarray, np.ndarray]:
        cached = self.__dict__.get("_known_hashes")
        if cached is None or cached[0] != self._versions():
            cached = (self._versions(), hash_examples(self.inputs, self.labels))
            object.__setattr__(self, "_known_hashes", cached)
        hashes: tuple[np.ndarray, np.ndarray] = cached[1]
        return hashes

    def _hand_over_hashes(self, other: Examples, positions: np.ndarray | None) -> None:
        cached = self.__dict__.get("_known_hashes")
        if cached is None or cached[0] != self._versions():
            return
        hashes = cached[1] if positions is None else tuple(each[positions] for each in cached[1])
        for each in hashes:
            each.setflags(write=False)
        object.__setattr__(other, "_known_hashes", (other._versions(), hashes))


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
        marked = replace(self.train, beside_test=True)
        self.train._hand_over_hashes(marked, None)
        object.__setattr__(self, "train", marked)

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
