"""Networks without convolutions with tiny widths, each with its number of free scales by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.networks.architecture import Architecture, Residual, vectors, words


class SquaredRelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) ** 2


def mlp(activation: Callable[[], nn.Module], *, bias: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 5, bias=bias),
        activation(),
        nn.Dropout(),
        nn.Linear(5, 6, bias=bias),
        activation(),
        nn.Linear(6, 3, bias=bias),
    )


def raw_residual() -> nn.Module:
    """The stream holds the raw input: only the inner 5 are free."""
    body = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
    return nn.Sequential(Residual(body), nn.ReLU(), nn.Linear(4, 3))


class Functional(nn.Module):
    """No layers at all: relu(x wᵀ + b) v + c with 5 hidden units."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.empty(5, 4)), nn.Parameter(torch.empty(5))
        self.v, self.c = nn.Parameter(torch.empty(5, 3)), nn.Parameter(torch.empty(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(x @ self.w.T + self.b)
        return torch.addmm(self.c, hidden, self.v)


class Gated(nn.Module):
    """value · gate(other half): the 5 values are free; with a ReLU gate the 5 gates too."""

    def __init__(self, gate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.gate = nn.Linear(4, 10), nn.Linear(5, 3), gate

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.first(x).chunk(2, dim=-1)
        return self.second(value * self.gate(gate))


class OneFactor(nn.Module):
    """All 5 hidden units times one number, which has a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x) * self.factor))


class BagOfWords(nn.Module):
    """Embedding 5, hidden 4."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(7, 5, mode="mean")
        self.layers = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.table(tokens))


class TiedLanguageModel(nn.Module):
    """The embedding (4) is also the output layer, which pins what is written for it; hidden 6."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.down(torch.relu(self.up(self.table(tokens)))))


class Recurrent(nn.Module):
    """One layer called twice: the 5 channels before and after it scale alike. Without a bias the
    layer as a whole may also be scaled, once in and twice out."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5, bias=bias)
        self.shared = nn.Linear(5, 5, bias=bias)
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        for _ in range(2):
            x = torch.relu(self.shared(x))
        return self.last(x)


DENSE: list[Architecture] = [
    Architecture("mlp", lambda: mlp(nn.ReLU), vectors(), 11),
    Architecture("mlp without biases", lambda: mlp(nn.ReLU, bias=False), vectors(), 11),
    Architecture("mlp leaky relu", lambda: mlp(lambda: nn.LeakyReLU(-0.3)), vectors(), 11),
    Architecture("mlp prelu", lambda: mlp(nn.PReLU), vectors(), 11),
    Architecture("mlp randomized relu", lambda: mlp(nn.RReLU), vectors(), 11),
    Architecture("mlp squared relu", lambda: mlp(SquaredRelu), vectors(), 11),
    Architecture("mlp tanh", lambda: mlp(nn.Tanh), vectors(), 0),
    Architecture("residual on the raw input", raw_residual, vectors(), 5),
    Architecture("one factor", OneFactor, vectors(), 6),
    Architecture("functional", Functional, vectors(), 5),
    Architecture("glu by chunk", lambda: Gated(torch.sigmoid), vectors(), 5),
    Architecture("reglu by chunk", lambda: Gated(torch.relu), vectors(), 10),
    Architecture("bag of words", BagOfWords, words(), 5 + 4),
    Architecture("tied language model", TiedLanguageModel, words(), 4 + 6),
    Architecture("recurrent", lambda: Recurrent(bias=True), vectors(), 5),
    Architecture("recurrent without bias", lambda: Recurrent(bias=False), vectors(), 6),
]
