"""What this machine can give: memory, disk, and multiplications per second."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import torch

_GIGA = 1e9


def available_memory(device: torch.device) -> int:
    """Bytes that can still be had on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + held)
    found = [_meminfo(), _control_group()]
    known = [value for value in found if value is not None]
    if known:
        return min(known)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def available_disk(folder: Path) -> int:
    """Bytes that can still be written to the disk of this folder, which need not exist yet."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def multiplication_rate(dtype: torch.dtype, device: torch.device, *, size: int = 1024) -> float:
    """Floating-point operations per second of a matrix product here and now, measured."""
    if device.type == "cuda":
        matrix = torch.ones(4 * size, 4 * size, dtype=dtype, device=device)
        matrix @ matrix
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        matrix @ matrix
        torch.cuda.synchronize(device)
        return 2 * (4 * size) ** 3 / max(time.perf_counter() - start, 1e-9)
    kind = np.float32 if dtype is torch.float32 else np.float64
    left = np.ones((size, size), dtype=kind)
    left @ left
    start = time.perf_counter()
    left @ left
    return 2 * size**3 / max(time.perf_counter() - start, 1e-9)


def describe_bytes(count: float) -> str:
    """A size as a person would say it.

    >>> describe_bytes(7_440_000_000), describe_bytes(52_000_000), describe_bytes(900)
    ('7.4 GB', '52 MB', '0.9 kB')
    """
    if count >= _GIGA:
        return f"{count / _GIGA:,.1f} GB"
    if count >= 1e6:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e3:.1f} kB"


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _control_group() -> int | None:
    """What a container may still take."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        # Files that the system keeps in memory as a convenience are given up when needed.
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith(("inactive_file ", "active_file ")):
                used -= int(line.split()[1])
        return max(0, int(limit) - used)
    except (OSError, ValueError):
        return None
