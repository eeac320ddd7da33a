"""Watching one prediction, operation by operation, for where its numbers come from.

Every tensor that an operation reads is an input, a tensor of the network, or the result of an
earlier operation, or it is foreign. Which of the tensors in plain attributes are read at all,
before the prediction itself replaces them, is seen on the way.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.lib.array_utils import byte_bounds
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nonvacuous.distributions.attributes import attribute_values

#: Numbers written into the code, as in torch.tensor([0.5, 0.5]), and small constants kept outside
#: of the network are part of the architecture; more of them in one prediction are a table.
ALLOWED_NUMBERS = 64


class Watched:
    """What was seen: the first ``foreign`` tensor in words, and the attributes that were ``read``.

    Arrays and bytes are read without torch, so they always count as read.
    """

    def __init__(self, module: nn.Module, tensors: Mapping[str, Tensor], given: Tensor) -> None:
        self.foreign: str | None = None
        self.read: set[str] = set()
        #: Kept alive, so that no address is given away again.
        self._kept: list[Any] = []
        self._marks: set[int] = set()
        self._ranges: list[tuple[int, int]] = []
        self._attributes: dict[int, set[str]] = {}
        self._literals: dict[bytes, int] = {}
        originals = (*module.parameters(), *module.buffers())
        self._replaced = set[int]().union(*map(_marks, originals))
        for value in (given, *tensors.values()):
            self.know(value)
        for name, value in attribute_values(module):
            self.know(value)
            if isinstance(value, Tensor):
                for mark in _marks(value):
                    self._attributes.setdefault(mark, set()).add(name)
            else:
                self.read.add(name)

    def note(self, values: Any) -> list[Tensor]:
        """All tensors in there; those in attributes are read from now on."""
        tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
        if self._attributes:
            for value in tensors:
                for mark in _marks(value):
                    self.read |= self._attributes.get(mark, set())
        return tensors

    def meet(self, value: Tensor, operator: str) -> None:
        """A tensor that an operation reads."""
        if self.foreign is not None or self._knows(value):
            return
        self._count(value)
        # A parameter is never a constant: drawing weights does not reach where it is read.
        past = isinstance(value, nn.Parameter) or not self._replaced.isdisjoint(_marks(value))
        if past or sum(self._literals.values()) > ALLOWED_NUMBERS:
            self.foreign = f"a tensor of shape {tuple(value.shape)} that {operator} reads"
        else:
            self.know(value)

    def know(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            # Tensors made from a part of an array begin somewhere within it.
            self._ranges.append(byte_bounds(value))
        elif isinstance(value, Tensor):
            self._marks |= _marks(value)
        self._kept.append(value)

    def _knows(self, value: Tensor) -> bool:
        if not self._marks.isdisjoint(_marks(value)):
            return True
        where = _address(value)
        return any(low <= address < high for address in where for low, high in self._ranges)

    def _count(self, value: Tensor) -> None:
        """Equal contents count once, and a tensor of equal numbers is one number."""
        if value.is_meta:  # shapes without numbers
            return
        if value.layout != torch.strided or value.is_quantized or value.is_nested:
            self._literals[b""] = ALLOWED_NUMBERS + 1  # no constant that anybody writes down
            return
        # The whole storage: a view of it would make the rest known too.
        numbers = value.untyped_storage().nbytes() // value.element_size()
        if numbers == 0:
            return
        flat = torch.as_strided(value.detach(), (numbers,), (1,), 0).resolve_conj().resolve_neg()
        rows = flat.cpu().view(torch.uint8).reshape(numbers, -1).numpy()
        same = bool((rows == rows[0]).all())
        content = rows[0].tobytes() if same else rows.tobytes()
        self._literals[str(value.dtype).encode() + content] = 1 if same else numbers


def watched(module: nn.Module, tensors: Mapping[str, Tensor], given: Tensor) -> Watched:
    """Predict once with these parameters and buffers instead of the module's own."""
    # A copy: the network may have kept these very inputs from an earlier call.
    given = given.clone()
    seen = Watched(module, tensors, given)
    with _uncompiled(), _Operations(seen), _Calls(seen):
        functional_call(module, dict(tensors), (given,))
    return seen


class _Operations(TorchDispatchMode):
    """What torch computes, also inside of its own functions."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler for that, and :func:`_uncompiled` does it anyway."""
        return False

    def __init__(self, seen: Watched) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in self._seen.note((args, dict(kwargs or {}))):
            self._seen.meet(value, str(func))
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            self._seen.know(value)
        return result


class _Calls(TorchFunctionMode):
    """What Python asks of a tensor: tolist and numpy take numbers without an operation."""

    def __init__(self, seen: Watched) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._seen.note((args, dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Compiled code runs as it was written; without the compiler's module nothing is compiled."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _marks(value: Tensor) -> set[int]:
    """What tells a tensor, and all that share its numbers, from others."""
    return {id(value), *_address(value)}


def _address(value: Tensor) -> tuple[int, ...]:
    """Where the numbers lie; nothing for layouts that have no single place."""
    if value.layout != torch.strided:
        return ()
    address = value.untyped_storage().data_ptr()
    return (address,) if address else ()
