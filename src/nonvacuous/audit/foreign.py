"""Watching one prediction for tensors that the network does not own.

A tensor in a global variable, in a closure or in some other object enters the computation without
being a parameter, a buffer or an attribute. Nobody can tell what it was before the bound examples
were seen, but that it enters can be seen: every tensor that an operation reads is an input, a
tensor of the network, or the result of an earlier operation, or it is foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.lib.array_utils import byte_bounds
from torch import Tensor
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nonvacuous.audit.probing import Network, undisturbed
from nonvacuous.distributions.attributes import attribute_values

#: Numbers written into the code, as in torch.tensor([0.5, 0.5]), are part of the architecture;
#: longer ones are tables.
LONGEST_LITERAL = 64


def foreign_tensor(network: Network, inputs: Tensor) -> str | None:
    """The first tensor of a prediction that comes from nowhere, in words; None if all are known."""
    # Copies of parameters and buffers: whoever reads the originals by another way is found too,
    # since drawing weights would not reach there.
    used = {name: tensor.clone() for name, tensor in network.tensors.items()}
    given = inputs.to(network.device)
    kept = [value for _, value in attribute_values(network.module)]
    watcher = _Watcher([given, *used.values(), *kept])
    with undisturbed(network.device), watcher:
        functional_call(network.module, used, (given,))
    return watcher.found


class _Watcher(TorchDispatchMode):
    def __init__(self, known: Iterable[Any]) -> None:
        super().__init__()
        self.found: str | None = None
        #: Kept alive, so that no address is given away again.
        self._kept: list[Any] = []
        self._addresses: set[int] = set()
        self._ranges: list[tuple[int, int]] = []
        for value in known:
            self._know(value)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        for value in tree_leaves((args, dict(kwargs or {}))):
            if self.found is None and isinstance(value, Tensor) and not self._knows(value):
                self._meet(value, str(func))
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            self._know(value)
        return result

    def _meet(self, value: Tensor, operator: str) -> None:
        # A single number is how PyTorch passes one; new tensors from Python numbers are lifted.
        literal = operator.startswith("aten.lift_fresh") and value.numel() <= LONGEST_LITERAL
        if value.dim() == 0 or value.numel() == 0 or literal:
            self._know(value)
        else:
            self.found = f"a tensor of shape {tuple(value.shape)} that {operator} reads"

    def _know(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            # Tensors made from a part of an array begin somewhere within it.
            self._ranges.append(byte_bounds(value))
        elif isinstance(value, Tensor):
            self._addresses |= {id(value), *_address(value)}
        self._kept.append(value)

    def _knows(self, value: Tensor) -> bool:
        where = _address(value)
        if id(value) in self._addresses or not self._addresses.isdisjoint(where):
            return True
        return any(low <= address < high for address in where for low, high in self._ranges)


def _address(value: Tensor) -> tuple[int, ...]:
    """Where the numbers lie; nothing for layouts that have no single place."""
    if value.layout != torch.strided:
        return ()
    address = value.untyped_storage().data_ptr()
    return (address,) if address else ()
