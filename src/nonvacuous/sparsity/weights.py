"""The layers of a plain ReLU network: all that the theorems look at.

    f(x) = W_{K+1} x_K + b_{K+1},     x_k = max(0, W_k x_{k-1} + b_k),     x_0 = x flattened

Biases are optional, layer by layer. Whatever else a module computes is refused where it is read: a
certificate covers the whole network or there is none.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.risk.losses import class_margins

#: Inputs that are looked at together.
_PIECE = 2048
#: The largest weight of a layer is at least this, and at most one over it.
_SMALLEST = 1e-60


class Network(ABC):
    """A network as its theorems read it: one tensor of weights per layer, first layer first.

    names     where each layer stands in the module, for messages
    weights   in float64, one row (or kernel) per output
    biases    one vector or None per layer
    """

    names: tuple[str, ...]
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    #: Whether a layer of one unit is as good as any in a prior, unless its weights are zero.
    _alone: ClassVar[bool] = False

    @abstractmethod
    def values(self, inputs: Tensor) -> list[Tensor]:
        """Pre-activations of every layer, the scores last, without noise; for inputs of any shape.

        (examples, units), or (examples, channels, height, width).
        """

    @abstractmethod
    def digest(self) -> str:
        """sha256 over all numbers."""

    @abstractmethod
    def _with(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Self:
        """The same shapes with other numbers."""

    @abstractmethod
    def _check_alike(self, other: Any) -> None:
        """Refuse a network of the same kind whose layers differ in anything but their numbers."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many numbers an example has."""

    @property
    def positions(self) -> tuple[int, ...]:
        """At how many positions each layer's bias is added."""
        return (1,) * len(self.weights)

    @property
    def hidden(self) -> int:
        """The number of hidden layers, K."""
        return len(self.weights) - 1

    @property
    def classes(self) -> int:
        return len(self.weights[-1])

    @property
    def biased(self) -> bool:
        """Whether any bias is not zero."""
        return any(bias is not None and bool((bias != 0).any()) for bias in self.biases)

    def scores(self, inputs: Tensor) -> Tensor:
        return self.values(inputs)[-1]

    def errors(self, examples: Examples) -> int:
        """How many examples it gets wrong; a tie with the true class counts as wrong."""
        wrong = 0
        pieces = (part.split(_PIECE) for part in (examples.inputs, examples.labels))
        for inputs, labels in zip(*pieces, strict=True):
            scores = self.scores(inputs)
            wrong += int((~(class_margins(scores, labels.to(scores.device)) > 0)).sum())
        return wrong

    def check_active(self, inputs: Tensor) -> None:
        """Refuse a layer in which no unit is active on any of these inputs."""
        silent = dict.fromkeys(self.names[:-1])
        for piece in inputs.split(_PIECE):
            for name, before in zip(self.names[:-1], self.values(piece), strict=False):
                if bool((before > 0).any()):
                    silent.pop(name, None)
            if not silent:
                return
        raise BadInput(
            f"no unit of layer {next(iter(silent))} is active on any of the {len(inputs)} "
            "examples, so the network gives all of them the same scores; train it again with a "
            "smaller learning rate"
        )

    def to(self, device: torch.device | str) -> Self:
        return self._each(lambda tensor: tensor.to(device))

    def zero(self) -> Self:
        """The same shapes with every number zero: the prior that knows nothing."""
        return self._each(torch.zeros_like)

    def reference(self) -> Self:
        """As a prior: itself; a layer whose rows are all equal gives way to fixed Gaussian weights.

        It fixes the grids and the expected sizes of activations, so it must not depend on the bound
        examples; nothing else is asked of it.
        """
        generator = torch.Generator().manual_seed(2307)
        chosen = []
        for weight in self.weights:
            entries = torch.randn(
                weight.shape, generator=generator, dtype=torch.float64, device="cpu"
            )
            differ = weight != 0 if self._alone and len(weight) == 1 else weight != weight[:1]
            scaled = entries * math.sqrt(2.0 / weight[0].numel())
            chosen.append(weight if bool(differ.any()) else scaled.to(weight.device))
        return self._with(chosen, self.biases)

    def squared_distances(self, other: Network) -> tuple[float, ...]:
        """For each layer, squared distances over the squared share of noise that a number gets."""
        self.check_same_shape(other)
        totals = []
        pairs = zip(self.weights, other.weights, self.biases, other.biases, strict=True)
        for (mine, theirs, bias, other_bias), often in zip(pairs, self.positions, strict=True):
            total = float((mine - theirs).square().sum())
            if bias is not None and other_bias is not None:
                total += float((bias - other_bias).square().sum()) * often
            totals.append(total * (1.0 + 1e-12))
        return tuple(totals)

    def check_same_shape(self, other: Network) -> None:
        """Refuse a prior whose layers differ in anything but their numbers."""
        if type(self) is not type(other):
            raise BadInput(
                "of the network and its prior, one has convolutions and the other has none; build "
                "the prior as the network is built"
            )
        self._check_alike(other)

    def _check_numbers(self) -> None:
        for name, weight, bias in zip(self.names, self.weights, self.biases, strict=True):
            for tensor in (weight,) if bias is None else (weight, bias):
                if tensor.dtype != torch.float64:
                    raise BadInput(f"layer {name} is {tensor.dtype}; its numbers must be float64")
                if not bool(torch.isfinite(tensor).all()):
                    raise BadInput(f"layer {name} holds NaN or infinity; train the network again")
            # Squares of other weights would vanish or overflow, and a bound with them.
            largest = float(weight.abs().max())
            if largest and not _SMALLEST <= largest <= 1.0 / _SMALLEST:
                raise BadInput(
                    f"layer {name} has {largest:.0e} as its largest weight; weights between "
                    f"{_SMALLEST:.0e} and {1.0 / _SMALLEST:.0e} can be certified. Rescale the "
                    "layers: nonvacuous rescale"
                )
        if self.hidden < 1:
            raise BadInput(
                "a network with one layer has no hidden layer and nothing to gain from sparsity; "
                "use an ordinary certificate"
            )
        if self.classes < 2:
            raise BadInput(
                f"the last layer {self.names[-1]} has one output; give the network one output for "
                "each class (two for a yes-or-no question)"
            )

    def _check_ties(self) -> None:
        last = self.weights[-1]
        if bool((last == last[:1]).all()):
            raise BadInput(
                f"all classes have the same weights in layer {self.names[-1]}, so every example "
                "is a tie; train the network before certifying it"
            )

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        biases = [None if bias is None else change(bias) for bias in self.biases]
        return self._with([change(weight) for weight in self.weights], biases)


@dataclass(frozen=True, eq=False)
class Layers(Network):
    """A chain of linear layers with ReLU between them; weights are matrices (outputs, inputs)."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.biases) != len(self.weights) or len(self.names) != len(self.weights):
            raise BadInput("weights, biases and names must have one entry for each layer")
        for index, (name, matrix) in enumerate(zip(self.names, self.weights, strict=True)):
            if matrix.dim() != 2 or 0 in matrix.shape:
                raise BadInput(
                    f"layer {name} has weights of shape {tuple(matrix.shape)}, not a matrix"
                )
            before = self.weights[index - 1]
            if index and matrix.shape[1] != before.shape[0]:
                raise BadInput(
                    f"layer {name} takes {matrix.shape[1]} inputs, but layer "
                    f"{self.names[index - 1]} has {before.shape[0]} outputs"
                )
            bias = self.biases[index]
            if bias is not None and tuple(bias.shape) != (matrix.shape[0],):
                raise BadInput(
                    f"the bias of layer {name} has shape {tuple(bias.shape)}, not one number for "
                    f"each of its {matrix.shape[0]} outputs"
                )
        self._check_numbers()

    @classmethod
    def of(cls, weights: Sequence[Tensor], biases: Sequence[Tensor | None] | None = None) -> Layers:
        """Layers from matrices at hand; copies in float64."""
        given = tuple(biases) if biases is not None else (None,) * len(weights)
        return cls(
            tuple(_copy(matrix) for matrix in weights),
            tuple(None if bias is None else _copy(bias) for bias in given),
            tuple(str(index + 1) for index in range(len(weights))),
        )

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(int(matrix.shape[0]) for matrix in self.weights[:-1])

    @property
    def inputs(self) -> int:
        return int(self.weights[0].shape[1])

    @property
    def augmented(self) -> tuple[Tensor, ...]:
        """The weights with the bias as one more column, fed by a constant 1."""
        return tuple(
            matrix if bias is None else torch.cat([matrix, bias[:, None]], dim=1)
            for matrix, bias in zip(self.weights, self.biases, strict=True)
        )

    def affine(self, layer: int, read: Tensor) -> Tensor:
        """What one layer computes of what it reads."""
        product, bias = read @ self.weights[layer].T, self.biases[layer]
        return product if bias is None else product + bias

    def values(self, inputs: Tensor) -> list[Tensor]:
        read, values = inputs.to(self.weights[0].device).flatten(1).double(), []
        for layer in range(len(self.weights)):
            values.append(self.affine(layer, read))
            read = values[-1].clamp(min=0)
        return values

    def _with(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Layers:
        return Layers(tuple(weights), tuple(biases), self.names)

    def _check_alike(self, other: Layers) -> None:
        mine = [tuple(matrix.shape) for matrix in self.weights]
        theirs = [tuple(matrix.shape) for matrix in other.weights]
        if mine != theirs:
            raise BadInput(f"the network has layers {mine}, but the prior has {theirs}")
        for name, bias, other_bias in zip(self.names, self.biases, other.biases, strict=True):
            if (bias is None) != (other_bias is None):
                raise BadInput(
                    f"layer {name}: only one of network and prior has a bias; give the prior a "
                    "bias of zeros, or take the network's away"
                )

    def check_alive(self) -> None:
        """Refuse units that can never be active and layers without weights, with the remedy."""
        layers = zip(self.names[:-1], self.weights[:-1], self.biases[:-1], strict=True)
        for name, matrix, bias in layers:
            dead = matrix.abs().amax(1) == 0
            if bias is not None:
                dead &= bias == 0
            if bool(dead.all()):
                raise BadInput(
                    f"every weight of layer {name} is zero, so the network gives every input the "
                    "same scores; train it before certifying it"
                )
            if bool(dead.any()):
                unit = int(dead.nonzero()[0, 0])
                raise BadInput(
                    f"{int(dead.sum())} of {len(dead)} units of layer {name} have only zero "
                    f"weights (the first is unit {unit}): they are never active. Remove them and "
                    "the matching columns of the next layer; the network computes the same"
                )
        self._check_ties()

    def digest(self) -> str:
        total = hashlib.sha256()
        for tensor in (*self.weights, *self.biases):
            total.update(content(tensor))
        return total.hexdigest()


def content(tensor: Tensor | None) -> bytes:
    """The numbers as they enter a digest."""
    return b"none" if tensor is None else np.ascontiguousarray(tensor.cpu()).tobytes()


def _copy(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise BadInput(f"a layer must be a tensor, got {type(tensor).__name__}")
    return tensor.detach().to(device="cpu", dtype=torch.float64, copy=True)
