"""The suite that every corruption inherits, and proof that it catches the known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from nonvacuous.data import Dataset, Examples
from nonvacuous.randomization import (
    CORRUPTIONS,
    Corrupted,
    CorruptedDataset,
    Setting,
    corrupt,
    corruption_findings,
    corruptions,
    register_corruption,
)

CLASSES = 10


def examples(count: int, seed: int, shape: tuple[int, ...] = (3, 4, 4)) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    inputs = torch.rand((count, *shape), generator=generator) + labels.reshape(
        -1, *[1] * len(shape)
    )
    return Examples(inputs, labels, tuple("0123456789"), "a small world")


WORLD = Dataset(examples(2500, 0), examples(200, 1))


def full(name: str) -> str:
    return f"{name}:1" if CORRUPTIONS[name].takes_strength else name


@pytest.fixture
def registered() -> Iterator[None]:
    before = dict(CORRUPTIONS)
    yield
    for name in set(CORRUPTIONS) - set(before):
        CORRUPTIONS.pop(name)


@pytest.mark.slow_if("pixels", "gaussian")
@pytest.mark.parametrize("name", sorted(CORRUPTIONS))
@pytest.mark.parametrize("seed", [0, 7])
def test_nothing_is_found_wrong(name: str, seed: int) -> None:
    assert corruption_findings(full(name), WORLD, seed=seed) == ()


@pytest.mark.slow_if("gaussian", "random-pixels", "shuffled-pixels")
@pytest.mark.parametrize("name", sorted(CORRUPTIONS))
def test_worker_processes_read_the_same(name: str) -> None:
    small = Dataset(WORLD.train.subset(range(200)), WORLD.test)
    assert corruption_findings(full(name), small, workers=2) == ()


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_change_rate(strength: float) -> None:
    big = Dataset(examples(40_000, 3, (1,)))
    made = corrupt(big, f"partial:{strength}", seed=5)
    for mask, rate in [(made.corrupted, strength), (made.changed, (1 - 1 / CLASSES) * strength)]:
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], len(big.train), rate)
        assert low <= int(mask.sum()) <= high
    assert bool((made.corrupted | ~made.changed).all())


def test_all_cells_of_the_table_are_as_full_as_chance_makes_them() -> None:
    big = Dataset(examples(40_000, 3, (1,)))
    made = corrupt(big, "random-labels", seed=2)
    table = torch.zeros(CLASSES, CLASSES)
    for old, new in zip(big.train.labels.tolist(), made.train.labels.tolist(), strict=True):
        table[old, new] += 1
    assert (table > 0).all()
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3
    assert stats.chisquare(table.sum(0).numpy()).pvalue > 1e-3


# ------------------------------------------------------------------ mistakes, planted


def renaming(dataset: Dataset, spec: str, *, seed: int) -> Corrupted:
    """Classes renamed by one random permutation: looks random, is as learnable as the truth."""
    names = torch.from_numpy(np.random.default_rng(seed).permutation(CLASSES))
    labels = names[dataset.train.labels]
    changed = labels != dataset.train.labels
    train = replace(dataset.train, labels=labels)
    return Corrupted(train, dataset.test, changed, torch.ones_like(changed), spec, seed)


def corrupting_the_test_set_too(dataset: Dataset, spec: str, *, seed: int) -> Corrupted:
    made = corrupt(dataset, spec, seed=seed)
    assert dataset.test is not None
    test = corrupt(Dataset(dataset.test), spec, seed=seed + 100).train
    return replace(made, test=test)


class RedrawingInGetItem(CorruptedDataset):
    """Draws a new label each time an example is read."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        value, _ = super().__getitem__(index)
        return value, int(torch.randint(CLASSES, ()))


def test_renamed_classes_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruptions, "corrupt", renaming)
    found = corruption_findings("random-labels", WORLD)
    assert any("never occur" in finding for finding in found), found
    assert any("chi-square" in finding for finding in found), found


def test_corrupted_test_labels_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruptions, "corrupt", corrupting_the_test_set_too)
    found = corruption_findings("random-labels", WORLD)
    assert any("test labels are corrupted" in finding for finding in found), found


def test_redrawing_when_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruptions, "CorruptedDataset", RedrawingInGetItem)
    found = corruption_findings("random-labels", WORLD)
    assert any("differ each time they are read" in finding for finding in found), found


def test_lazily_equal_labels_in_another_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(CorruptedDataset):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return super().__getitem__((index + 1) % len(self))

    monkeypatch.setattr(corruptions, "CorruptedDataset", Shifted)
    found = corruption_findings("random-labels", WORLD)
    assert any("differ from those of corrupt()" in finding for finding in found), found


@pytest.mark.usefixtures("registered")
class TestUserDefined:
    """The same mistakes and some more, made by registering a corruption."""

    def test_renaming(self) -> None:
        @register_corruption("renamed", description="", what="labels")
        def renamed(setting: Setting) -> tuple[Tensor, Tensor]:
            labels = setting.train.labels
            names = torch.from_numpy(setting.generator("names").permutation(CLASSES))
            return names[labels], torch.ones_like(labels, dtype=torch.bool)

        found = corruption_findings("renamed", WORLD)
        assert any("chi-square" in finding for finding in found), found

    def test_a_little_dependence(self) -> None:
        """One label in ten kept: a table that looks full and still gives itself away."""

        @register_corruption("mostly", description="", what="labels")
        def mostly(setting: Setting) -> tuple[Tensor, Tensor]:
            random = setting.generator("mostly")
            count = len(setting.train)
            kept = random.random(count) < 0.1
            new = np.where(kept, setting.train.labels.numpy(), random.integers(0, CLASSES, count))
            return torch.from_numpy(new), torch.ones(count, dtype=torch.bool)

        found = corruption_findings("mostly", WORLD)
        assert len(found) == 1
        assert "chi-square" in found[0]

    @pytest.mark.slow
    def test_global_randomness(self) -> None:
        @register_corruption("restless", description="", what="inputs")
        def restless(setting: Setting):
            return lambda image, random: image + torch.rand(image.shape)

        found = corruption_findings("restless", WORLD)
        assert any("two calls with the same seed" in finding for finding in found), found
        assert any("differ each time they are read" in finding for finding in found), found

    def test_a_seed_that_is_not_used(self) -> None:
        @register_corruption("stubborn", description="", what="inputs")
        def stubborn(setting: Setting):
            return lambda image, random: -image

        found = corruption_findings("stubborn", WORLD)
        assert len(found) == 1
        assert "the seed is not used" in found[0]

    def test_writing_to_what_was_given(self) -> None:
        @register_corruption("writing", description="", what="labels")
        def writing(setting: Setting) -> tuple[Tensor, Tensor]:
            labels = setting.train.labels
            new = setting.generator("new").integers(0, CLASSES, len(labels))
            labels.copy_(torch.from_numpy(new))
            return labels, torch.ones_like(labels, dtype=torch.bool)

        own = Dataset(examples(500, 0), examples(50, 1))
        found = corruption_findings("writing", own)
        assert any("have been written to" in finding for finding in found), found

    def test_systematic_noise_is_allowed_when_it_says_so(self) -> None:
        @register_corruption("next-class", description="", what="labels", independent=False)
        def next_class(setting: Setting) -> tuple[Tensor, Tensor]:
            labels = setting.train.labels
            mask = torch.from_numpy(setting.generator("next").random(len(labels)) < 0.5)
            return torch.where(mask, (labels + 1) % CLASSES, labels), mask

        assert corruption_findings("next-class", WORLD) == ()

    def test_shuffling_labels_among_examples_passes(self) -> None:
        """Independent without being uniform: the marginal law of the labels is kept."""

        @register_corruption("dealt", description="", what="labels")
        def dealt(setting: Setting) -> tuple[Tensor, Tensor]:
            labels = setting.train.labels
            order = torch.from_numpy(setting.generator("deal").permutation(len(labels)))
            return labels[order], torch.ones_like(labels, dtype=torch.bool)

        assert corruption_findings("dealt", WORLD) == ()
