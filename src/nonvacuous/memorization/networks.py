"""The memorizing networks as ordinary modules: exactly the numbers that the theorem counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.memorization.construction import deep_value, dense_layers, hidden_widths
from nonvacuous.memorization.evaluate import Residual
from nonvacuous.memorization.feedback import StoredWeights


def class_head(classes: int, dtype: torch.dtype) -> nn.Linear:
    """Scores c * f(x) - c**2 / 2, which are largest for the class nearest to f(x).

    They differ from -(f(x) - c)**2 / 2 by a term that is the same for all classes. The constants
    are fixed, not learned: they say what the number means.
    """
    numbers = torch.arange(classes, dtype=dtype)
    head = nn.Linear(1, classes, dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(numbers[:, None])
        head.bias.copy_(-numbers.square() / 2)
    return head.requires_grad_(False)


def nearest_class(values: np.ndarray, classes: int) -> np.ndarray:
    """The class whose number is nearest; halfway the smaller one, as argmax of the scores does.

    >>> nearest_class(np.array([-3.0, 0.4, 0.5, 1.6, 99.0]), 3).tolist()
    [0, 0, 0, 2, 2]
    """
    found: np.ndarray = np.clip(np.ceil(values - 0.5), 0, classes - 1).astype(np.int64)
    return found


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
            scores: Tensor = self.head(self.output(torch.relu(positions - self.knots)))
            return scores
        weights = self.output.weight[0]
        deep: Tensor = self.head(deep_value(positions, self.knots, weights, self.end, self.blocks))
        return deep

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


KIND = "memorizing network"
_PLAN = ("blocks", "grid", "classes")


def save_network(network: MemorizingNetwork, path: str | Path) -> Path:
    """Write the module's numbers, each once, as safetensors."""
    target = Path(path)
    tensors: dict[str, Tensor] = {
        "direction": network.direction.weight[0],
        "knots": network.knots,
        "weights": network.output.weight[0],
        "blocks": torch.tensor(network.blocks, dtype=torch.int64),
        # 0 stands for none.
        "grid": torch.tensor([network.grid or 0]),
        "classes": torch.tensor([network.classes or 0]),
    }
    if network.end is not None:
        tensors["end"] = network.end
    save_tensors(target, tensors, kind=KIND)
    return target


def load_network(path: str | Path) -> MemorizingNetwork:
    """The module that :func:`save_network` wrote."""
    stored = load_tensors(Path(path), kind=KIND, device="cpu")
    missing = {"direction", "knots", "weights", *_PLAN} - stored.keys()
    if missing:
        raise BadInput(f"{path} lacks {', '.join(sorted(missing))}; save the network again")
    plan = {name: stored[name].tolist() for name in _PLAN}
    return MemorizingNetwork(
        stored["direction"],
        stored["knots"],
        stored["weights"],
        end=float(stored["end"]) if "end" in stored else None,
        blocks=tuple(plan["blocks"]),
        grid=plan["grid"][0] or None,
        classes=plan["classes"][0] or None,
    )


def refuse_dtype(dtype: torch.dtype, measured: Residual) -> Unsupported:
    """Why a narrower type than float64 will not do, with what it would have got wrong."""
    name = str(dtype).removeprefix("torch.")
    wrong = (
        f"{measured.wrong:,} of {measured.points:,} labels would be wrong"
        if measured.wrong is not None
        else f"the largest error at {measured.points:,} points would be {measured.largest:.2g}"
    )
    return Unsupported(
        f"{name} is refused: the positions of the points need up to 53 binary digits and {name} "
        f"has {_digits(dtype)}, so neighboring points fall together. Measured with these weights: "
        f"{wrong}. Use float64"
    )


def _digits(dtype: torch.dtype) -> int:
    return round(-torch.log2(torch.tensor(torch.finfo(dtype).eps)).item()) + 1
