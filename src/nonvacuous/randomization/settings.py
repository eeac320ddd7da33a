"""Everything that decides what a randomization study computes, fixed before it starts."""

from __future__ import annotations

from typing import Any, Self

from pydantic import field_validator, model_validator

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.randomization.registry import parse_corruption
from nonvacuous.settings import Count, NonNegative, Positive, PositiveCount, Settings

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
_TRAINING = {
    "epochs", "learning_rate", "momentum", "rate_decay", "weight_decay", "batch_size",
    "standardize",
}  # fmt: skip


class StudySettings(Settings):
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
    seeds: PositiveCount = 3
    permutations: Count = 19
    sign_vectors: Count = 5
    certificates: bool = True
    regularization: bool = False
    confidence: float = 0.95
    seed: Count = 0
    epochs: PositiveCount = 60
    learning_rate: Positive = 0.1
    momentum: NonNegative = 0.9
    rate_decay: Positive = 0.96
    weight_decay: NonNegative = 0.0
    batch_size: PositiveCount = 64
    standardize: bool = True
    certificate_epochs: PositiveCount = 15
    certificate_trials: PositiveCount = 20_000

    @field_validator("conditions")
    @classmethod
    def _every_one_once(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        conditions = tuple(str(parse_corruption(text)) for text in given)
        true, random = ((name,) * (name not in conditions) for name in ("true", "random-labels"))
        conditions = (*true, *conditions, *random)
        if len(set(conditions)) != len(conditions):
            raise BadInput(f"conditions: {', '.join(conditions)} names one of them twice")
        return conditions

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        checks.failure_of(self.confidence)
        if self.rate_decay > 1.0:
            raise BadInput(f"rate_decay must be at most 1, got rate_decay = {self.rate_decay!r}.")
        return self

    @property
    def failure(self) -> float:
        return checks.failure_of(self.confidence)

    def training(self) -> dict[str, Any]:
        """What the built-in training is told, the same in every condition."""
        return self.model_dump(include=_TRAINING)
