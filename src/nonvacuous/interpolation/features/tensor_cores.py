"""The fast products of recent GPUs, switched on where their rounding does no harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Within this block float32 products on a GPU may round their factors to eleven bits.

    Features stay a fixed function of the image, which is all that is asked of them. Where the
    factors have eleven bits to begin with (float16), products are exact.
    """
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    switch.allow_tf32 = True
    try:
        yield
    finally:
        switch.allow_tf32 = before
