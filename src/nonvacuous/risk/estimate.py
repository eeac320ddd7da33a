"""What an estimator hands to the bounds: counts, and how many of them are independent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput, NonvacuousError, WrongMode


@dataclass(frozen=True)
class RiskEstimate:
    """Losses summed over independent trials.

    ``trials`` is the number of *independent* trials, whatever the number of forward passes:
    the only count a sampling bound may use. ``total`` is the sum of the losses of the trials in
    units of the loss's range, so 0 <= total <= trials; ``errors`` is that sum as an integer
    when each trial is an error or not, and None otherwise. ``identical`` says that the trials
    share one law, which the exact binomial tail needs.
    """

    errors: int | None
    trials: int
    total: float
    scheme: str
    identical: bool
    loss: str
    method: str
    examples: int
    lower: float = 0.0
    upper: float = 1.0

    @property
    def risk(self) -> float:
        """The mean loss in the loss's own units: an estimate, without a confidence."""
        return self.lower + (self.upper - self.lower) * self.total / self.trials


# Work in pieces that fit into memory, and in smaller ones when they do not.

# A piece on a processor should stay near its caches; on an accelerator it should fill the chip.
_PROCESSOR_BYTES = 48 << 20
_ACCELERATOR_BYTES = 4 << 30
_LARGEST_CHUNK = 1 << 20


class OutOfMemory(NonvacuousError, MemoryError):
    """Memory runs out even for the smallest piece of work."""


def default_chunk(bytes_per_trial: int, device: torch.device) -> int:
    """How many trials to run at once: a function of network and device alone.

    It does not look at the memory that happens to be free, because the size of the pieces decides
    which trial gets which noise: the same seed must give the same result tomorrow.
    """
    room = _PROCESSOR_BYTES if device.type == "cpu" else _ACCELERATOR_BYTES
    return max(1, min(_LARGEST_CHUNK, room // max(1, bytes_per_trial)))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on whichever device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "not enough memory" in text or "can't allocate memory" in text
    )


def keep_pages(device: torch.device) -> None:
    """Let the processor's allocator keep what it has for pieces that follow one another.

    By default glibc returns memory of several megabytes to the system and fetches every page anew,
    a quarter of the time of a trial. Having freed one block of nearly 32 MiB, it keeps twice that.
    """
    if device.type == "cpu":
        torch.empty((32 << 20) - 8192, dtype=torch.uint8)


@contextmanager
def plain_precision(device: torch.device) -> Iterator[None]:
    """No gradients, no automatic mixed precision, and float32 convolutions in full float32.

    By default cuDNN may round the inputs of float32 convolutions to 10 bits (TF32). The setting
    is put back on leaving.
    """
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        if device.type != "cuda":
            yield
            return
        settings = torch.backends.cudnn
        with settings.flags(
            enabled=settings.enabled,
            benchmark=settings.benchmark,
            deterministic=settings.deterministic,
            allow_tf32=False,
        ):
            yield


# What must hold before a risk is measured: fitting examples, and a network in evaluation mode.


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
