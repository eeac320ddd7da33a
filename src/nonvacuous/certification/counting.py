"""Counting the errors of one fixed network."""

from __future__ import annotations

import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.risk import Loss, zero_one

_BATCH = 2048


def summed_loss(module: nn.Module, examples: Examples, loss: Loss) -> float:
    """The sum of the loss over the examples, each seen once by the network in evaluation mode."""
    device = next(module.parameters(), torch.empty(0)).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    with torch.no_grad():
        for start in range(0, len(examples), _BATCH):
            inputs = examples.inputs[start : start + _BATCH].to(device)
            labels = examples.labels[start : start + _BATCH].to(device)
            total += loss(module(inputs), labels).double().sum()
    return float(total)


def count_errors(module: nn.Module, examples: Examples) -> int:
    """How many examples the network gets wrong; a tie is an error."""
    return round(summed_loss(module, examples, zero_one))
