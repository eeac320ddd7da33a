"""Checks of arguments that both kinds of training share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput


def whole_number(name: str, value: int, *, least: int) -> int:
    """`value` if it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{name} is {value!r}; it must be a whole number of at least {least}.")
    return value


def real_number(
    name: str,
    value: float,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
) -> float:
    """`value` as a finite float within `above` < value < `below` and value >= `least`."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (good and above < value < below and value >= least):
        limits = [f"finite{'' if above == -math.inf else f', above {above:g}'}"]
        if least != -math.inf:
            limits.append(f"at least {least:g}")
        if below != math.inf:
            limits.append(f"below {below:g}")
        raise BadInput(f"{name} is {value!r}; it must be {', '.join(limits)}.")
    return float(value)


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """`value` if it is among `choices`."""
    if value not in choices:
        raise BadInput(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}.")
    return value


def module_device(module: nn.Module) -> torch.device:
    """Where a module's first parameter or buffer lies; the CPU for a module without any."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def resident(
    examples: Examples, module: nn.Module, device: torch.device, *, name: str = "examples"
) -> tuple[Tensor, Tensor]:
    """All inputs and labels on the device, in the module's dtype, after a trial prediction.

    The trial catches what a GPU reports only as an unreadable assertion: outputs of the wrong
    shape and labels that the network has no output for.
    """
    count = len(examples)
    if count == 0:
        raise BadInput(f"{name} is empty: give at least one example.")
    inputs, labels = examples.inputs.to(device), examples.labels.to(device)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), inputs.dtype)
    if inputs.is_floating_point():
        inputs = inputs.to(dtype)
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(inputs[:2])
    except Exception as error:
        raise BadInput(
            f"The model cannot predict {name} of shape {tuple(inputs.shape[1:])}: {error}. Give "
            "a model that accepts a batch of these inputs."
        ) from error
    finally:
        module.train(was_training)
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != min(2, count):
        raise BadInput(
            f"The model's output for {min(2, count)} examples is {shape}; training needs a tensor "
            "of one row per example and one column per class."
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= outputs.shape[1]:
        raise BadInput(
            f"The labels of {name} run from {lowest} to {highest}, but the model has "
            f"{outputs.shape[1]} outputs. Give it one output per class."
        )
    return inputs, labels


def check_fits(module: nn.Module, examples: Examples, *, spec: str) -> None:
    """Run the network on two examples, so that a misfit is known before anything is trained."""
    shape, classes = examples.example_shape, examples.classes
    inputs = f"inputs of shape {shape} (the examples of {examples.name})"
    was_training = module.training
    try:
        with torch.no_grad():
            outputs = module.eval()(examples.inputs[:2])
    except Exception as error:  # the user's code may raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"the model {spec} cannot take {inputs}: {first}. Build it for this shape, or bring "
            "the data in the shape it expects.",
        ) from error
    finally:
        module.train(was_training)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (2, classes):
        got = (
            f"outputs of shape {tuple(outputs.shape)}"
            if isinstance(outputs, Tensor)
            else f"a {type(outputs).__name__}"
        )
        raise BadInput(
            f"the model {spec} gives {got} for two {inputs}; a classifier of {classes} classes "
            f"must give (2, {classes}), one score for each class.",
        )
