"""Corruptions of a data set: drawn once from a seed, before training, and never on test labels.

To compare with published numbers corrupt after cropping and before whitening each image.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from scipy import stats
from torch import Tensor

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.errors import BadInput
from nonvacuous.randomization.registry import ImageRule, Setting, Spec, parse_corruption

Part = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class Corrupted:
    """A corrupted data set and what happened to it.

    train       the training examples, corrupted
    test        the test examples with their true labels. A corruption of inputs is applied to them
                too, since a network for shuffled pixels must be asked about shuffled pixels
    changed     (training examples,) bool: the label differs from the true one
    corrupted   (training examples,) bool: the example was touched. A label drawn anew at random may
                come out as it was, so that more examples are corrupted than changed
    spec, seed  what it was made with, for corrupt() again
    """

    train: Examples
    test: Examples | None
    changed: Tensor
    corrupted: Tensor
    spec: str
    seed: int


def corrupt(dataset: Dataset, spec: str, *, seed: int) -> Corrupted:
    """The data set with its training labels, or its inputs, replaced by noise.

    spec   "true", "partial:P", "random-labels", "shuffled-pixels", "random-pixels", "gaussian",
           or the name of a corruption of your own
    seed   the same seed gives the same corrupted data set, on every machine and device. Under one
           seed the labels changed by partial:0.3 are among those changed by partial:0.6, and
           partial:1 equals random-labels
    """
    drawn = _Drawn(dataset, spec, seed=seed)
    train = dataset.train.prepared(drawn.all_inputs("train"), *drawn.steps)
    test = dataset.test
    if test is not None and drawn.rule is not None:
        test = test.prepared(drawn.all_inputs("test"), *drawn.steps)
    return Corrupted(
        train=replace(train, labels=drawn.labels),
        test=test,
        changed=drawn.labels != dataset.train.labels,
        corrupted=drawn.mask,
        spec=str(drawn.spec),
        seed=seed,
    )


class CorruptedDataset(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """The examples of corrupt(...) one at a time: inputs are corrupted when they are read.

    Labels are drawn at construction. What an index gives depends on the seed and the index alone:
    not on the order of reading, the epoch, or the worker process of a DataLoader.

    part   "train", or "test" (true labels)
    """

    def __init__(self, dataset: Dataset, spec: str, *, seed: int, part: Part = "train") -> None:
        if part not in ("train", "test"):
            raise BadInput(f"CorruptedDataset: part = {part!r}; write 'train' or 'test'")
        self._made = partial(CorruptedDataset, dataset, spec, seed=seed, part=part)
        self._drawn, self._part = _Drawn(dataset, spec, seed=seed), part
        clean = self._drawn.clean(part)
        self._labels = self._drawn.labels if part == "train" else clean.labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a data set of {len(self)} examples")
        position = index % len(self)
        return self._drawn.one_input(self._part, position), int(self._labels[position])

    def __reduce__(self) -> tuple[Any, ...]:
        # Rules are functions inside functions, which do not travel to another process; what they
        # are made from does, and they come out the same there.
        return self._made, ()


class _Drawn:
    """Everything random about one corruption of one data set, drawn and checked."""

    def __init__(self, dataset: Dataset, spec: str, *, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise BadInput(f"corruption {spec}: seed = {seed!r} is not a whole number")
        self.spec = parse_corruption(spec)
        self.dataset = dataset
        self.setting = Setting(dataset.train, self.spec.strength, seed)
        self.labels = dataset.train.labels
        self.mask = torch.zeros_like(self.labels, dtype=torch.bool)
        self.rule: ImageRule | None = None
        corruption = self.spec.corruption
        if corruption.what == "labels":
            self.labels, self.mask = _drawn_labels(self.spec, self.setting)
        elif corruption.what == "inputs":
            self.rule = corruption.apply(self.setting)
            self.mask = ~self.mask

    @property
    def steps(self) -> tuple[str, ...]:
        """What it adds to the preprocessing."""
        changes = self.spec.corruption.what != "nothing"
        return (f"corruption {self.spec}, seed {self.setting.seed}",) if changes else ()

    def clean(self, part: Part) -> Examples:
        examples = self.dataset.train if part == "train" else self.dataset.test
        if examples is None:
            raise BadInput(
                f"{self.dataset.name} has no test set; read its training part, or split one off "
                "first"
            )
        return examples

    def one_input(self, part: Part, index: int) -> Tensor:
        clean = self.clean(part)
        value = clean.inputs[index]
        if self.rule is None:
            return value
        result = self.rule(value, self.setting.generator(f"{part} inputs", index))
        kind = (value.shape, value.dtype)
        if not isinstance(result, Tensor) or (result.shape, result.dtype) != kind:
            raise BadInput(
                f"corruption {self.spec}: for input {index} of {clean.name} it returned "
                f"{_described(result)}, not a tensor of dtype {value.dtype} and shape "
                f"{tuple(value.shape)} like the input; mend its function"
            )
        return result

    def all_inputs(self, part: Part) -> Tensor:
        clean = self.clean(part).inputs
        if self.rule is None:
            return clean
        result = torch.empty_like(clean)
        for index in range(len(clean)):
            result[index] = self.one_input(part, index)
        return result


def _drawn_labels(spec: Spec, setting: Setting) -> tuple[Tensor, Tensor]:
    train = setting.train
    drawn = spec.corruption.apply(setting)
    if not isinstance(drawn, tuple) or len(drawn) != 2:
        raise BadInput(
            f"corruption {spec}: its function returned {_described(drawn)}; it must return the "
            "pair (new labels, mask of the examples drawn anew)"
        )
    labels, mask = (torch.as_tensor(part, device=train.labels.device) for part in drawn)
    if labels.shape != train.labels.shape or mask.shape != labels.shape:
        raise BadInput(
            f"corruption {spec}: it returned labels of shape {tuple(labels.shape)} and a mask of "
            f"shape {tuple(mask.shape)} for {len(train)} examples; give one of each per example"
        )
    if labels.is_floating_point() or mask.dtype != torch.bool:
        raise BadInput(
            f"corruption {spec}: it returned labels of {labels.dtype} and a mask of {mask.dtype}; "
            "labels must be integers and the mask boolean"
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < train.classes:
        raise BadInput(
            f"corruption {spec}: it returned labels from {int(labels.min())} to "
            f"{int(labels.max())}; there are classes 0 to {train.classes - 1} only"
        )
    labels = labels.to(torch.int64)
    if bool(((labels != train.labels) & ~mask).any()):
        raise BadInput(
            f"corruption {spec}: it changed labels outside the mask that it returned; the mask "
            "must contain every example that was drawn anew"
        )
    return labels, mask


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of dtype {value.dtype} and shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


#: A false alarm of the test of independence once in a million corruptions is rare enough.
_SMALLEST_P_VALUE = 1e-6
#: With this many expected examples per cell, an empty cell among 100 is a matter of one in 10,000.
_EXPECTED_PER_CELL = 14.0
_READ = 64


def corruption_findings(
    spec: str, dataset: Dataset, *, seed: int = 0, workers: int = 0
) -> tuple[str, ...]:
    """Everything that is wrong with a corruption, one sentence each; empty when nothing is.

    dataset   with a test set; some ten thousand examples make the test of independence sharp
    workers   processes that read the examples in the last check; 0 reads them here
    """
    parsed = parse_corruption(spec)
    clean = copy.deepcopy(dataset)
    first, again, other = (corrupt(dataset, spec, seed=own) for own in (seed, seed, seed + 1))
    return (
        *_drawn_once(parsed, first, again, other),
        *_kept(parsed, dataset, clean, first),
        *_independent(parsed, dataset, first),
        *_lazy(spec, dataset, first, seed=seed, workers=workers),
    )


def _drawn_once(spec: Spec, first: Corrupted, again: Corrupted, other: Corrupted) -> Iterator[str]:
    def equal(made: Corrupted) -> bool:
        return _same(first.train, made.train) and _same(first.test, made.test)

    if not equal(again):
        yield (
            "two calls with the same seed give different data: draw with setting.generator, not "
            "with a global generator"
        )
    if spec.corruption.what != "nothing" and spec.strength > 0 and equal(other):
        yield "two different seeds give the same data: the seed is not used"


def _kept(spec: Spec, dataset: Dataset, clean: Dataset, made: Corrupted) -> Iterator[str]:
    what = spec.corruption.what
    for part, given, before, after in (
        ("training", dataset.train, clean.train, made.train),
        ("test", dataset.test, clean.test, made.test),
    ):
        if not _same(given, before):
            yield f"the {part} examples that were given have been written to: work on a copy"
        if what != "inputs" and not _same(after, before, "inputs"):
            yield f"{part} inputs changed although only labels may: what = {what!r}"
    if not _same(made.test, clean.test, "labels"):
        yield (
            "test labels are corrupted: then nothing tells whether the network learned; only "
            "training labels may change"
        )
    if what != "labels" and not _same(made.train, clean.train, "labels"):
        yield f"training labels changed although only inputs may: what = {what!r}"
    if not torch.equal(made.changed, made.train.labels != clean.train.labels):
        yield "the mask `changed` is not where the labels differ from the true ones"


def _independent(spec: Spec, dataset: Dataset, made: Corrupted) -> Iterator[str]:
    """At full strength, the table of (true, new) labels must be that of independent draws."""
    if spec.corruption.what != "labels" or not spec.corruption.independent or spec.strength < 1:
        return
    classes = dataset.train.classes
    pairs = dataset.train.labels * classes + made.train.labels
    table = torch.bincount(pairs, minlength=classes**2).reshape(classes, classes).double()
    table = table[table.sum(1) > 0]
    expected = table.sum(1, keepdim=True) / classes
    empty = int((table == 0).sum())
    if empty and float(expected.min()) >= _EXPECTED_PER_CELL:
        yield (
            f"{empty} of the {table.numel()} pairs (true label, new label) never occur: the new "
            "labels follow the old ones, and a network can learn them"
        )
    used = table[:, table.sum(0) > 0]
    p_value = 1.0 if len(used) < 2 else 0.0
    if min(used.shape) > 1:
        p_value = float(stats.chi2_contingency(used.numpy(), correction=False).pvalue)
    if p_value < _SMALLEST_P_VALUE:
        yield (
            f"new labels depend on true labels (chi-square test, p = {p_value:.1e}): what is left "
            "can be learned; draw them independently, or register with independent=False"
        )


def _lazy(
    spec: str, dataset: Dataset, made: Corrupted, *, seed: int, workers: int
) -> Iterator[str]:
    parts: list[tuple[Part, Examples | None]] = [("train", made.train), ("test", made.test)]
    for part, eager in parts:
        if eager is None:
            continue
        lazy = CorruptedDataset(dataset, spec, seed=seed, part=part)
        order = range(min(_READ, len(eager)))
        loader = torch.utils.data.DataLoader(lazy, batch_size=32, num_workers=workers)
        forward = _stacked(eager, [lazy[index] for index in order])
        backward = _stacked(eager, [lazy[index] for index in reversed(order)][::-1])
        loaded = _stacked(eager, [item for batch in loader for item in zip(*batch, strict=True)])
        if not _same(forward, backward):
            yield (
                f"{part} examples differ each time they are read: nothing fixed is there to be "
                "memorized; draw once, by seed and index"
            )
        elif not _same(forward, eager.subset(order)):
            yield f"{part} examples read one at a time differ from those of corrupt()"
        if not _same(loaded, eager):
            where = f"{workers} worker processes" if workers else "a DataLoader"
            yield f"{part} examples read by {where} differ from those of corrupt()"


def _stacked(like: Examples, items: list[tuple[Tensor, int]]) -> Examples:
    inputs = torch.stack([item[0] for item in items])
    labels = torch.tensor([int(item[1]) for item in items], device=inputs.device)
    return replace(like, inputs=inputs, labels=labels)


def _same(one: Examples | None, two: Examples | None, *fields: str) -> bool:
    """Whether the inputs and labels of two sets of examples are equal, or there are none."""
    if one is None or two is None:
        return one is two
    names = fields or ("inputs", "labels")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)
