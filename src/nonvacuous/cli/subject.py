"""The network that ``inspect`` and ``rescale`` are about: built, loaded, captured."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import NetworkFlags
from nonvacuous.data import Examples
from nonvacuous.networks import capture, fold_batch_norm, scale_groups
from nonvacuous.seeds import derived_seed
from nonvacuous.studies.networks import build_network, load_weights
from nonvacuous.study.study import named_data
from nonvacuous.training.checks import check_fits

_WHOLE = "int:"


class Subject:
    """A network in evaluation mode, what it computes, and along which scales it can move.

    examples   those of --data; None where only the shape of an input was given
    example    a batch of two inputs, by which the network was written down
    stored     the file of its weights; None where they follow from the seed
    """

    def __init__(self, flags: NetworkFlags, weights: Path | None, *, fold: bool = False) -> None:
        """Build the network of --model for the inputs of --data or --example, and capture it."""
        if (flags.data is None) == (flags.example is None):
            raise UsageError(
                "give the shape of an input once: --data NAME, or --example with the sizes of one "
                "input, such as --example 1,28,28."
            )
        self.flags, self.stored = flags, weights
        self.spec, self.seed = flags.model, flags.seed
        self.examples: Examples | None = None
        if flags.data is None:
            self.example = _inputs(str(flags.example), flags.seed)
            if flags.classes < 2:
                raise UsageError(f"--classes must be at least 2, got --classes = {flags.classes}.")
            # Only their shape and the number of classes are looked at.
            labels, names = torch.zeros(2, dtype=torch.int64), map(str, range(flags.classes))
            examples = Examples(self.example.float(), labels, tuple(names), name="--example")
        else:
            self.examples = examples = named_data(flags.data, flags.data_dir).train
            self.example = examples.inputs[:2]
        module = build_network(flags.model, examples, seed=flags.seed)
        if self.examples is not None:
            check_fits(module, examples, spec=flags.model)
        if weights is not None:
            load_weights(module, weights, flag="--weights", spec=flags.model)
        module = module.eval().requires_grad_(False)
        self.module = fold_batch_norm(module, self.example) if fold else module
        self.graph = capture(self.module, self.example)
        self.groups = scale_groups(self.graph)

    def inputs(self, count: int) -> Tensor:
        """Inputs on which to compare functions: those of --data, else random ones."""
        if self.examples is not None:
            return self.examples.inputs[:count]
        shape = (count, *self.example.shape[1:])
        generator = torch.Generator().manual_seed(derived_seed(self.seed, "inputs"))
        if not self.example.is_floating_point():  # word numbers
            return torch.randint(0, 2, shape, generator=generator)
        return torch.randn(shape, generator=generator)

    @property
    def shape(self) -> str:
        """The shape of one input, for a person."""
        return " x ".join(map(str, self.example.shape[1:])) or "one number"


def _inputs(text: str, seed: int) -> Tensor:
    """A batch of two inputs of the shape that --example gives."""
    whole = text.startswith(_WHOLE)
    sizes = [part.strip() for part in text.removeprefix(_WHOLE).split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in sizes):
        raise UsageError(
            f"--example: {text!r} is not the shape of an input; write whole numbers separated by "
            "commas, such as 1,28,28 for an image or 20 for a vector (int:20 for a network that "
            "takes whole numbers, such as word numbers)."
        )
    shape = (2, *(int(part) for part in sizes))
    if whole:
        return torch.zeros(shape, dtype=torch.int64)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
