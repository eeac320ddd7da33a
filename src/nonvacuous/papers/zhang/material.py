"""What the networks of the randomization paper see: images and labels, true or corrupted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nonvacuous.data import Dataset
from nonvacuous.data.preprocessing import cropped
from nonvacuous.papers.zhang.networks import Cell
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.randomization.registry import parse_corruption
from nonvacuous.seeds import derived_seed


class Material:
    """The inputs and labels that a group's networks see: every distinct one once.

    Corruption comes after the central crop and before whitening. Where only labels are corrupted,
    the images stay whole, so that training can crop them at random.
    """

    def __init__(
        self, cells: Sequence[Cell], dataset: Dataset, *, crop: int | None, seed: int
    ) -> None:
        seed = derived_seed(seed, "corruption")
        self._input_of: dict[str, int] = {}
        self._label_of: dict[str, int] = {}
        self.inputs: list[Tensor] = []
        self.test: list[tuple[Tensor, Tensor]] = []
        labels: list[Tensor] = []
        marked: list[Tensor] = []
        assert dataset.test is not None
        for corruption in dict.fromkeys(cell.corruption for cell in cells):
            spoils_inputs = parse_corruption(corruption).corruption.what == "inputs"
            source = corruption if spoils_inputs else "whole images"
            shown = dataset
            if spoils_inputs and crop is not None:
                shown = cropped(dataset, crop)
            drawn = corrupt(shown, corruption, seed=seed)
            if source not in self._input_of:
                self._input_of[source] = len(self.inputs)
                self.inputs.append(drawn.train.inputs)
                assert drawn.test is not None
                self.test.append((drawn.test.inputs, dataset.test.labels))
            self._input_of[corruption] = self._input_of[source]
            self._label_of[corruption] = len(labels)
            labels.append(drawn.train.labels)
            marks = drawn.corrupted if not spoils_inputs else torch.zeros_like(drawn.corrupted)
            marked.append(marks)
        self.labels = torch.stack(labels)
        self.marked = torch.stack(marked)

    def input_set(self, cell: Cell) -> int:
        """Which of the input sets a network sees."""
        return self._input_of[cell.corruption]

    def label_row(self, cell: Cell) -> int:
        """Which row of the labels a network learns."""
        return self._label_of[cell.corruption]

    def redrawn(self, cell: Cell) -> int:
        """How many of a network's training labels were redrawn."""
        return int(self.marked[self.label_row(cell)].sum())
