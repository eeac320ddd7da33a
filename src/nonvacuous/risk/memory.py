"""Work in pieces that fit into memory, and in smaller ones when they do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nonvacuous.errors import NonvacuousError

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


def release(device: torch.device) -> None:
    """Hand cached memory back before trying again with less."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


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
