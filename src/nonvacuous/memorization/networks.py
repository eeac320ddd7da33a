"""The memorizing networks as ordinary modules: exactly the numbers that the theorem counts."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.memorization.construction import deep_value
from nonvacuous.progress import Progress, Reporter

#: Hidden units times points evaluated at once.
_UNITS_AT_ONCE = 1 << 20


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
    return np.asarray(np.clip(np.ceil(values - 0.5), 0, classes - 1), dtype=np.int64)


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
        return len(self.blocks) + 1

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.pixels(inputs.flatten(1)).to(self.knots.dtype)
        positions = self.direction(rows)
        if self.end is None:
            value = self.output(torch.relu(positions - self.knots))
        else:
            weights = self.output.weight[0]
            value = deep_value(positions, self.knots, weights, self.end, self.blocks)
        scores: Tensor = self.head(value)
        return scores


def dense_values(
    network: nn.Module,
    rows: np.ndarray,
    *,
    units: int,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> np.ndarray:
    """What a network in floating point gives at each row: every unit, some rows at a time.

    ``network`` gives one number for each row: a memorizing network without class scores. ``units``
    is the width of its widest layer, which decides how many rows fit into memory.
    """
    reporter = Reporter(progress, "evaluating")
    network = network.to(device)
    step = max(1, _UNITS_AT_ONCE // max(1, units))
    outputs = np.empty(len(rows), dtype=np.float64)
    with torch.no_grad():
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            # A copy of a few rows, so that arrays that must not be written to can be read.
            inputs = torch.from_numpy(rows[part].copy()).to(device)
            outputs[part] = network(inputs)[:, 0].cpu().double().numpy()
            reporter.report(min(start + step, len(rows)), len(rows), "every unit, every point")
    return outputs


@dataclass(frozen=True)
class Residual:
    """How far a network in floating point is from the values it memorized.

    points     points evaluated, every unit for each of them
    largest    largest distance from a value; NaN counts as infinitely far
    wrong      points nearer to another class, or None where the values are not classes
    """

    points: int
    largest: float
    wrong: int | None
    seconds: float

    @classmethod
    def of(
        cls, outputs: np.ndarray, values: np.ndarray, classes: int | None, *, since: float
    ) -> Residual:
        """How far the network's outputs are from the values memorized."""
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.nan_to_num(np.abs(outputs - values), nan=np.inf, posinf=np.inf)
        wrong = None if classes is None else int((~(distance < 0.5)).sum())
        return cls(len(outputs), float(distance.max()), wrong, time.perf_counter() - since)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; an error beyond all numbers becomes None, which JSON can hold."""
        return asdict(self) | {"largest": self.largest if math.isfinite(self.largest) else None}


KIND = "memorizing network"
_NUMBERS = ("direction", "knots", "weights")


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
    missing = {*_NUMBERS, "blocks", "grid", "classes"} - stored.keys()
    if missing:
        raise BadInput(f"{path} lacks {', '.join(sorted(missing))}; save the network again")
    return MemorizingNetwork(
        *(stored[name] for name in _NUMBERS),
        end=float(stored["end"]) if "end" in stored else None,
        blocks=tuple(stored["blocks"].tolist()),
        grid=int(stored["grid"]) or None,
        classes=int(stored["classes"]) or None,
    )


def refuse_dtype(dtype: torch.dtype, measured: Residual) -> Unsupported:
    """Why a narrower type than float64 will not do, with what it would have got wrong."""
    name = str(dtype).removeprefix("torch.")
    digits = round(-math.log2(torch.finfo(dtype).eps)) + 1
    wrong = (
        f"{measured.wrong:,} of {measured.points:,} labels would be wrong"
        if measured.wrong is not None
        else f"the largest error at {measured.points:,} points would be {measured.largest:.2g}"
    )
    return Unsupported(
        f"{name} is refused: the positions of the points need up to 53 binary digits and {name} "
        f"has {digits}, so neighboring points fall together. Measured with these weights: "
        f"{wrong}. Use float64"
    )
