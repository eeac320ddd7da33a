"""Small networks that use their parameters in all the ways that the estimator must get right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nonvacuous.distributions import DiagonalGaussian


class Tied(nn.Module):
    """One matrix used by two layers: their noise is shared."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(inputs)))))


class CalledTwice(nn.Module):
    """One layer applied twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.layer(torch.relu(self.layer(inputs)))))


class Sequence(nn.Module):
    """A linear layer on a sequence: every position sees the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(20, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.embed(inputs))).flatten(1))


class MergedBatch(nn.Module):
    """Positions are merged into the batch: rows of the layer's input are not examples."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.head = nn.Linear(20, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = self.embed(inputs.reshape(-1, 3))
        return self.head(torch.relu(flat).reshape(len(inputs), -1))


class Matmul(nn.Module):
    """A parameter used by plain arithmetic, and asked for its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(4, 3))
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.view(-1, self.matrix.shape[0]) @ self.matrix / self.temperature


class Residual(nn.Module):
    """The input meets the output of the first layer again: rows may not be repeated late."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs + torch.relu(self.first(inputs))
        return self.head(hidden + torch.relu(self.second(hidden)))


class Attention(nn.Module):
    """Self-attention over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.attention(inputs, inputs, inputs)[0].mean(1))


class Recurrent(nn.Module):
    """A network that torch cannot vectorize over weights."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.cell(inputs)[0][:, -1])


class Tokens(nn.Module):
    """Integer inputs; repeated tokens share one row of the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.table(inputs).sum(1))


class UnusedParameter(nn.Module):
    """A parameter that plays no part."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.idle = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs)


class Viewed(nn.Module):
    """Flattened by a view, as in many networks: it wants the channels to lie first."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = nn.Conv2d(2, 4, 3)
        self.head = nn.Linear(36, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.kernels(inputs))
        return self.head(hidden.view(hidden.size(0), -1))


def trained_statistics(network: nn.Sequential) -> nn.Sequential:
    """Give batch normalization statistics other than 0 and 1."""
    for layer in network:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.5, 0.5)
            layer.running_var.uniform_(0.5, 2.0)
    return network


def vectors(count: int) -> Tensor:
    return torch.randn(count, 4)


def sequences(count: int) -> Tensor:
    return torch.randn(count, 5, 3)


def images(count: int) -> Tensor:
    return torch.randn(count, 2, 5, 5)


@dataclass(frozen=True)
class Case:
    """A network, inputs for it, and the way its trials are expected to be run."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    method: str


LOCAL = "local noise"
VECTORIZED = "drawn weights, vectorized"
ONE_BY_ONE = "drawn weights, one trial at a time"

CASES = [
    Case(
        "mlp",
        lambda: nn.Sequential(
            nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)
        ),
        vectors,
        LOCAL,
    ),
    Case("single linear layer", lambda: nn.Linear(4, 3), vectors, LOCAL),
    Case("residual", Residual, vectors, LOCAL),
    Case("flattened by a view", Viewed, images, LOCAL),
    Case("sequence with layer norm", Sequence, sequences, LOCAL),
    Case(
        "linear layer on a sequence",
        lambda: nn.Sequential(nn.Linear(3, 1), nn.Flatten()),
        sequences,
        LOCAL,
    ),
    Case(
        "convolutions",
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 2, groups=2, bias=False),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        images,
        LOCAL,
    ),
    Case(
        "convolution alone",
        lambda: nn.Sequential(nn.Conv2d(2, 1, 3, stride=2, dilation=1), nn.Flatten()),
        images,
        LOCAL,
    ),
    Case(
        "few positions",
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2), nn.Flatten()
        ),
        images,
        LOCAL,
    ),
    Case(
        "wide sequence",
        lambda: nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1), nn.Flatten()),
        sequences,
        LOCAL,
    ),
    Case(
        "one-dimensional convolution",
        lambda: nn.Sequential(nn.Conv1d(5, 2, 3, padding="same"), nn.Flatten()),
        sequences,
        LOCAL,
    ),
    Case(
        "three-dimensional convolution",
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 2)),
            nn.Conv3d(1, 3, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
        ),
        images,
        LOCAL,
    ),
    Case(
        "batch norm",
        lambda: trained_statistics(
            nn.Sequential(
                nn.Conv2d(2, 4, 3),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(36, 5),
                nn.BatchNorm1d(5),
                nn.ReLU(),
                nn.Linear(5, 3),
            )
        ),
        images,
        LOCAL,
    ),
    Case(
        "group norm",
        lambda: nn.Sequential(
            nn.GroupNorm(2, 2),
            nn.Conv2d(2, 4, 3),
            nn.GroupNorm(2, 4),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        images,
        LOCAL,
    ),
    Case(
        "mlp with layer norm",
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3)),
        vectors,
        LOCAL,
    ),
    Case(
        "prelu",
        lambda: nn.Sequential(nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 3)),
        vectors,
        VECTORIZED,
    ),
    Case("tied", Tied, vectors, VECTORIZED),
    Case("called twice", CalledTwice, vectors, VECTORIZED),
    Case("merged batch", MergedBatch, sequences, VECTORIZED),
    Case("matmul", Matmul, vectors, VECTORIZED),
    Case("unused parameter", UnusedParameter, vectors, VECTORIZED),
    Case("attention", lambda: nn.Sequential(nn.Linear(3, 4), Attention()), sequences, VECTORIZED),
    Case("embedding", Tokens, lambda n: torch.randint(3, (n, 4)), VECTORIZED),
    Case("recurrent", Recurrent, sequences, ONE_BY_ONE),
    Case(
        "weight norm",
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 3)
        ),
        vectors,
        VECTORIZED,
    ),
]


def build(case: Case, *, scales: str = "mixed") -> tuple[nn.Module, DiagonalGaussian, Tensor]:
    """A network in evaluation mode, a posterior around it, and a few inputs."""
    torch.manual_seed(11)
    network = case.build().eval()
    parameters = dict(network.named_parameters())
    if scales == "mixed":
        spread = {name: 0.1 + 0.4 * torch.rand_like(p) for name, p in parameters.items()}
    elif scales == "rows":
        spread = {
            name: (0.1 + 0.4 * torch.rand(len(p), *[1] * (p.ndim - 1))).expand_as(p)
            for name, p in parameters.items()
        }
    elif scales == "multiples":  # as equal noise becomes when channels are rescaled
        spread = {
            name: (0.1 + 0.4 * torch.rand(len(p), *[1] * (p.ndim - 1)))
            * ((0.5 + torch.rand_like(p[:1])) if p.ndim > 1 else 1.0)
            for name, p in parameters.items()
        }
    else:
        spread = dict.fromkeys(parameters, 0.3)
    return network, DiagonalGaussian.around(network, scale=spread), case.inputs(6)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
