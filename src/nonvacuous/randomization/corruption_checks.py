"""What every corruption must keep to: the conformance suite, as a list of findings.

The mistakes it looks for have all been made in published code: labels drawn again each time an
example is read, so that nothing fixed is there to be memorized; test labels corrupted with the
training labels, so that chance looks like generalization; classes merely renamed, which is as easy
to learn as the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from scipy import stats
from torch import Tensor

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.randomization.corruptions import Corrupted, CorruptedDataset, Part, corrupt
from nonvacuous.randomization.registry import Spec, parse_corruption

#: A false alarm of the test of independence once in a million corruptions is rare enough.
_SMALLEST_P_VALUE = 1e-6
#: With this many expected examples per cell, an empty cell among 100 is a matter of one in 10,000.
_EXPECTED_PER_CELL = 14.0
_READ = 64

Pair = tuple[Tensor, Tensor]
"""Inputs and labels."""


class MakesView(Protocol):
    """How :class:`CorruptedDataset` is called."""

    def __call__(
        self, dataset: Dataset, spec: str, *, seed: int, part: Part
    ) -> torch.utils.data.Dataset[tuple[Tensor, int]]: ...


class Corrupts(Protocol):
    """How :func:`corrupt` is called."""

    def __call__(self, dataset: Dataset, spec: str, *, seed: int) -> Corrupted: ...


def corruption_findings(
    spec: str,
    dataset: Dataset,
    *,
    seed: int = 0,
    workers: int = 0,
    corrupting: Corrupts = corrupt,
    view: MakesView = CorruptedDataset,
) -> tuple[str, ...]:
    """Everything that is wrong with a corruption, one sentence each; empty when nothing is.

    dataset            with a test set; some ten thousand examples make the test of independence
                       sharp
    workers            processes that read the examples in the last check; 0 reads them here
    corrupting, view   other ways to corrupt, eager and lazy, put to the same tests
    """
    parsed = parse_corruption(spec)
    before = (_copied(dataset.train), None if dataset.test is None else _copied(dataset.test))
    first = corrupting(dataset, spec, seed=seed)
    again = corrupting(dataset, spec, seed=seed)
    other = corrupting(dataset, spec, seed=seed + 1)
    findings = [
        *_drawn_once(parsed, first, again, other),
        *_kept(parsed, dataset, before, first),
        *_independent(parsed, dataset, first),
        *_lazy(spec, dataset, first, seed=seed, workers=workers, view=view),
    ]
    return tuple(findings)


def _drawn_once(spec: Spec, first: Corrupted, again: Corrupted, other: Corrupted) -> Iterator[str]:
    if not _equal(first, again):
        yield (
            "two calls with the same seed give different data: draw with setting.generator, not "
            "with a global generator"
        )
    if spec.corruption.what != "nothing" and spec.strength > 0 and _equal(first, other):
        yield "two different seeds give the same data: the seed is not used"


def _kept(
    spec: Spec, dataset: Dataset, before: tuple[Pair, Pair | None], made: Corrupted
) -> Iterator[str]:
    clean_train, clean_test = before
    given, what = "that were given have been written to: work on a copy", spec.corruption.what
    if not _same(_pair(dataset.train), clean_train):
        yield f"the training examples {given}"
    if dataset.test is not None and not _same(_pair(dataset.test), clean_test):
        yield f"the test examples {given}"
    made_test = None if made.test is None else _pair(made.test)
    if not _same_entry(made_test, clean_test, 1):
        yield (
            "test labels are corrupted: then nothing tells whether the network learned; only "
            "training labels may change"
        )
    if what != "inputs" and not _same_entry(_pair(made.train), clean_train, 0):
        yield f"training inputs changed although only labels may: what = {what!r}"
    if what != "inputs" and not _same_entry(made_test, clean_test, 0):
        yield f"test inputs changed although only labels may: what = {what!r}"
    if what != "labels" and not _same_entry(_pair(made.train), clean_train, 1):
        yield f"training labels changed although only inputs may: what = {what!r}"
    if not torch.equal(made.changed, made.train.labels != clean_train[1]):
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
    if used.shape[1] > 1 and used.shape[0] > 1:
        p_value = float(stats.chi2_contingency(used.numpy(), correction=False).pvalue)
    else:
        p_value = 1.0 if used.shape[0] < 2 else 0.0
    if p_value < _SMALLEST_P_VALUE:
        yield (
            f"new labels depend on true labels (chi-square test, p = {p_value:.1e}): what is left "
            "can be learned; draw them independently, or register with independent=False"
        )


def _lazy(
    spec: str, dataset: Dataset, made: Corrupted, *, seed: int, workers: int, view: MakesView
) -> Iterator[str]:
    parts: list[tuple[Part, Examples | None]] = [("train", made.train), ("test", made.test)]
    for part, eager in parts:
        if eager is None:
            continue
        lazy = view(dataset, spec, seed=seed, part=part)
        count = min(_READ, len(eager))
        forward = [lazy[index] for index in range(count)]
        backward = [lazy[index] for index in reversed(range(count))][::-1]
        if not _same(_stacked(forward), _stacked(backward)):
            yield (
                f"{part} examples differ each time they are read: nothing fixed is there to be "
                "memorized; draw once, by seed and index"
            )
        elif not _same(_stacked(forward), (eager.inputs[:count], eager.labels[:count])):
            yield f"{part} examples read one at a time differ from those of corrupt()"
        loader = torch.utils.data.DataLoader(lazy, batch_size=32, num_workers=workers)
        batches = list(loader)
        loaded = (torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches]))
        if not _same(loaded, _pair(eager)):
            where = f"{workers} worker processes" if workers else "a DataLoader"
            yield f"{part} examples read by {where} differ from those of corrupt()"


def _stacked(items: list[tuple[Tensor, int]]) -> Pair:
    inputs = torch.stack([item[0] for item in items])
    return inputs, torch.tensor([item[1] for item in items], device=inputs.device)


def _pair(examples: Examples) -> Pair:
    return examples.inputs, examples.labels


def _copied(examples: Examples) -> Pair:
    return examples.inputs.clone(), examples.labels.clone()


def _same(one: Pair | None, two: Pair | None) -> bool:
    return _same_entry(one, two, 0) and _same_entry(one, two, 1)


def _same_entry(one: Pair | None, two: Pair | None, entry: int) -> bool:
    if one is None or two is None:
        return one is two
    return torch.equal(one[entry], two[entry])


def _equal(one: Corrupted, two: Corrupted) -> bool:
    tests = [None if made.test is None else _pair(made.test) for made in (one, two)]
    return _same(_pair(one.train), _pair(two.train)) and _same(*tests)
