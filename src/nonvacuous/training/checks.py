"""Checks of arguments that both kinds of training share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput


def whole_number(name: str, value: int, *, least: int) -> int:
    """`value` if it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{name} is {value!r}; it must be a whole number of at least {least}.")
    return value


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """`value` if it is among `choices`."""
    if value not in choices:
        raise BadInput(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}.")
    return value


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode; afterwards each of its parts is in the mode it was in."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def resident(
    examples: Examples, module: nn.Module, device: torch.device, *, name: str = "examples"
) -> tuple[Tensor, Tensor]:
    """All inputs and labels on the device, in the module's dtype, after a trial prediction."""
    if len(examples) == 0:
        raise BadInput(f"{name} is empty: give at least one example.")
    inputs, labels = examples.inputs.to(device), examples.labels.to(device)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), inputs.dtype)
    if inputs.is_floating_point():
        inputs = inputs.to(dtype)
    check_predicts(module, inputs[:2], [labels], what=name)
    return inputs, labels


def check_predicts(
    module: nn.Module, inputs: Tensor, labels: Sequence[Tensor], *, what: str
) -> None:
    """A trial prediction: scores of the right shape, and a class for every label.

    It catches what a GPU reports only as an unreadable assertion.
    """
    classes = _scores(module, inputs, "the model", what).shape[1]
    lowest = min(int(row.min()) for row in labels)
    highest = max(int(row.max()) for row in labels)
    if lowest < 0 or highest >= classes:
        raise BadInput(
            f"The labels of the {what} run from {lowest} to {highest}, but the model has {classes} "
            "outputs. Give it one output per class, counted from 0."
        )


@contextmanager
def in_batches_of(size: int) -> Iterator[None]:
    """What layers say of a batch in training alone, as batch normalization does of one example."""
    try:
        yield
    except ValueError as error:
        raise BadInput(
            f"the network cannot be trained in batches of {size}: {error}. Give another batch_size."
        ) from error


def check_learnable(loss: Tensor) -> None:
    """Refuse a network from whose outputs no gradient reaches a weight."""
    if not loss.requires_grad:
        raise BadInput(
            "no gradient reaches the network's weights from its outputs, so nothing can be "
            "trained: its forward pass runs without gradients (torch.no_grad, inference_mode, "
            "detach or numpy) or uses frozen weights alone. Let it compute with gradients; a "
            "network that was trained elsewhere is certified as it is by mode post-hoc."
        )


def check_fits(module: nn.Module, examples: Examples, *, spec: str) -> None:
    """Run the network on two examples, so that a misfit is known before anything is trained."""
    model, classes = f"the model {spec}", examples.classes
    outputs = _scores(module, examples.inputs[:2], model, "inputs")
    if outputs.shape[1] != classes:
        raise BadInput(
            f"{model} gives outputs of shape {tuple(outputs.shape)} for two examples of "
            f"{examples.name}; a classifier of {classes} classes must give (2, {classes}), one "
            "score for each class."
        )


def _scores(module: nn.Module, inputs: Tensor, model: str, what: str) -> Tensor:
    """What the module in evaluation mode returns, refused unless it has a row for each input."""
    try:
        with torch.no_grad(), evaluation_mode(module):
            outputs = module(inputs)
    except Exception as error:  # the user's code may raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"{model} cannot take {what} of shape {tuple(inputs.shape[1:])}: {first}. Build it for "
            "this shape, or bring the data in the shape it expects.",
        ) from error
    if isinstance(outputs, Tensor) and outputs.ndim == 2 and len(outputs) == len(inputs):
        return outputs
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    raise BadInput(
        f"{model} gives {shape} for {len(inputs)} examples; it must give a tensor of one row per "
        "example and one column per class."
    )
