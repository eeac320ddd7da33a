"""Fingerprints of examples, tensors and files, shared by whoever writes and whoever checks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.data.files import hash_examples, hash_of_hashes
from nonvacuous.data.splits import index_digest as index_digest
from nonvacuous.data.splits import sorted_positions
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.distributions.storage import tensors_digest as tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.records import ExampleSet


def content_digest(examples: Examples, indices: Sequence[int] | np.ndarray) -> str:
    """SHA-256 over the content hashes of these examples, in the order of their indices."""
    chosen = sorted_positions(indices, "a set of examples")
    if chosen.size and int(chosen[-1]) >= len(examples):
        raise BadInput(
            f"example {int(chosen[-1])} was asked for, but {examples.name} has only "
            f"{len(examples)}: the indices belong to other data."
        )
    return hash_of_hashes(examples.content_hashes()[chosen])


def all_examples_digest(examples: Examples) -> str:
    """SHA-256 over the content of all examples, in whatever order and shape they come."""
    return hash_of_hashes(np.sort(hash_examples(examples.inputs.flatten(1), examples.labels)[0]))


def example_set(examples: Examples, indices: Sequence[int] | np.ndarray) -> ExampleSet:
    """The record of some examples: how many, which, and what they hold. Not for an empty set."""
    chosen = sorted_positions(indices, "a set of examples")
    if not chosen.size:
        raise BadInput(
            f"a set of examples of {examples.name} is empty; leave the record out instead."
        )
    return ExampleSet(
        examples=len(chosen),
        index_digest=index_digest(chosen),
        content_digest=content_digest(examples, chosen),
    )


def fixed_tensors(module: nn.Module, random: Iterable[str] = ()) -> dict[str, Tensor]:
    """All that is not random in the network: buffers, tensors and arrays that it keeps as plain
    attributes, and parameters not named in ``random``. They share memory with the network's."""
    names = set(random)
    fixed = {
        name: parameter.detach()
        for name, parameter in module.named_parameters()
        if name not in names
    }
    fixed |= {name: buffer.detach() for name, buffer in module.named_buffers()}
    return fixed | attribute_tensors(module)


def array_digest(values: np.ndarray) -> str:
    """SHA-256 of numbers as float64, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(values, dtype="<f8").tobytes()).hexdigest()
