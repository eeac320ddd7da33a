"""The data of every condition: what was done to it, drawn once for every seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nonvacuous.data import Dataset, Examples, check_examples, split_examples
from nonvacuous.errors import BadInput
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.randomization.rademacher import sign_vectors
from nonvacuous.randomization.registry import parse_corruption
from nonvacuous.seeds import derived_seed

#: The part that is kept for testing where the data set brings no test examples.
_TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Condition:
    """Data to train and test on.

    name        such as "true", "partial:0.4" or "gaussian"
    kind        what was changed: "nothing", "labels" or "inputs"
    true        the true labels of the training examples
    corrupted   training examples whose label was redrawn, also where it came out the same; None
                where no label was touched
    noise       the share of labels that were redrawn uniformly, by design; None for other changes
    """

    name: str
    kind: str
    train: Examples
    test: Examples
    true: Tensor
    corrupted: Tensor | None
    noise: float | None


def with_test(dataset: Dataset, *, seed: int) -> Dataset:
    """The data set with a test part, split off by chance if it has none of its own."""
    check_examples(dataset.train)
    if dataset.test is not None:
        return dataset
    parts = split_examples(
        dataset.train,
        prior_fraction=0.0,
        heldout_fraction=_TEST_SHARE,
        seed=derived_seed(seed, "test part"),
    )
    return Dataset(
        dataset.train.subset(parts.bound),
        replace(dataset.train.subset(parts.heldout), name=f"{dataset.train.name} (held out)"),
    )


def standardized(dataset: Dataset) -> Dataset:
    """The inputs shifted and scaled by one mean and one deviation, those of all training inputs.

    One number each for all pixels: whatever is done to single pixels afterwards does the same as
    before. No label is looked at.
    """
    inputs = dataset.train.inputs
    mean = float(inputs.mean(dtype=torch.float64))
    deviation = float((inputs - mean).square_().mean(dtype=torch.float64)) ** 0.5
    if not deviation > 0.0:
        raise BadInput(
            f"{dataset.name}: all inputs are the same number ({mean:g}); there is nothing to learn"
        )
    step = f"(x - {mean:.6g}) / {deviation:.6g}"

    def changed(examples: Examples) -> Examples:
        return replace(
            examples,
            inputs=(examples.inputs - mean) / deviation,
            preprocessing=(*examples.preprocessing, step),
        )

    test = None if dataset.test is None else changed(dataset.test)
    return Dataset(changed(dataset.train), test)


def corrupted_condition(dataset: Dataset, text: str, *, seed: int) -> Condition:
    """One condition for one seed: every seed has its own draw of labels, permutations and noise."""
    spec = parse_corruption(text)
    made = corrupt(dataset, text, seed=derived_seed(seed, "corruption"))
    assert made.test is not None, "with_test comes first"
    what = spec.corruption.what
    return Condition(
        name=str(spec),
        kind=what,
        train=made.train,
        test=made.test,
        true=dataset.train.labels,
        corrupted=made.corrupted if what == "labels" else None,
        noise=noise_of(text),
    )


def noise_of(text: str) -> float | None:
    """The share of labels drawn anew, where they are drawn uniformly; else None.

    >>> noise_of("true"), noise_of("partial:0.4"), noise_of("random-labels"), noise_of("gaussian")
    (0.0, 0.4, 1.0, None)
    """
    spec = parse_corruption(text)
    if spec.corruption.name in ("partial", "random-labels"):
        return spec.strength
    return 0.0 if spec.corruption.what == "nothing" else None


def permuted_conditions(dataset: Dataset, count: int, *, seed: int) -> list[Condition]:
    """The same inputs with the same labels, dealt out anew: whatever tied them together is gone."""
    rows = []
    for number in range(count):
        order = np.random.default_rng(derived_seed(seed, "permutation", number))
        permuted = dataset.train.labels[torch.from_numpy(order.permutation(len(dataset.train)))]
        rows.append(_relabeled(dataset, f"permuted-{number + 1}", permuted))
    return rows


def sign_conditions(dataset: Dataset, count: int, *, seed: int) -> list[Condition]:
    """The same inputs with random signs as labels: class 0 for -1 and class 1 for +1."""
    rows = sign_vectors(count, len(dataset.train), seed=seed)
    return [_relabeled(dataset, f"signs-{row + 1}", signs) for row, signs in enumerate(rows)]


def _relabeled(dataset: Dataset, name: str, labels: Tensor) -> Condition:
    assert dataset.test is not None
    train = replace(dataset.train, labels=labels.to(dataset.train.labels.device))
    return Condition(name, "labels", train, dataset.test, dataset.train.labels, None, 1.0)


def input_sets(conditions: Sequence[Condition]) -> tuple[list[Condition], list[int]]:
    """One condition for every different set of inputs, and which of them each condition uses."""
    firsts: list[Condition] = []
    places = []
    for condition in conditions:
        known = [first.train.inputs is condition.train.inputs for first in firsts]
        places.append(known.index(True) if any(known) else len(firsts))
        if not any(known):
            firsts.append(condition)
    return firsts, places
