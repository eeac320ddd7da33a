"""Randomness that needs no stored state.

Every random choice of a training run is a function of (seed, purpose, epoch, step). A run that was
killed and resumed therefore draws exactly what an undisturbed run draws, and two purposes never
share a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nonvacuous.seeds import derived_seed


def shuffled(examples: int, *, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits the examples, the same on every device."""
    generator = torch.Generator().manual_seed(derived_seed(seed, "order", epoch))
    return torch.randperm(examples, generator=generator)


def batch_edges(examples: int, batch_size: int) -> list[int]:
    """Where batches begin and end: as few as possible, sizes differing by at most one.

    A short last batch would weigh its examples more than the others, and one of a single example
    breaks batch normalization.

    >>> batch_edges(10, 4)
    [0, 4, 7, 10]
    >>> batch_edges(3, 100)
    [0, 3]
    """
    batches = -(-examples // batch_size)
    smaller, larger = divmod(examples, batches)
    edges = [0]
    for batch in range(batches):
        edges.append(edges[-1] + smaller + (1 if batch < larger else 0))
    return edges


@contextmanager
def borrowed_global_generator(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Lend the global generators to layers, such as dropout, that accept no other.

    Yields a function that seeds them. Their former state comes back at the end, so a caller's own
    random numbers are the same with and without the training in between.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]

    def reseed(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    try:
        yield reseed
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
