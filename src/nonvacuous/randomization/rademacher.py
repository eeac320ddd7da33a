"""Rademacher complexity by training: how well does a class of networks fit random signs?

Each sign vector asks for a network that agrees with it on as many training inputs as possible. What
training reaches is at most what the best network of the class reaches, so the mean is a lower bound
on the complexity, and a bound on the gap computed from it is a diagnosis and not a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.bounds.capacity import rademacher_gap
from nonvacuous.errors import BadInput
from nonvacuous.randomization.intervals import Interval, over_networks
from nonvacuous.seeds import derived_seed


@dataclass(frozen=True)
class Rademacher:
    """What training on random signs says about the complexity of a class.

    complexity     mean over sign vectors of 2 * accuracy - 1: 1 where all fit, 0 for guessing
    sign_vectors   how many were tried
    examples       training inputs
    gap_bound      the generalization gap that classical theory then allows; 1 says nothing
    verdict        the same in words
    """

    complexity: Interval
    sign_vectors: int
    examples: int
    gap_bound: float
    verdict: str

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound on the gap is 1, which every network keeps to."""
        return self.gap_bound >= 1.0


def rademacher_estimate(
    errors: Sequence[int], *, examples: int, confidence: float = 0.95
) -> Rademacher:
    """The estimate from the training errors of networks, one trained on each sign vector.

    errors     wrong signs of each network on the training inputs, as counts
    examples   the number of training inputs
    """
    wrong = [checks.errors_among(count, examples)[0] for count in errors]
    if not wrong:
        raise BadInput(
            "rademacher_estimate: no sign vector was given; train on at least one row of "
            "sign_vectors(...) and count the wrong signs"
        )
    fits = np.array([1.0 - 2.0 * count / examples for count in wrong])
    estimate, failure = float(fits.mean()), checks.failure_of(confidence)
    gap = rademacher_gap(rademacher=max(0.0, estimate), examples=examples, failure=failure)
    if any(wrong):
        worth = "says nothing" if gap >= 1.0 else f"would be {gap:.3f}"
        several = len(fits) > 1
        error = f" ± {fits.std(ddof=1) / math.sqrt(len(fits)):.2g}" if several else ""
        verdict = (
            f"The complexity is at least {estimate:.3f}{error}, as far as training went; the "
            f"best networks of the class may fit more. With this value the bound on the gap "
            f"{worth}: a diagnosis, not a certificate."
        )
    else:
        verdict = (
            f"All {len(wrong)} random sign vectors were fitted without an error: the "
            "complexity is 1 as far as can be told, no class has more, and the bound on the "
            "gap says nothing, whatever the labels."
        )
    complexity = over_networks(fits.tolist(), confidence=confidence)
    return Rademacher(complexity, len(wrong), examples, gap, verdict)


def sign_vectors(count: int, examples: int, *, seed: int) -> Tensor:
    """Random signs as labels 0 and 1, of shape (count, examples) and type int64.

    Row r depends on the seed and r alone, so that more rows can be added to those already used.
    """
    rows = checks.count("count", count, minimum=1)
    length = checks.count("examples", examples, minimum=1)
    key = derived_seed(seed, "sign vectors")
    generators = (
        np.random.Generator(np.random.Philox(key=np.array([key, row], dtype=np.uint64)))
        for row in range(rows)
    )
    return torch.from_numpy(np.stack([g.integers(0, 2, length) for g in generators]))
