"""Several processes on the GPUs of one machine: each takes its share once, and keeps it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nonvacuous.errors import BadInput
from nonvacuous.locks import Claim, Lock


@dataclass(frozen=True)
class GpuShare:
    """folder: where processes agree on who has which share; each share is a list of devices."""

    folder: str
    shares: tuple[str, ...]


def shares_of(devices: Sequence[str], gpus_per_task: float) -> tuple[str, ...]:
    """The devices that each process sees, for as many processes as fit at once.

    >>> shares_of(["0", "1"], 0.5), shares_of(["0", "1", "2"], 1), shares_of(["0", "1"], 2)
    (('0', '0', '1', '1'), ('0', '1', '2'), ('0,1',))
    """
    if not devices:
        raise BadInput("--gpus-per-task was given, but this machine has no GPU that torch sees.")
    if gpus_per_task < 1.0:
        each = int(1.0 / gpus_per_task + 1e-9)
        return tuple(device for device in devices for _ in range(each))
    whole = int(gpus_per_task)
    if whole != gpus_per_task:
        raise BadInput(f"--gpus-per-task {gpus_per_task:g}: give a part of one GPU, or whole ones.")
    starts = range(0, len(devices) - whole + 1, whole)
    found = tuple(",".join(devices[start : start + whole]) for start in starts)
    if not found:
        raise BadInput(f"--gpus-per-task {whole}: this machine has {len(devices)} GPU(s).")
    return found


def visible_devices() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [device.strip() for device in told.split(",") if device.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


_taken: dict[tuple[int, str], Lock] = {}


def take_share(share: GpuShare, claim: Claim) -> None:
    """Show this process its share of the GPUs, before torch looks for them."""
    key = (os.getpid(), claim.session)
    if key in _taken:
        return
    for number, devices in enumerate(share.shares):
        lock = Lock.take(Path(share.folder) / str(number), claim)
        if lock is not None:
            # Held until the process ends: a dead owner's lock counts for nothing.
            _taken[key] = lock
            os.environ["CUDA_VISIBLE_DEVICES"] = devices
            return
    raise BadInput(
        f"all {len(share.shares)} shares of the GPUs are taken; start fewer jobs (--jobs)."
    )
