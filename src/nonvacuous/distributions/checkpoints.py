"""Networks saved along one training: all of them side by side, and one drawn for each input."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Checkpoints(nn.Module):
    """The scores of all checkpoints side by side: what is drawn from, without chance."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([network(inputs) for network in self.networks], dim=1)


class CheckpointMixture(nn.Module):
    """The predictor of a progressive certificate: for each input one checkpoint, drawn afresh.

    A checkpoint is drawn with the share of the examples that it was tested on, from torch's global
    generator; ``tests`` are their numbers. One plain module: ``torch.export`` takes it.
    """

    ends: Tensor

    def __init__(self, networks: Sequence[nn.Module], tests: Sequence[int]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_buffer("ends", torch.tensor(tests).cumsum(0))
        self.tests = sum(tests)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        # Whole numbers, so that the shares are exact.
        lots = torch.randint(self.tests, (inputs.shape[0],), device=inputs.device)
        drawn = torch.searchsorted(self.ends, lots, right=True)
        scores = torch.stack([network(inputs) for network in self.networks], dim=1)
        return scores[torch.arange(inputs.shape[0], device=inputs.device), drawn]
