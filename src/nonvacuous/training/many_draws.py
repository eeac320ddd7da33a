"""Random numbers as a function of (seed, step, purpose, place), computed on any device.

Training many networks at once must draw for each of them what it would draw alone. A generator
hands out numbers in the order of the requests, which differs between the methods; a hash of the
place has no order. It needs no stored state either, so a resumed run draws what it would have
drawn, and a recorded CUDA graph draws anew at each replay because the step lies in a tensor.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nonvacuous.seeds import derived_seed

_BITS = 0xFFFFFFFF


def draw_seed(seed: int) -> int:
    """The 32-bit seed of all draws of a job."""
    return derived_seed(seed, "draws") & _BITS


def uniforms(seeds: Tensor, step: Tensor, purpose: int, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in [0, 1): of this shape for one seed, with a leading axis for several.

    `step` is a single whole number in a tensor, as are the seeds.
    """
    places = torch.arange(math.prod(shape), device=seeds.device)
    start = _mixed(_mixed(seeds + purpose * 0x9E3779B1) + step * 0x85EBCA77)
    mixed = _mixed(start.unsqueeze(-1) ^ (places * 0xC2B2AE3D))
    # 24 bits: as many as a float32 holds exactly.
    return ((mixed >> 8) * 2.0**-24).view(seeds.shape + shape)


def _mixed(values: Tensor) -> Tensor:
    """The finalizer of MurmurHash3 on the low 32 bits: each bit in changes half of those out."""
    values = values & _BITS
    values = ((values ^ (values >> 16)) * 0x85EBCA6B) & _BITS
    values = ((values ^ (values >> 13)) * 0xC2B2AE35) & _BITS
    return values ^ (values >> 16)
