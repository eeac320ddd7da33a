"""What seeds draw, by one rule for all: a network from a posterior, examples set aside, batches.

With a learned prior the KL is near zero and the price of a bound is its constant: ln(2 sqrt(n) /
failure) where a theorem holds for all temperatures at once, ln(1 / failure) at one that was fixed
before the bound examples were seen. A few examples of the prior part, kept from the prior's
training, say which one suits. The tilt of a progressive bound is such a temperature.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import best_temperature
from nonvacuous.data import Examples, Split
from nonvacuous.data.splits import find_units
from nonvacuous.distributions import DiagonalGaussian, copying
from nonvacuous.errors import BadInput
from nonvacuous.records import ComplexityRecord, Observation
from nonvacuous.rules.arithmetic import RELATIVE, tolerance
from nonvacuous.rules.digests import fixed_tensors
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
    drawn = posterior.to("cpu").sample(generator=generator)
    return {name: weights.to(posterior.device) for name, weights in drawn.items()}


def priced(
    posterior: DiagonalGaussian,
    prior: DiagonalGaussian,
    weights: Mapping[str, Tensor],
    complexity: ComplexityRecord,
) -> tuple[float, bool]:
    """ln dQ/dP of drawn weights, and whether that is what was recorded, up to rounding."""
    ratio, claimed = posterior.log_density_ratio(prior, weights), complexity.log_density_ratio
    # The ratio is a difference of large sums, so rounding counts per weight.
    slack = tolerance(ratio, 10 * posterior.weights) + RELATIVE * complexity.kl_nats
    return ratio, claimed is not None and abs(claimed - ratio) <= slack


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


# Checkpoints along a training: which examples test which one, which train it, and at which tilt.

#: What the errors on the examples set aside for the tilt are called in a certificate.
FIRST_OBSERVED = "the first checkpoint on examples of the first part, set aside for the tilt"
#: The part of the data behind the checkpoint whose plain test stands beside the promise.
TWIN_FRACTION = 0.8
#: Errors and trials where too few examples could be set aside: a guess of one in ten.
_GUESS = (9, 98)


def file_name(number: int) -> str:
    """The file of a checkpoint, counted from 1."""
    return f"checkpoint-{number}.safetensors"


def batches_of(examples: Examples, split: Split, count: int, seed: int) -> tuple[np.ndarray, ...]:
    """The bound examples in batches of nearly one size, in random order, copies together."""
    bound = split.bound
    unit, _ = find_units(len(bound), groups=None, content_hashes=examples.input_hashes()[bound])
    sizes = np.bincount(unit)
    order = np.random.default_rng(derived_seed(seed, "batches")).permutation(len(sizes))
    # A unit belongs where its middle lies; for units of one example the batches come out even.
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    number = np.empty(len(sizes), dtype=np.int64)
    number[order] = np.floor(middles * count / len(bound)).astype(np.int64)
    batches = tuple(bound[number[unit] == batch] for batch in range(count))
    if not all(map(len, batches)):
        raise BadInput(
            f"{len(bound)} examples after the first part are too few for {count} batches; take "
            "fewer batches, or a smaller first part"
        )
    return batches


def first_part(split: Split, seed: int, *, tilted: bool) -> tuple[np.ndarray, np.ndarray]:
    """(examples that train the first checkpoint, examples that choose the tilt)."""
    return set_aside(split.prior, seed) if tilted else (split.prior, split.prior[:0])


def trained_on(
    split: Split, batches: tuple[np.ndarray, ...], seed: int, *, tilted: bool
) -> tuple[np.ndarray, ...]:
    """For each checkpoint the examples that train it: all before its batch.

    Those that chose the tilt join with the first batch.
    """
    later = (
        np.sort(np.concatenate([split.prior, *batches[:number]]))
        for number in range(1, len(batches))
    )
    return (first_part(split, seed, tilted=tilted)[0], *later)


def tilt_of(aside: Observation | None, *, examples: int, failure: float) -> float:
    """The tilt that suits a predictor with so many errors among examples of the first part.

    >>> round(tilt_of(None, examples=1000, failure=0.05), 2)
    0.25
    """
    errors, trials = _GUESS if aside is None else (aside.errors, aside.trials)
    return temperature(
        errors=errors, trials=trials, examples=examples, failure=failure, kl_nats=0.0
    )


def twin_number(trained: tuple[np.ndarray, ...], total: int) -> int:
    """The checkpoint, counted from 1, that was trained on about four fifths of all examples."""
    shares = [abs(len(part) / total - TWIN_FRACTION) for part in trained]
    return 1 + shares.index(min(shares))


def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the network that holds these tensors."""
    network = copying.copied_network(model)
    own = fixed_tensors(network)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in tensors.items()}:
        raise BadInput(
            "the stored checkpoint belongs to another network: names or shapes of its tensors are "
            "not those of the network given"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
    return network
