"""Networks of the same layers are exported once: what torch.export says rests on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

#: No settings: tensors are described by all but their numbers, and a recipe is not called.
_CONTENT = ("_parameters", "_buffers", "_modules", "recipe")


def remembered(export: Callable[..., Any], *, most: int = 300) -> Callable[..., Any]:
    """The same function, which answers at once where the layers were met before.

    Only for layers of torch and networks of this project, which are wholly described by their
    attributes: a class of a test may do anything, and is exported each time.
    """
    programs: dict[Any, Any] = {}

    def exported(module: nn.Module, arguments: tuple[Any, ...]) -> Any:
        key = described(module, arguments)
        if key is None:
            return export(module, arguments)
        if key not in programs:
            if len(programs) >= most:
                programs.pop(next(iter(programs)))
            programs[key] = export(module, arguments)
        return programs[key]

    return exported


def described(module: nn.Module, arguments: tuple[Any, ...]) -> str | None:
    """All that an export can depend on, as text; None where that cannot be told."""
    # Tensors by number: one that is used twice, or shares its memory, is seen to be.
    numbers: dict[int, int] = {}
    parts = [str(torch.get_default_dtype()), str(torch.is_grad_enabled())]
    for name, layer in module.named_modules(remove_duplicate=False):
        kind = type(layer)
        if not kind.__module__.startswith(("torch.nn.modules.", "nonvacuous.models.")):
            return None
        settings = {key: value for key, value in vars(layer).items() if key not in _CONTENT}
        if not all(_is_plain(value) for value in settings.values()):
            return None
        parts.append(f"{name}: {kind.__qualname__} {settings}")
        for own in (layer._parameters, layer._buffers):
            parts += [f"{key} {_tensor(value, numbers)}" for key, value in own.items()]
    for argument in arguments:
        if not isinstance(argument, Tensor):
            return None
        parts.append(_tensor(argument, numbers))
    return "\n".join(parts)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return not value
    if isinstance(value, tuple | list | set):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | torch.dtype | torch.device)


def _tensor(value: Tensor | None, numbers: dict[int, int]) -> str:
    if value is None:
        return "none"
    memory = numbers.setdefault(value.untyped_storage()._cdata, len(numbers))
    own = numbers.setdefault(id(value), len(numbers))
    kind = f"{type(value).__name__} {value.dtype} {value.device} {value.requires_grad}"
    return f"{own} in {memory}: {tuple(value.shape)} {value.stride()} {kind}"
