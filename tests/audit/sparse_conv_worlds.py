"""Small honest sparsity certificates of convolutional networks, for tests to spoil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import Certificate
from nonvacuous.certify import certify
from nonvacuous.data import Examples
from nonvacuous.methods import Sparsity
from nonvacuous.models import build
from nonvacuous.recipes import seeded
from nonvacuous.settings import Run
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv

from . import sparse_worlds

ARCHITECTURE = "cnn:3/no-bias"
QUICK = Sparsity(passes=1, search_examples=100, steps=60, prior_steps=60)


def examples(count: int = 240, *, seed: int = 0) -> Examples:
    """Three noisy patterns of 5 x 5 pixels, of norm about 1."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    patterns = torch.randn(3, 25, generator=torch.Generator().manual_seed(99))
    inputs = patterns[labels] + 0.7 * torch.randn(count, 25, generator=generator)
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    return Examples(inputs.reshape(-1, 1, 5, 5), labels, ("a", "b", "c"), "patterns")


def network(seed: int = 0) -> nn.Module:
    """Biases, padding, stride, dilation, both kinds of pooling, one of them overlapping."""
    return seeded(_network, seed=seed)


def _network() -> nn.Module:
    module = nn.Sequential(
        nn.Conv2d(1, 3, 2, stride=1, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, padding=1, dilation=2),
        nn.ReLU(),
        nn.AvgPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # Inputs are small, and large biases would silence whole channels.
            parameter.mul_(0.1 if name.endswith("bias") else 1.0)
    return module


def near(module: nn.Module, step: float = 0.003) -> nn.Module:
    """A network that has moved a little."""
    other = network()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for mine, theirs in zip(other.parameters(), module.parameters(), strict=True):
            mine.copy_(theirs + step * torch.randn(theirs.shape, generator=generator))
    return other


def evidence(settings: Sparsity = QUICK) -> Evidence:
    """Honest evidence: a network near its prior, which saw other examples than the bound counts."""
    data = examples()
    settled = ConvTraining(steps=150, learning_rate=0.2, noise=0.0)
    seen = data.subset(sparse_worlds.split(data).prior)
    center = train_conv(network(), seen, settings=settled, seed=1)
    return sparse_worlds.evidence_of(near(center), center, data, settings)


def run(folder: Path | None, **changes: Any) -> Certificate:
    """A real run of a built-in network: prior, network, certificate and files."""
    arguments: dict[str, Any] = {
        "method": QUICK,
        "folder": Run(folder=folder, architecture=ARCHITECTURE),
        "seed": 3,
    }
    model = build(ARCHITECTURE, (1, 5, 5), 3, seed=0)
    return certify(model, examples(), **{**arguments, **changes})
