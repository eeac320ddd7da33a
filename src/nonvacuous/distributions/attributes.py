"""Numbers that a network keeps as plain attributes, beside its parameters and buffers.

PyTorch does not list them anywhere, yet forward may use them like weights: a table in
``self.table``, a layer in a plain list. Nothing pays for what they learned from the data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from nonvacuous.distributions.storage import tensors_digest

#: What every module has: its parameters, buffers, parts and hooks.
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def attribute_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Every tensor, array or string of bytes that the network keeps without registering it.

    Found in the attributes of all its parts, also inside lists, tuples, dictionaries and sets, and
    in layers that stand in one of these. Named by where they are, such as ``layer.table`` or
    ``tables[0]``. Tensors and writable arrays share memory with what they stand for.

    >>> network = nn.Linear(2, 1)
    >>> network.tables = [np.zeros(3)]
    >>> list(attribute_tensors(network))
    ['tables[0]']
    """
    return {name: _as_tensor(value) for name, value in attribute_values(module)}


def attribute_values(
    module: nn.Module,
    prefix: str = "",
    known: frozenset[int] = frozenset(),
    above: tuple[int, ...] = (),
) -> Iterator[tuple[str, Any]]:
    """The same as they stand in the network, one name and one value after the other.

    ``known``: what is registered further up; ``above``: the containers that one is in.
    """
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    registered = known | {id(value) for _, value in (*parameters, *buffers)}
    registered |= {id(part) for part in module.modules()}
    for name, part in module.named_modules(prefix=prefix):
        if id(part) in known:
            continue
        skipped = _OF_EVERY_MODULE | _recomputed(part)
        for own, value in vars(part).items():
            if own not in skipped:
                yield from _inside(value, f"{name}.{own}" if name else own, registered, above)


def _inside(
    value: Any, name: str, known: frozenset[int], above: tuple[int, ...]
) -> Iterator[tuple[str, Any]]:
    if id(value) in known or id(value) in above:
        return
    below = (*above, id(value))
    if isinstance(value, Tensor):
        if not value.is_meta:  # shapes without numbers
            yield name, value
    elif isinstance(value, bytes | bytearray) or (
        isinstance(value, np.ndarray) and not value.dtype.hasobject
    ):
        yield name, value
    elif isinstance(value, nn.Module):
        # A layer that the network does not know: its weights are on nobody's list.
        for own, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield from _inside(tensor, f"{name}.{own}", known, below)
        yield from attribute_values(value, name, known, below)
    elif isinstance(value, dict | MappingProxyType):
        for position, (key, entry) in enumerate(value.items()):
            shown = repr(key) if isinstance(key, str | int) else position
            yield from _inside(entry, f"{name}[{shown}]", known, below)
    elif isinstance(value, list | tuple | deque | np.ndarray):
        entries = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
        for position, entry in enumerate(entries):
            yield from _inside(entry, f"{name}[{position}]", known, below)
    elif isinstance(value, set | frozenset):
        # Sets have no order: by content, so that the same set always gets the same names.
        pairs = [pair for entry in value for pair in _inside(entry, name, known, below)]
        pairs.sort(key=lambda pair: tensors_digest({"": _as_tensor(pair[1])}))
        for position, (inner, entry) in enumerate(pairs):
            yield f"{name}{{{position}}}{inner.removeprefix(name)}", entry


def _recomputed(part: nn.Module) -> frozenset[str]:
    """Weights that PyTorch's own hooks compute anew before each call, from what is registered."""
    names = set()
    for hook in part._forward_pre_hooks.values():
        if type(hook) in (WeightNorm, SpectralNorm):
            names.add(hook.name)  # type: ignore[attr-defined]
        elif isinstance(hook, BasePruningMethod) and (
            type(hook).__call__ is BasePruningMethod.__call__
        ):
            names.add(hook._tensor_name)
    return frozenset(names)


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        tensor = value.detach()
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        return tensor if tensor.layout == torch.strided else tensor.to_dense()
    array = np.asarray(value) if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
    try:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):  # text, extended precision, another byte order
        return torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
