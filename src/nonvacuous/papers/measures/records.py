"""What the study of measures keeps of each network, and of the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nonvacuous.study.settings import Frozen


class NetworkRecord(Frozen):
    """One network: how it was trained, what it came to, and every measure of it.

    stopped      "loss" where it reached the stopping loss; no other network is judged
    measures     name -> {"number", "log10"}, or {"undefined": why}; empty where not judged
    """

    key: str
    hyperparameters: Mapping[str, Any]
    repetition: int
    stopped: str
    epochs: int
    steps: int
    train_loss: float | None
    train_errors: int
    test_loss: float | None
    test_errors: int
    test_examples: int
    measures: Mapping[str, Mapping[str, Any]]

    @property
    def judged(self) -> bool:
        """Whether it reached the stopping loss."""
        return self.stopped == "loss"

    @property
    def test_error(self) -> float:
        """Share of the test set."""
        return self.test_errors / self.test_examples

    @property
    def gap(self) -> float:
        """Test error minus training error, as shares."""
        return self.test_error - self.train_errors / int(self.hyperparameters["examples"])

    @property
    def loss_gap(self) -> float:
        """The same of the cross-entropy."""
        assert self.test_loss is not None and self.train_loss is not None
        return self.test_loss - self.train_loss


class Times(Frozen):
    """How long it took.

    networks, seconds      trained together
    steps                  of all of them
    measuring_seconds      of the processes that computed measures, added up
    alone_*                networks trained one at a time on the same device, and their steps
    """

    networks: int = 0
    steps: int = 0
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    device: str = ""
    method: str = ""
    alone_networks: int = 0
    alone_steps: int = 0
    alone_seconds: float = 0.0

    @property
    def per_minute(self) -> float | None:
        """Networks trained in a minute, together."""
        return 60.0 * self.networks / self.seconds if self.seconds else None

    @property
    def per_minute_alone(self) -> float | None:
        """Networks trained in a minute one after the other, by the time of a step."""
        if not self.alone_seconds or not self.steps:
            return None
        return 60.0 * self.networks / (self.alone_seconds / self.alone_steps * self.steps)

    @property
    def speedup(self) -> float | None:
        """How many times longer the same would have taken one after the other."""
        together, alone = self.per_minute, self.per_minute_alone
        return None if together is None or alone is None else together / alone

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, derived ones included."""
        return self.model_dump() | {
            "per_minute": self.per_minute,
            "per_minute_alone": self.per_minute_alone,
            "speedup": self.speedup,
        }
