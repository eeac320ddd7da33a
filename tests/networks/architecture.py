"""What the example networks share: a record with a hand count, and example inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nonvacuous.networks import fold_batch_norm


@dataclass(frozen=True)
class Architecture:
    """A network in evaluation mode, an example input and the number of its free scales."""

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Tensor | tuple[Tensor, ...]]
    free: int
    fold: bool = False

    def made(self) -> tuple[nn.Module, Tensor | tuple[Tensor, ...]]:
        """The network with random weights and statistics, folded where asked for."""
        torch.manual_seed(0)
        module = self.build().double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_(std=0.7)
            for name, buffer in module.named_buffers():
                if name.endswith("running_mean"):
                    buffer.normal_()
                if name.endswith("running_var"):
                    buffer.uniform_(0.5, 2.0)
        example = self.example()
        return (fold_batch_norm(module, example) if self.fold else module), example


def images(channels: int = 1, size: int = 8) -> Callable[[], Tensor]:
    return lambda: torch.randn(2, channels, size, size, dtype=torch.float64)


def vectors(size: int = 4) -> Callable[[], Tensor]:
    return lambda: torch.randn(3, size, dtype=torch.float64)


def sequences(length: int = 5, size: int = 8) -> Callable[[], Tensor]:
    return lambda: torch.randn(2, length, size, dtype=torch.float64)


def words(length: int = 5, vocabulary: int = 7) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, vocabulary, (2, length))


class Residual(nn.Module):
    """x + body(x)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.body(x)
