"""Counting losses and errors of networks in evaluation mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nonvacuous.training.graphs import full_precision


@dataclass(frozen=True)
class Measured:
    """One network at one moment."""

    train_loss: float
    train_errors: int
    marked_errors: int | None
    test_errors: int | None


@dataclass(eq=False)
class Tally:
    """Sums for some networks over one set of examples: loss, errors, errors among the marked."""

    sums: Tensor

    @classmethod
    def of(cls, networks: int, device: torch.device) -> Tally:
        """All zeros."""
        return cls(torch.zeros(networks, 3, dtype=torch.float64, device=device))

    def add(self, outputs: Tensor, labels: Tensor, marked: Tensor | None, valid: Tensor) -> None:
        """Count outputs of shape (networks, batch, classes) where `valid` (batch) is true."""
        outputs = full_precision(outputs)
        losses = cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
        losses = torch.where(valid, losses.view(labels.shape), 0.0)
        wrong = (outputs.argmax(dim=2) != labels) & valid
        among = torch.zeros_like(wrong) if marked is None else wrong & marked
        counts = torch.stack([losses, wrong, among], dim=2)
        self.sums += counts.sum(dim=1, dtype=torch.float64)


def read(
    train: Sequence[Tally],
    test: Sequence[Tally] | None,
    *,
    examples: int,
    marked: bool,
) -> list[Measured]:
    """All tallies, in one transfer from the device."""
    sums = torch.cat([tally.sums for tally in (*train, *(test or ()))]).tolist()
    networks = len(sums) // (2 if test else 1)
    return [
        Measured(
            train_loss=sums[number][0] / examples,
            train_errors=round(sums[number][1]),
            marked_errors=round(sums[number][2]) if marked else None,
            test_errors=round(sums[networks + number][1]) if test else None,
        )
        for number in range(networks)
    ]


def following(start: Tensor, size: int, examples: int) -> Tensor:
    """The places start, start + 1, ..., beginning anew after the last one.

    An epoch never gets there; the trial runs before a recording do.
    """
    return (start + torch.arange(size, device=start.device)) % examples


def window(start: Tensor, size: int, examples: int) -> tuple[Tensor, Tensor]:
    """The places start, start + 1, ... and which of them exist; the others repeat the last one."""
    positions = start + torch.arange(size, device=start.device)
    return positions.clamp(max=examples - 1), positions < examples
