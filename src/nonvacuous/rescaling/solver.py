"""The best point of an orbit: scales that make the KL small and leave the function as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import torch

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.checks import check_covered
from nonvacuous.rescaling.collapse import collapse_reading
from nonvacuous.rescaling.collapsed_nats import collapsed_nats
from nonvacuous.rescaling.descending import Limits, Progress, best_descent
from nonvacuous.rescaling.orbit import orbit_nats, total_nats
from nonvacuous.rescaling.reading import Reading
from nonvacuous.rescaling.sweeps import Descent
from nonvacuous.rescaling.terms import Terms

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import ScaleGroups


@dataclass(frozen=True, eq=False)
class Rescaling:
    """Where a descent along the orbit of a posterior ended.

    ``kl_before`` and ``kl_after`` are nats over all tensors in float64, rounded up so that they
    are never below the true value; ``kl_terms`` splits ``kl_after`` by tensor. ``kl_after`` is
    never above ``kl_before``, whether or not the descent ``converged``: every point of the orbit
    is valid, optimality only makes the number smaller.

    ``balance_residual``: at the best point the weights into a channel and the weights out of it
    pull equally hard. For each channel, the difference of the two pulls is divided by the sum of
    the sizes of all parts, and the largest quotient is given: 0 is perfect, 1 is one-sided.
    """

    log_scales: np.ndarray
    kl_before: float
    kl_after: float
    kl_terms: Mapping[str, float]
    balance_residual: float
    sweeps: int
    converged: bool


def rescale(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    groups: ScaleGroups,
    *,
    tolerance: float = 1e-10,
    max_sweeps: int = 1000,
    progress: Progress | None = None,
) -> Rescaling:
    """Scales of the hidden channels that make KL(Q || P) as small as the orbit of Q allows.

    The rescaled network computes the same function, so risks do not change and choosing the
    scales after seeing the data costs nothing. ``P`` stays where it is.

    For a prior with zero means the problem is convex, and the result is the minimum up to
    ``tolerance`` times the KL; it does not depend on how the network was scaled to begin with.
    For other prior means there may be several minima; the better of two descents is returned, one
    from the network as given and one from the best point for a zero-mean prior.

    The descent stops when the decrease still to come, judged by the last sweeps, is below
    ``tolerance`` times the KL, or after ``max_sweeps``.

    >>> from torch import nn
    >>> from nonvacuous.networks import capture, scale_groups
    >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    >>> groups = scale_groups(capture(network, torch.zeros(1, 4)))
    >>> posterior = DiagonalGaussian.around(network, scale=0.03)
    >>> result = rescale(posterior, DiagonalGaussian.centered(network, scale=1.0), groups)
    >>> result.converged, result.kl_after < result.kl_before
    (True, True)
    """
    limits = Limits(tolerance, max_sweeps, progress)
    check_covered(Q, P, groups)
    unmoved = np.zeros(groups.size)
    reading = Reading.of(Q, P)
    if groups.size == 0:
        before = orbit_nats(reading, groups, unmoved)
        return Rescaling(
            log_scales=unmoved,
            kl_before=total_nats(before),
            kl_after=total_nats(before),
            kl_terms=MappingProxyType(before),
            balance_residual=0.0,
            sweeps=0,
            converged=True,
        )
    terms = collapse_reading(reading, groups)
    merged = terms.merged()
    found = best_descent(merged, limits)
    log_scales = found.log_scales.cpu().numpy()
    before, after = _before_and_after(terms, reading, groups, log_scales)
    if not total_nats(after) < total_nats(before):
        # Already at the best point up to rounding: stay.
        log_scales, after = unmoved, before
    return Rescaling(
        log_scales=log_scales,
        kl_before=total_nats(before),
        kl_after=total_nats(after),
        kl_terms=MappingProxyType(after),
        balance_residual=Descent(merged, torch.from_numpy(log_scales)).balance_residual(),
        sweeps=found.sweeps,
        converged=found.converged,
    )


def _before_and_after(
    terms: Terms, reading: Reading, groups: ScaleGroups, log_scales: np.ndarray
) -> tuple[dict[str, float], dict[str, float]]:
    """The KL of every tensor at the start and at the end, both found in the same way.

    The collapsed sums tell, unless so much cancels in them that the tensors must be read again.
    """
    unmoved = np.zeros_like(log_scales)
    before = collapsed_nats(terms, groups, unmoved)
    after = collapsed_nats(terms, groups, log_scales) if before is not None else None
    if before is None or after is None:
        return orbit_nats(reading, groups, unmoved), orbit_nats(reading, groups, log_scales)
    return before, after
