"""What the networks of the study of measures learn from and are tested on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.papers.measures.settings import Cell, MeasuresCell
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.seeds import derived_seed
from nonvacuous.study.study import Context


@dataclass(frozen=True, eq=False)
class StudyMaterial:
    """The largest training set, in a random order, with one row of labels per level of noise.

    A network with n examples sees the first n: smaller sets are parts of larger ones, and labels
    that are wrong at one level of noise are wrong at every higher one.
    """

    inputs: Tensor
    labels: Tensor
    levels: tuple[float, ...]
    test_inputs: Tensor
    test_labels: Tensor
    classes: int

    @classmethod
    def of(cls, settings: MeasuresCell, at: Context) -> StudyMaterial:
        """Load the data, make it as small as the settings say, and draw what is random."""
        dataset = at.dataset(settings.data)
        if dataset.test is None:
            raise BadInput(f"{dataset.name} has no test set; without one there is no gap")
        most = settings.most
        if most > len(dataset.train):
            raise BadInput(
                f"examples asks for {most}, but {dataset.name} has {len(dataset.train)} training "
                "examples; ask for fewer"
            )
        seed = derived_seed(settings.seed, "measures study", "examples")
        order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(seed))
        used = dataset.train.subset(order[:most])
        tested, truth = dataset.test.inputs, dataset.test.labels
        if settings.unused_as_test and most < len(dataset.train):
            rest = dataset.train.subset(order[most:])
            tested = torch.cat([tested, rest.inputs])
            truth = torch.cat([truth, rest.labels])
        return cls(
            inputs=_pooled(used.inputs, settings.pool),
            labels=_noisy(replace(dataset, train=used), settings),
            levels=settings.levels,
            test_inputs=_pooled(tested, settings.pool),
            test_labels=truth,
            classes=dataset.train.classes,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return tuple(self.inputs.shape[1:])

    def row(self, cell: Cell) -> int:
        """Which row of the labels a network learns."""
        return self.levels.index(cell.label_noise)

    def training_set(self, cell: Cell) -> tuple[Tensor, Tensor]:
        """The inputs and labels, wrong ones included, that a network learns from."""
        return self.inputs[: cell.examples], self.labels[self.row(cell), : cell.examples]


def _noisy(dataset: Dataset, settings: MeasuresCell) -> Tensor:
    seed = derived_seed(settings.seed, "measures study", "labels")
    specs = ["true" if level == 0 else f"partial:{level:g}" for level in settings.levels]
    return torch.stack([corrupt(dataset, spec, seed=seed).train.labels for spec in specs])


def _pooled(inputs: Tensor, pool: int) -> Tensor:
    if pool == 1:
        return inputs
    if inputs.ndim != 4 or min(inputs.shape[2:]) < pool:
        raise BadInput(
            f"pool = {pool} averages squares of pixels, but the inputs have the shape "
            f"{tuple(inputs.shape[1:])}; set pool = 1"
        )
    return avg_pool2d(inputs, pool)
