"""Content hashes: one sha256 per example, so that identical examples can be recognized anywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

_CHUNK = 4096


def hash_examples(inputs: Tensor, labels: Tensor | None) -> np.ndarray:
    """One sha256 per example, as 64 hexadecimal characters (numpy dtype ``S64``).

    Hashed are, in this order: the dtype and shape of one input as text, the bytes of the input
    (contiguous, little-endian, in its stored dtype), and the label as eight little-endian bytes.
    Without labels the last part is left out: then equal hashes mean equal inputs.
    """
    shape = tuple(inputs.shape[1:])
    header = f"{str(inputs.dtype).removeprefix('torch.')} {shape}\n".encode()
    base = hashlib.sha256(header)
    count = len(inputs)
    hashes = np.empty(count, dtype="S64")
    label_bytes = None
    if labels is not None:
        label_bytes = memoryview(labels.detach().cpu().numpy().astype("<i8").tobytes())
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        rows = _little_endian(inputs[start:stop])
        row_size = rows.nbytes // (stop - start)
        flat = memoryview(rows.tobytes())
        digests = []
        for offset in range(stop - start):
            digest = base.copy()
            digest.update(flat[offset * row_size : (offset + 1) * row_size])
            if label_bytes is not None:
                position = 8 * (start + offset)
                digest.update(label_bytes[position : position + 8])
            digests.append(digest.hexdigest())
        hashes[start:stop] = digests
    hashes.setflags(write=False)
    return hashes


def hash_of_hashes(hashes: np.ndarray) -> str:
    """One sha256 for a whole ordered set: of the examples' hashes, one after the other."""
    return hashlib.sha256(np.ascontiguousarray(hashes, dtype="S64").tobytes()).hexdigest()


def _little_endian(chunk: Tensor) -> np.ndarray:
    array = chunk.detach().to(device="cpu", memory_format=torch.contiguous_format).numpy()
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
