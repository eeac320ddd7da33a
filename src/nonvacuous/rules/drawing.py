"""The one rule by which a single network is drawn from a posterior."""

from __future__ import annotations

import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.seeds import derived_seed


def sampling_seed(seed: int, posterior_digest: str, noise_digest: str | None = None) -> int:
    """The one-shot seed of everything that is sampled after the posterior was frozen.

    Rescaling a posterior leaves its predictions as they are, so a rescaled one keeps the draws of
    the posterior that was rescaled (``noise_digest``).
    """
    return derived_seed(seed, "sampling", noise_digest or posterior_digest)


def draw_network(posterior: DiagonalGaussian, seed: int) -> dict[str, Tensor]:
    """The weights that this seed draws; the same on every device, so that anyone can repeat it."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return posterior.to("cpu").sample(generator=generator)
