"""What must hold before a risk is measured: fitting examples, and a network in evaluation mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput, WrongMode


def as_pair(examples: Any) -> tuple[Tensor, Tensor]:
    """Inputs and labels of an object with ``.inputs`` and ``.labels``, or of a pair of tensors."""
    if hasattr(examples, "inputs") and hasattr(examples, "labels"):
        inputs, labels = examples.inputs, examples.labels
    else:
        try:
            inputs, labels = examples
        except (TypeError, ValueError):
            raise BadInput(
                "examples must have .inputs and .labels, or be a pair of tensors (inputs, labels), "
                f"got {type(examples).__name__}"
            ) from None
    if not isinstance(inputs, Tensor) or not isinstance(labels, Tensor):
        raise BadInput("the inputs and the labels of the examples must be tensors")
    if labels.ndim != 1 or labels.is_floating_point() or len(inputs) != len(labels):
        raise BadInput(
            "labels must be a flat integer tensor with one label for each input, got inputs "
            f"{tuple(inputs.shape)} and labels {tuple(labels.shape)} {labels.dtype}"
        )
    if len(labels) == 0:
        raise BadInput("there are no examples; a risk needs at least one")
    return inputs.detach(), labels.detach().long()


def check_evaluation_mode(module: nn.Module) -> None:
    """Refuse a network any part of which still behaves as in training."""
    for name, part in module.named_modules():
        if part.training:
            where = f"its layer {name!r}" if name else "the network"
            raise WrongMode(
                f"{where} ({type(part).__name__}) is in training mode, where predictions may "
                "depend on the batch or on chance; call module.eval() first"
            )


def check_positive_count(name: str, value: int | None) -> None:
    """Refuse a count that is not a positive integer (None means: choose for me)."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInput(f"{name} must be a positive integer, got {value!r}")


def check_labels(outputs: Tensor, labels: Tensor) -> None:
    """Refuse labels that the network has no score for."""
    if isinstance(outputs, Tensor) and outputs.ndim == 2 and len(labels):
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= outputs.shape[1]:
            raise BadInput(
                f"the labels run from {lowest} to {highest}, but the network returns "
                f"{outputs.shape[1]} scores; it was built for other classes"
            )


def generator_on(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """The generator itself if it lives on the device, else one there, seeded by it."""
    if not isinstance(generator, torch.Generator):
        raise BadInput(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator.device.type == device.type:
        return generator
    seed = torch.randint(2**63 - 1, (), generator=generator, device=generator.device)
    return torch.Generator(device).manual_seed(int(seed))


def check_device(module: nn.Module, device: torch.device) -> None:
    """Refuse a module of which some tensor is not on the device of the posterior."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device != device:
            raise BadInput(
                f"{name!r} of the module is on {tensor.device}, the posterior on {device}; move "
                "both to one device (module.to, posterior.to)"
            )
