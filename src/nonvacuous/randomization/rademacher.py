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
from nonvacuous.seeds import derived_seed


@dataclass(frozen=True)
class RademacherEstimate:
    """What training on random signs says about the complexity of a class.

    examples          training inputs
    errors            wrong signs of each trained network
    estimate          mean over sign vectors of 2 * accuracy - 1: the complexity is at least this,
                      up to the standard error
    standard_error    of that mean over the draw of the signs; not a number with one sign vector
    failure           failure probability of the bound
    gap               what rademacher_gap gives for the estimate
    fits_everything   whether every sign vector was fitted without an error
    """

    examples: int
    errors: tuple[int, ...]
    estimate: float
    standard_error: float
    failure: float
    gap: float
    fits_everything: bool

    @property
    def sign_vectors(self) -> int:
        """How many sign vectors were tried."""
        return len(self.errors)

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound on the gap is 1, which every network keeps to."""
        return self.gap >= 1.0

    @property
    def verdict(self) -> str:
        """The result in a sentence or two."""
        if self.fits_everything:
            return (
                f"All {self.sign_vectors} random sign vectors were fitted without an error: the "
                "complexity is 1 as far as can be told, no class has more, and the bound on the "
                "gap says nothing, whatever the labels."
            )
        worth = "says nothing" if self.is_vacuous else f"would be {self.gap:.3f}"
        error = "" if math.isnan(self.standard_error) else f" ± {self.standard_error:.2g}"
        return (
            f"The complexity is at least {self.estimate:.3f}{error}, as far as training went; the "
            f"best networks of the class may fit more. With this value the bound on the gap "
            f"{worth}: a diagnosis, not a certificate."
        )


def rademacher_estimate(
    errors: Sequence[int], *, examples: int, failure: float = 0.05
) -> RademacherEstimate:
    """The estimate from the training errors of networks, one trained on each sign vector.

    errors     wrong signs of each network on the training inputs, as counts
    examples   the number of training inputs
    """
    wrong = tuple(checks.errors_among(count, "examples", examples)[0] for count in errors)
    if not wrong:
        raise BadInput(
            "rademacher_estimate: no sign vector was given; train on at least one row of "
            "sign_vectors(...) and count the wrong signs"
        )
    fits = np.array([1.0 - 2.0 * count / examples for count in wrong])
    estimate = float(fits.mean())
    error = float(fits.std(ddof=1) / math.sqrt(len(fits))) if len(fits) > 1 else math.nan
    gap = rademacher_gap(rademacher=max(0.0, estimate), examples=examples, failure=failure)
    return RademacherEstimate(examples, wrong, estimate, error, failure, gap, not any(wrong))


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
