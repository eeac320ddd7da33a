"""How much memory can still be had: of the machine, and within the limit of a container."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that this process may still take; half of the machine's where nobody tells."""
    known = [value for value in (_of_the_machine(), _of_the_container()) if value is not None]
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(known, default=whole // 2)


def _of_the_machine() -> int | None:
    with suppress(OSError, ValueError):
        for line in _MACHINE.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_the_container() -> int | None:
    with suppress(OSError, ValueError):
        limit = int((_CONTAINER / "memory.max").read_text(encoding="ascii"))  # or "max": no limit
        used = int((_CONTAINER / "memory.current").read_text(encoding="ascii"))
        # Files that the system keeps in memory as a convenience are given up when needed.
        for line in (_CONTAINER / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith(("inactive_file ", "active_file ")):
                used -= int(line.split()[1])
        return max(0, limit - used)
    return None
