"""What training one network came to, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: Below this share of all learning rates, what is left of them changes nothing any more.
SPENT = 0.05


@dataclass(frozen=True)
class CurvePoint:
    """Errors after one epoch, in evaluation mode.

    corrupted_errors   among the training examples whose label was redrawn; clean_errors: the others
    """

    epoch: int
    train_errors: int
    corrupted_errors: int | None = None
    clean_errors: int | None = None
    test_errors: int | None = None


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    condition          what was done to its data
    seed               of its start and its order of examples
    train_errors       against the labels it was given
    true_agreements    training examples on which it answers with the *true* label
    corrupted_examples training examples whose label was drawn anew; None where none could be
    fit_epoch          the first epoch without a training error; None if there was none, or if
                       nobody watched
    epochs             epochs trained; None if nobody knows (a training function of the user's)
    stopped            why training ended: "epochs", "fit", "diverged", or "unknown"
    rate_left          share of all learning rates not yet spent; None if nobody knows
    curve              errors per epoch; empty if nobody watched
    confusion          test examples by true class (rows) and answer (columns)
    answers            digest of all answers on the untouched inputs, to recognize equal functions
    configuration      digest of everything but the data: architecture, start, training, seed
    data               digest of the training examples as given to training
    """

    condition: str
    seed: int
    train_errors: int
    train_examples: int
    test_errors: int
    test_examples: int
    true_agreements: int
    corrupted_examples: int | None
    fit_epoch: int | None
    epochs: int | None
    stopped: str
    rate_left: float | None
    curve: tuple[CurvePoint, ...]
    confusion: tuple[tuple[int, ...], ...]
    answers: str
    configuration: str
    data: str
    seconds: float

    @property
    def train_error(self) -> float:
        return self.train_errors / self.train_examples

    @property
    def test_error(self) -> float:
        return self.test_errors / self.test_examples

    @property
    def gap(self) -> float:
        """Test error minus training error."""
        return self.test_error - self.train_error

    @property
    def fitting(self) -> str:
        """Whether it fitted its labels, and if not, why not."""
        if self.stopped == "diverged":
            return "diverged"
        if self.fit_epoch is not None or self.train_errors == 0:
            return "fit"
        if self.rate_left is None:
            return "errors left"
        return "learning rate exhausted" if self.rate_left < SPENT else "did not fit"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Outcome:
        return cls(
            **{
                **record,
                "curve": tuple(CurvePoint(**point) for point in record["curve"]),
                "confusion": tuple(tuple(row) for row in record["confusion"]),
            }
        )
