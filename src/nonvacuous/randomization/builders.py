"""The network of a study: a name, or a function of the user's that builds it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.models import build as build_named
from nonvacuous.randomization.learners import Build


def builder_of(model: str | Callable[[], nn.Module], examples: Examples) -> tuple[Build, str]:
    """A function from a seed to a fresh network, and what the architecture is called.

    model   such as "mlp:512", or a function without arguments that returns a torch.nn.Module and
            draws its weights from torch's global generator
    """
    if isinstance(model, str):
        name = model
        return lambda seed: build_named(
            name, examples.example_shape, examples.classes, seed=seed
        ), name
    if isinstance(model, nn.Module):
        raise BadInput(
            "a study trains many fresh networks: give a function that builds one (such as the "
            "class, or lambda: MyNetwork(...)), not a network"
        )
    function = model

    def build(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = function()
            except Exception as error:  # the user's code may raise anything
                raise BadInput(
                    f"the function that builds the network raised {type(error).__name__}: {error}; "
                    "it is called without arguments"
                ) from error
        if not isinstance(module, nn.Module):
            raise BadInput(
                f"the function that builds the network returned a {type(module).__name__}, not a "
                "torch.nn.Module"
            )
        return module

    return build, getattr(function, "__qualname__", type(function).__qualname__)


def check_fits(module: nn.Module, examples: Examples) -> None:
    """Run two examples through, so that a misfit is told before anything is trained."""
    inputs, classes = examples.inputs[:2], examples.classes
    was_training = module.training
    try:
        with torch.no_grad():
            outputs = module.eval()(inputs)
    except Exception as error:  # the user's code may raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"the network cannot take inputs of shape {examples.example_shape} from "
            f"{examples.name}: {first}"
        ) from error
    finally:
        module.train(was_training)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (2, classes):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise BadInput(
            f"the network gives {shape} for two examples of {examples.name}; it must give one "
            f"score for each of the {classes} classes, (2, {classes})"
        )
