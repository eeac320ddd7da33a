"""A watched forward pass: functions of random parameters are replaced as they are called."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from nonvacuous.risk.layers import RULES, NoRule
from nonvacuous.risk.positions import Weights

# Questions about a parameter that do not depend on its values.
_HARMLESS = frozenset(
    [
        *(
            getattr(Tensor, name).__get__
            for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda")
        ),
        Tensor.size,
        Tensor.dim,
        Tensor.numel,
        Tensor.is_floating_point,
        Tensor.__len__,
    ]
)


def _halved(input: Tensor, kernel_size: Any, stride: Any = None, *more: Any, **named: Any) -> Any:
    """Maxima of two by two neighbors, in a small part of the time that torch takes for them."""
    pair = (2, [2, 2], (2, 2))
    usual = {"padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    plain = kernel_size in pair and stride in (None, [], *pair) and not more
    plain = plain and all(
        value in (usual[name], (usual[name],) * 2) for name, value in named.items()
    )
    plain = plain and input.ndim == 4 and input.device.type == "cpu" and not input.requires_grad
    if not plain or min(input.shape[2:]) < 2:
        return F.max_pool2d(input, kernel_size, stride, *more, **named)
    for axis in (2, 3):
        halves = input.narrow(axis, 0, input.shape[axis] // 2 * 2).unflatten(axis, (-1, 2))
        input = torch.maximum(halves.select(axis + 1, 0), halves.select(axis + 1, 1))
    return input


#: Rules lay out their outputs as is fastest, while a view insists on one layout; values are equal.
_SAME_VALUES = {
    Tensor.view: Tensor.reshape,
    Tensor.view_as: Tensor.reshape_as,
    F.max_pool2d: _halved,
    torch.max_pool2d: _halved,
}


_VIEWS = (Tensor.view, Tensor.view_as)


class Memory:
    """What passes over the same examples share until noise comes in: the last few results.

    Tensors are compared by their values. No large result is kept.
    """

    _RESULTS, _BYTES = 8, 1 << 25

    def __init__(self) -> None:
        self._kept: deque[tuple[Any, tuple[Any, ...], list[int], Any]] = deque(maxlen=self._RESULTS)

    def __call__(self, function: Callable[..., Any], *given: Tensor | None) -> Any:
        for known, before, versions, result in self._kept:
            fresh = known is function and versions == _versions(before)
            fresh = fresh and len(before) == len(given)
            if fresh and all(map(_equal, before, given)):
                return result
        result = function(*given)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tree_leaves(result))
        if size <= self._BYTES and not any(t is not None and t.is_inference() for t in given):
            self._kept.append((function, given, _versions(given), result))
        return result


def _versions(tensors: tuple[Tensor | None, ...]) -> list[int]:
    """How often each was written to: what followed from it before is worthless then."""
    return [-1 if tensor is None else tensor._version for tensor in tensors]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    same = one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
    return same or torch.equal(one, other)


class WatchedPass(TorchFunctionMode):
    """One forward pass in which functions of parameters follow the rules for drawn weights.

    The pass starts with ``distinct`` rows of inputs. ``rows`` names, for each trial, the row that
    it looks at; the rows are repeated at the first random layer, so that what precedes the noise
    is computed once for each distinct example. With ``rows`` None every row is a trial. Without a
    generator the noise is zero.
    """

    def __init__(
        self,
        parameters: Mapping[int, Weights],
        *,
        distinct: int,
        rows: Tensor | None,
        generator: torch.Generator | None,
        memory: Memory | None = None,
    ) -> None:
        super().__init__()
        self.parameters = parameters
        self.generator = generator
        self.pending = rows
        self.memory = memory
        self.trials = distinct if rows is None else len(rows)
        self.height = distinct
        self.taken: set[str] = set()
        self.bytes = 0
        #: What should have been a view and became a copy, and how often it had been written to.
        self.copies: list[tuple[Tensor, int]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        used = [id(x) for x in tree_leaves((args, kwargs)) if id(x) in self.parameters]
        if not used or func in _HARMLESS:
            other = func
            if not any(isinstance(x, torch.dtype) for x in (*args, *kwargs.values())):
                other = _SAME_VALUES.get(func, func)
            result = other(*args, **kwargs)
            if other is not func and func in _VIEWS:
                first, second = (tensor.untyped_storage() for tensor in (result, args[0]))
                if first.data_ptr() != second.data_ptr():
                    self.copies.append((result, result._version))
        else:
            rule = RULES.get(func)
            if rule is None:
                raise NoRule(f"{self.parameters[used[0]].name} is used by {func}")
            before = len(self.taken)
            result = rule(self, *args, **kwargs)
            if len(self.taken) - before != len(used):
                raise NoRule(f"{func} uses a parameter as something else than weight or bias")
        if isinstance(result, Tensor):
            self.count(result)
        return result

    def check_copies(self) -> None:
        """What is written into a copy does not reach the tensor that it should be a view of."""
        if any(tensor._version != version for tensor, version in self.copies):
            raise NoRule("a view of what a layer returned is written to")

    def count(self, *tensors: Tensor) -> None:
        """Memory that a rule needs beside its result and its noise."""
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def take(self, parameter: Tensor) -> Weights:
        """The distribution of a parameter; each may be taken once in a pass."""
        weights = self.parameters.get(id(parameter))
        if weights is None:
            raise NoRule("a layer whose weight or bias is computed from something else")
        if weights.name in self.taken:
            raise NoRule(f"{weights.name} is used more than once")
        self.taken.add(weights.name)
        return weights

    def check_rows(self, inputs: Tensor) -> None:
        """Refuse inputs whose first dimension is not the examples."""
        if inputs.ndim < 2 or inputs.shape[0] != self.height:
            raise NoRule("a layer whose first dimension is not the examples")

    def spread(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Repeat rows of distinct examples so that there is one for each trial."""
        if self.pending is None:
            return tensors
        rows, self.pending, self.height = self.pending, None, self.trials
        return tuple(tensor.index_select(0, rows) for tensor in tensors)

    def known(self, function: Callable[..., Any], *tensors: Tensor | None) -> Any:
        """What a function makes of tensors; before the first noise an earlier pass may know it."""
        if self.memory is None or self.pending is None:
            return function(*tensors)
        return self.memory(function, *tensors)

    def noise(self, like: Tensor, *shape: int) -> Tensor:
        """Independent standard normal values."""
        if self.pending is not None:
            raise NoRule("the first random layer needs its inputs once for each trial")
        # Twice: the noise itself, and what it is combined with.
        self.bytes += 2 * like.element_size() * math.prod(shape)
        if self.generator is None:
            return like.new_zeros(shape)
        return torch.randn(shape, generator=self.generator, dtype=like.dtype, device=like.device)

    def draw(self, weights: Weights, *, trials: int | None = None) -> Tensor:
        """One independent draw of a parameter tensor for each trial: (trials, *shape)."""
        count = self.trials if trials is None else trials
        noise = self.noise(weights.mean, count, *weights.mean.shape)
        return noise.mul_(weights.scale).add_(weights.mean)
