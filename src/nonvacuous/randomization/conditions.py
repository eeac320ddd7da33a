"""The data of every condition, drawn once for every seed, and what a certificate promises on it.

A bound that looks at data and labels may promise much on true labels. On labels that nobody can
predict it must not: a promise below the error that no predictor can avoid would be false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.certify import certify
from nonvacuous.data import Dataset, Examples, check_examples, split_examples
from nonvacuous.distributions.copying import copied_network
from nonvacuous.errors import BadInput, NonvacuousError
from nonvacuous.methods import Posterior
from nonvacuous.randomization.classical import sign_vectors
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.randomization.registry import parse_corruption
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.seeds import derived_seed
from nonvacuous.training.many_jobs import ManyExamples
from nonvacuous.training_settings import PlainTraining, PosteriorTraining

#: The part that is kept for testing where the data set brings no test examples.
_TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Condition:
    """Data to train and test on.

    name        such as "true", "partial:0.4" or "gaussian"
    true        the true labels of the training examples
    corrupted   training examples whose label was redrawn, also where it came out the same; None
                where no label was touched
    noise       the share of labels that were redrawn uniformly, by design; None for other changes
    """

    name: str
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
    if deviation in (0.0, math.inf):  # squares may leave float32
        deviation = float(inputs.double().std(correction=0))
    if not deviation > 0.0:
        raise BadInput(
            f"{dataset.name}: all inputs are the same number ({mean:g}); there is nothing to learn"
        )
    step = f"(x - {mean:.6g}) / {deviation:.6g}"

    def changed(examples: Examples) -> Examples:
        return examples.prepared((examples.inputs - mean) / deviation, step)

    test = None if dataset.test is None else changed(dataset.test)
    return Dataset(changed(dataset.train), test)


def corrupted_condition(dataset: Dataset, text: str, *, seed: int) -> Condition:
    """One condition for one seed: every seed has its own draw of labels, permutations and noise."""
    spec = parse_corruption(text)
    made = corrupt(dataset, text, seed=derived_seed(seed, "corruption"))
    assert made.test is not None, "with_test comes first"
    return Condition(
        name=str(spec),
        train=made.train,
        test=made.test,
        true=dataset.train.labels,
        corrupted=made.corrupted if spec.corruption.what == "labels" else None,
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
    return Condition(name, train, dataset.test, dataset.train.labels, None, 1.0)


def many_examples(
    conditions: Sequence[Condition], **options: Any
) -> tuple[ManyExamples, list[int]]:
    """What networks of these conditions learn from, every different set of inputs once.

    A row of labels for each condition; and for each which set of inputs it uses.
    """
    firsts: dict[int, Condition] = {}
    for condition in conditions:
        firsts.setdefault(id(condition.train.inputs), condition)
    marks = [
        torch.zeros_like(condition.train.labels, dtype=torch.bool)
        if condition.corrupted is None
        else condition.corrupted
        for condition in conditions
    ]
    examples = ManyExamples(
        [first.train.inputs for first in firsts.values()],
        torch.stack([condition.train.labels for condition in conditions]),
        test=[(first.test.inputs, first.test.labels) for first in firsts.values()],
        marked=torch.stack(marks),
        **options,
    )
    return examples, [list(firsts).index(id(condition.train.inputs)) for condition in conditions]


@dataclass(frozen=True)
class ConditionCertificate:
    """What is promised for one condition.

    risk_upper   the promise: the randomized network errs at most so often on new data of the same
                 condition; None where there is none
    guessing     the error of a uniform guess
    floor        an error that no predictor can go below in this condition; 0 where nobody knows
    reason       why there is no certificate
    """

    condition: str
    risk_upper: float | None
    guessing: float
    floor: float
    confidence: float
    empirical_risk: float | None = None
    kl_nats: float | None = None
    status: str = "refused"
    reason: str = ""

    @property
    def verdict(self) -> str:
        """In a few words, for a table."""
        if self.risk_upper is None:
            return "no certificate"
        if self.risk_upper < self.floor:
            return "false: below what anybody can reach"
        if self.risk_upper >= self.guessing:
            return "promises nothing"
        return "promises something"


def certify_condition(
    module: nn.Module,
    condition: Condition,
    settings: StudySettings,
    seed: int,
    device: torch.device,
) -> ConditionCertificate:
    """Train a randomized network of this architecture for a certificate on the condition's data."""
    method = Posterior(
        trials=settings.certificate_trials,
        training=PosteriorTraining(epochs=settings.certificate_epochs),
        plain_training=PlainTraining(epochs=settings.certificate_epochs),
        twin=False,
    )
    guessing = 1.0 - 1.0 / condition.train.classes
    fields: dict[str, Any] = {
        "condition": condition.name,
        "guessing": guessing,
        # A label drawn uniformly from K classes with probability p differs from any guess with
        # probability p (1 - 1/K) at least; what other changes cost nobody knows.
        "floor": (condition.noise or 0.0) * guessing,
        "confidence": settings.confidence,
    }
    try:
        made = certify(
            copied_network(module).to(device),
            condition.train,
            method=method,
            confidence=settings.confidence,
            seed=seed,
        )
    except (NonvacuousError, NotImplementedError) as error:
        # The second: an operator of the user's network for which PyTorch has no vectorized version.
        return ConditionCertificate(**fields, risk_upper=None, reason=str(error))
    if made.status == "refused":
        return ConditionCertificate(**fields, risk_upper=None, reason=made.lines()[3])
    return ConditionCertificate(
        **fields,
        risk_upper=made.risk_upper,
        empirical_risk=made.empirical.amount / made.empirical.trials,
        kl_nats=None if made.complexity is None else made.complexity.kl_nats,
        status=made.status,
    )
