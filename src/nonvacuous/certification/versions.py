"""Which software made a certificate."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

import numpy
import scipy
import torch

import nonvacuous


def software(device: torch.device) -> dict[str, str]:
    """Versions of what takes part in the arithmetic, and what decides how sums are rounded."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "nonvacuous": nonvacuous.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "device": f"{device.type} ({kind})",
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
    }


@functools.cache
def _processor() -> str:
    """Its name, where the system tells, and the instructions that torch uses of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(named, platform.processor() or platform.machine())
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
