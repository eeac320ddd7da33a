"""One small problem that many tests of the estimators share."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.distributions import DiagonalGaussian


@pytest.fixture
def problem() -> tuple[nn.Module, DiagonalGaussian, tuple[Tensor, Tensor]]:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    inputs = torch.randn(40, 4)
    labels = network(inputs).argmax(1)
    labels[::7] = (labels[::7] + 1) % 3
    return network, DiagonalGaussian.around(network, scale=0.3), (inputs, labels)
