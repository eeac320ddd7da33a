"""Which software made a certificate."""

from __future__ import annotations

import platform

import numpy
import scipy
import torch

import nonvacuous


def software(device: torch.device) -> dict[str, str]:
    """Versions of what takes part in the arithmetic, and the kind of processor."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "nonvacuous": nonvacuous.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "device": f"{device.type} ({kind})",
    }
