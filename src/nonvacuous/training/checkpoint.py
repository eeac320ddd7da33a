"""Checkpoints: one safetensors file that is either the old state or the new one, never a mixture.

Tensors, position, history and configuration travel in the same file (the latter three as JSON in
its metadata), so a single atomic rename commits all of them. A kill at any moment leaves the
previous checkpoint in place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically

FORMAT = "nonvacuous training checkpoint 1"


class CorruptCheckpoint(BadInput):
    """A checkpoint file was damaged or is not a checkpoint of this library."""


class OtherConfiguration(BadInput):
    """A checkpoint belongs to a run with other settings, another model or other data."""


class Checkpoint(NamedTuple):
    """What a training run needs in order to go on: its tensors and its plain facts."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(
    path: Path,
    *,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    configuration: Mapping[str, Any],
) -> None:
    """Write a checkpoint; `facts` and `configuration` must be plain JSON."""
    # Clones: safetensors refuses tensors that share memory, as views of one buffer do.
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    metadata = {
        "format": FORMAT,
        "facts": json.dumps(facts, allow_nan=False),
        "configuration": json.dumps(configuration, allow_nan=False, sort_keys=True),
    }
    metadata["digest"] = _digest(own, metadata)
    content = safetensors.torch.save(own, metadata=metadata)
    write_atomically(path, content)


def load_checkpoint(path: Path, *, configuration: Mapping[str, Any]) -> Checkpoint:
    """Read a checkpoint back and insist that it belongs to `configuration`."""
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise _corrupt(path, f"it cannot be read ({error})") from error
    if metadata.get("format") != FORMAT:
        raise _corrupt(path, "it is not a checkpoint of this version of nonvacuous")
    recorded = metadata.pop("digest", None)
    if recorded != _digest(tensors, metadata):
        raise _corrupt(path, "its checksum does not match its content")
    try:
        stored, facts = json.loads(metadata["configuration"]), json.loads(metadata["facts"])
        if not (isinstance(stored, dict) and isinstance(facts, dict)):
            raise ValueError("not a record")
    except (KeyError, ValueError, RecursionError) as error:
        raise _corrupt(path, "its facts cannot be read") from error
    current = json.loads(json.dumps(configuration))
    if stored != current:
        raise OtherConfiguration(
            f"The checkpoint {path} belongs to another run: {_differences(stored, current)}. "
            "Going on from it would mix two runs. Call with the settings, model and data it was "
            "begun with, or delete the file (or name another one) to start afresh."
        )
    return Checkpoint(tensors=tensors, facts=facts)


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    text = json.dumps(metadata, sort_keys=True)
    return hashlib.sha256((tensors_digest(tensors) + text).encode()).hexdigest()


def _corrupt(path: Path, why: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(
        f"The checkpoint {path} cannot be used: {why}. Delete the file to start this phase "
        "afresh, or put back an intact copy."
    )


def _differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key} was {_short(stored.get(key))} and is now {_short(current.get(key))}"
        for key in sorted(stored.keys() | current.keys())
        if stored.get(key) != current.get(key)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:18]}…{text[-18:]}"
