"""Reading and writing named tensors: safetensors only, and never a half-written file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors_bytes
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically

_KEY = "nonvacuous"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, kind: str) -> None:
    """Write named tensors as safetensors; ``kind`` says what they are and is checked on loading."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # The format keeps no order, but draws are made in the order of the names.
    # One key of metadata, since the format writes several in an order of its own: equal tensors
    # must give equal bytes.
    metadata = {_KEY: json.dumps({"kind": kind, "version": 1, "order": list(plain)})}
    content = to_safetensors_bytes(plain, metadata=metadata)
    write_atomically(path, content)


def load_tensors(path: Path, *, kind: str, device: torch.device | str) -> dict[str, Tensor]:
    """Read what :func:`save_tensors` wrote, refusing anything else by name."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}; check the path, or save the distribution first")
    try:
        with safe_open(path, framework="pt", device=str(device)) as stored:
            metadata = json.loads((stored.metadata() or {}).get(_KEY, "null"))
            if not isinstance(metadata, dict) or (
                (metadata.get("kind"), metadata.get("version")) != (kind, 1)
            ):
                raise BadInput(
                    f"{path} does not hold a {kind} of version 1 (its metadata says "
                    f"{metadata or 'nothing'}); load a file written by {kind}.save"
                )
            order = metadata.get("order")
            if not isinstance(order, list) or sorted(map(str, order)) != sorted(stored.keys()):
                raise BadInput(f"{path} lists other tensors than it holds; save it again")
            return {name: stored.get_tensor(name) for name in order}
    except (SafetensorError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path} is not a readable safetensors file ({error}); it may have been cut short "
            "while copied: fetch or save it again"
        ) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file."""
    with safe_open(path, framework="pt", device="cpu") as stored:
        return {name: stored.get_tensor(name) for name in stored.keys()}


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        header = f"{len(name)}:{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode()
        digest.update(header)
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
