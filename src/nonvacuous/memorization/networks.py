"""The memorizing networks as ordinary modules: exactly the numbers that the theorem counts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.memorization.classes import class_head
from nonvacuous.memorization.deep import deep_value, dense_layers, hidden_widths
from nonvacuous.memorization.feedback import StoredWeights

#: Bytes above which a network of ordinary dense layers is not built.
_LARGEST_DENSE = 4 << 30


class Pixels(nn.Module):
    """The 8-bit pixels behind inputs pixel/255: no weights, and exact."""

    def __init__(self, grid: int) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, inputs: Tensor) -> Tensor:
        if not inputs.is_floating_point():
            return inputs
        return torch.round(inputs * self.grid).clamp(0, self.grid)


class MemorizingNetwork(nn.Module):
    """A ReLU network whose parameters are d direction weights, n knots and n output weights.

    All units of the first layer share one direction: that is how n units need d + n numbers. From
    three layers on there is one number more, which says where the last block starts. Give it the
    points as they were given to ``memorize``; they are converted to float64.
    """

    blocks: tuple[int, ...]

    def __init__(
        self,
        direction: Tensor,
        knots: Tensor,
        weights: Tensor,
        *,
        end: float | None = None,
        blocks: tuple[int, ...] = (0,),
        grid: int | None = None,
        classes: int | None = None,
    ) -> None:
        super().__init__()
        self.blocks, self.grid, self.classes = tuple(blocks), grid, classes
        self.pixels = nn.Identity() if grid is None else Pixels(grid)
        self.direction = nn.Linear(len(direction), 1, bias=False, dtype=direction.dtype)
        self.knots = nn.Parameter(knots.clone())
        self.output = nn.Linear(len(weights), 1, bias=False, dtype=weights.dtype)
        self.end = None
        if end is not None:
            self.end = nn.Parameter(torch.tensor([end], dtype=weights.dtype))
        with torch.no_grad():
            self.direction.weight.copy_(direction.reshape(1, -1))
            self.output.weight.copy_(weights.reshape(1, -1))
        self.head = nn.Identity() if classes is None else class_head(classes, weights.dtype)
        self.eval()

    @property
    def depth(self) -> int:
        """Layers of weights."""
        return len(self.blocks) + 1

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.pixels(inputs.flatten(1)).to(self.knots.dtype)
        positions = self.direction(rows)
        if self.end is None:
            return self.head(self.output(torch.relu(positions - self.knots)))
        weights = self.output.weight[0]
        return self.head(deep_value(positions, self.knots, weights, self.end, self.blocks))

    def dense(self) -> nn.Sequential:
        """The same network of nothing but Linear and ReLU layers, with all zeros and copies.

        Where the points are pixels behind floats, the layer that takes them back comes first.
        """
        sizes = self.dense_sizes()
        needed = sum(rows * columns + rows for rows, columns in sizes) * 8
        if needed > _LARGEST_DENSE:
            raise BadInput(
                f"dense layers would take {needed / 2**30:,.1f} GiB, mostly copies and zeros; use "
                "the module itself, which stores every number once"
            )
        first: list[nn.Module] = [nn.Flatten()]
        if self.grid is not None:
            first.append(Pixels(self.grid))
        layers = dense_layers(
            self.direction.weight[0],
            self.knots,
            self.output.weight[0],
            self.end,
            self.blocks,
        )
        last = [] if self.classes is None else [class_head(self.classes, self.knots.dtype)]
        return nn.Sequential(*first, *layers, *last).eval()

    def dense_sizes(self) -> list[tuple[int, int]]:
        """Rows and columns of the dense layers, without the class scores."""
        widths = hidden_widths(self.blocks, len(self.knots))
        columns = [self.direction.in_features, *widths]
        return list(zip([*widths, 1], columns, strict=True))


def build_network(
    direction: Tensor, stored: StoredWeights, *, grid: int | None, classes: int | None
) -> MemorizingNetwork:
    """The module that holds these numbers."""
    if not bool(torch.isfinite(direction).all()):
        raise BadInput(
            "points: a feature is so small that its weight leaves the range of float64; multiply "
            "the points by a constant first"
        )
    return MemorizingNetwork(
        direction,
        torch.from_numpy(stored.knots),
        torch.from_numpy(stored.weights),
        end=stored.end,
        blocks=stored.blocks,
        grid=grid,
        classes=classes,
    )
