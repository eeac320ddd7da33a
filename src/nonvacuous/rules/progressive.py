"""Which examples test which checkpoint, which train it, and at which tilt: one rule for all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.data import Examples, Split
from nonvacuous.data.splits import find_units
from nonvacuous.distributions.copying import copied_network
from nonvacuous.errors import BadInput
from nonvacuous.records import Observation
from nonvacuous.rules.digests import fixed_tensors
from nonvacuous.rules.drawing import set_aside, temperature
from nonvacuous.seeds import derived_seed

#: What the errors on the examples set aside for the tilt are called in a certificate.
OBSERVED = "the first checkpoint on examples of the first part, set aside for the tilt"
#: The part of the data behind the checkpoint whose plain test stands beside the promise.
TWIN_FRACTION = 0.8
#: Errors and trials where too few examples could be set aside: a guess of one in ten.
_GUESS = (9, 98)


def file_name(number: int) -> str:
    """The file of a checkpoint, counted from 1."""
    return f"checkpoint-{number}.safetensors"


def batches_of(examples: Examples, split: Split, count: int, seed: int) -> tuple[np.ndarray, ...]:
    """The bound examples in batches of nearly one size, in random order, copies together."""
    bound = split.bound
    unit, _ = find_units(len(bound), groups=None, content_hashes=examples.input_hashes()[bound])
    sizes = np.bincount(unit)
    order = np.random.default_rng(derived_seed(seed, "batches")).permutation(len(sizes))
    # A unit belongs where its middle lies; for units of one example the batches come out even.
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    number = np.empty(len(sizes), dtype=np.int64)
    number[order] = np.floor(middles * count / len(bound)).astype(np.int64)
    batches = tuple(bound[number[unit] == batch] for batch in range(count))
    if not all(map(len, batches)):
        raise BadInput(
            f"{len(bound)} examples after the first part are too few for {count} batches; take "
            "fewer batches, or a smaller first part"
        )
    return batches


def first_part(split: Split, seed: int, *, tilted: bool) -> tuple[np.ndarray, np.ndarray]:
    """(examples that train the first checkpoint, examples that choose the tilt)."""
    return set_aside(split.prior, seed) if tilted else (split.prior, split.prior[:0])


def trained_on(
    split: Split, batches: tuple[np.ndarray, ...], seed: int, *, tilted: bool
) -> tuple[np.ndarray, ...]:
    """For each checkpoint the examples that train it: all before its batch.

    Those that chose the tilt join with the first batch.
    """
    later = (
        np.sort(np.concatenate([split.prior, *batches[:number]]))
        for number in range(1, len(batches))
    )
    return (first_part(split, seed, tilted=tilted)[0], *later)


def tilt_of(aside: Observation | None, *, examples: int, failure: float) -> float:
    """The tilt that suits a predictor with so many errors among examples of the first part.

    >>> round(tilt_of(None, examples=1000, failure=0.05), 2)
    0.25
    """
    errors, trials = _GUESS if aside is None else (aside.errors, aside.trials)
    return temperature(
        errors=errors, trials=trials, examples=examples, failure=failure, kl_nats=0.0
    )


def twin_number(trained: tuple[np.ndarray, ...], total: int) -> int:
    """The checkpoint, counted from 1, that was trained on about four fifths of all examples."""
    shares = [abs(len(part) / total - TWIN_FRACTION) for part in trained]
    return 1 + shares.index(min(shares))


def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the network that holds these tensors."""
    network = copied_network(model)
    own = fixed_tensors(network)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in tensors.items()}:
        raise BadInput(
            "the stored checkpoint belongs to another network: names or shapes of its tensors are "
            "not those of the network given"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    return network
