"""What seeds draw, by one rule for all: a network from a posterior, examples set aside.

With a learned prior the KL is near zero and the price of a bound is its constant: ln(2 sqrt(n) /
failure) where a theorem holds for all temperatures at once, ln(1 / failure) at one that was fixed
before the bound examples were seen. A few examples of the prior part, kept from the prior's
training, say which one suits.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nonvacuous.bounds import best_temperature
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


#: What the errors on the examples set aside are called in a certificate.
OBSERVED = "the prior's network on examples of the prior part, set aside for the temperature"
#: Nats that a posterior is expected to move from a learned prior.
EXPECTED_KL = 0.5
_SHARE, _FEWEST, _MOST = 0.05, 50, 2_000


def set_aside(prior: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(examples that train the prior, examples that choose the temperature), both sorted.

    A twentieth is set aside; nothing is where that would be a handful.
    """
    if len(prior) < 4 * _FEWEST:
        return prior, prior[:0]
    count = min(_MOST, max(_FEWEST, round(_SHARE * len(prior))))
    order = np.random.default_rng(derived_seed(seed, "temperature")).permutation(len(prior))
    return np.sort(prior[order[count:]]), np.sort(prior[order[:count]])


def temperature(
    *, errors: int, trials: int, examples: int, failure: float, kl_nats: float = EXPECTED_KL
) -> float:
    """The temperature that suits a network with so many errors among examples set aside.

    >>> round(temperature(errors=9, trials=1000, examples=30_000, failure=0.05), 2)
    0.15
    """
    return best_temperature(
        empirical_risk=(errors + 1) / (trials + 2),
        kl_nats=kl_nats,
        examples=examples,
        failure=failure,
    )
