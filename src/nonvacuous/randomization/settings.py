"""Everything that decides what a randomization study computes, fixed before it starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.randomization.registry import parse_corruption

#: The classic set: true labels, more and more label noise, and three kinds of broken inputs.
DEFAULT_CONDITIONS = (
    "true",
    "partial:0.2",
    "partial:0.4",
    "partial:0.6",
    "partial:0.8",
    "random-labels",
    "shuffled-pixels",
    "random-pixels",
    "gaussian",
)


@dataclass(frozen=True)
class StudySettings:
    """How much is trained, and how.

    conditions       what is done to the training data; "true" and "random-labels" are always there
    seeds            networks per condition: the same seeds in each
    permutations     networks trained on permuted labels, for the permutation p-value; 0: none
    sign_vectors     networks trained on random signs, for the Rademacher complexity; 0: none
    certificates     whether each condition gets a certificate
    regularization   whether weight decay, dropout, augmentation, early stopping and batch
                     normalization are switched on and off, on true and on random labels
    confidence       of every interval and test
    seed             everything random follows from it
    epochs .. batch_size
                     stochastic gradient descent, where the study trains by itself; the learning
                     rate is multiplied by ``rate_decay`` after every epoch
    standardize      whether the inputs are first shifted and scaled, by one mean and one standard
                     deviation for all of them; ignored where a function of yours trains
    certificate_epochs, certificate_trials
                     how long each certificate is trained and measured
    """

    conditions: tuple[str, ...] = DEFAULT_CONDITIONS
    seeds: int = 3
    permutations: int = 19
    sign_vectors: int = 5
    certificates: bool = True
    regularization: bool = False
    confidence: float = 0.95
    seed: int = 0
    epochs: int = 60
    learning_rate: float = 0.1
    momentum: float = 0.9
    rate_decay: float = 0.96
    weight_decay: float = 0.0
    batch_size: int = 64
    standardize: bool = True
    certificate_epochs: int = 15
    certificate_trials: int = 20_000

    def __post_init__(self) -> None:
        conditions = tuple(str(parse_corruption(text)) for text in self.conditions)
        true, random = ((name,) * (name not in conditions) for name in ("true", "random-labels"))
        conditions = (*true, *conditions, *random)
        if len(set(conditions)) != len(conditions):
            raise BadInput(f"conditions: {', '.join(conditions)} names one of them twice")
        object.__setattr__(self, "conditions", conditions)
        checks.failure_of(self.confidence)
        for name in ("permutations", "sign_vectors", "seed"):
            checks.count(name, getattr(self, name), minimum=0)
        for name in ("seeds", "epochs", "batch_size", "certificate_epochs", "certificate_trials"):
            checks.count(name, getattr(self, name), minimum=1)
        for name in ("learning_rate", "rate_decay"):
            checks.positive(name, getattr(self, name))
        for name in ("momentum", "weight_decay"):
            checks.non_negative(name, getattr(self, name))
        if self.rate_decay > 1.0:
            raise BadInput(f"rate_decay must be at most 1, got rate_decay = {self.rate_decay!r}.")

    @property
    def failure(self) -> float:
        """The decimal that is left: 0.95 leaves 0.05, not 0.050000000000000044."""
        return float(1 - Fraction(repr(float(self.confidence))))

    def training(self) -> dict[str, float | int]:
        """What the built-in training is told, the same in every condition."""
        names = (
            "epochs", "learning_rate", "momentum", "rate_decay", "weight_decay", "batch_size",
            "standardize",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def rate_left(self, epochs: int) -> float:
        """The share of the sum of all learning rates, to infinity, that comes after ``epochs``.

        A sum of rates that falls geometrically is finite: a network that has not fitted its labels
        by the time that it is spent never will.
        """
        return self.rate_decay**epochs

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"conditions": list(self.conditions)}

    def changed(self, **changes: Any) -> StudySettings:
        """The same with some settings changed."""
        return replace(self, **changes)
