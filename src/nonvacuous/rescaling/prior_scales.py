"""Prior scales and channel scales together: two ways to shrink one KL.

A prior that is twenty times too wide costs many nats, and rescaling the network can only hide
that. Here the prior scales are chosen too, from a grid fixed before the data, and the charge for
the choice is handed back. For a zero-mean prior the relaxed problem (any positive scales) is
jointly convex in the logarithms of all scales.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian, ScaleGrid
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.descending import Descended, Limits, best_of_two, descend
from nonvacuous.rescaling.reading import Reading, check_covered
from nonvacuous.rescaling.solver import Rescaling, kl_along_orbit, total_nats
from nonvacuous.rescaling.sweeps import Descent, Totals, minimize_exponentials

_ROUNDS = 20
# Neighboring amounts of noise differ in their KL by far more than this part of it.
_ROUGH = 1e-3


@dataclass(frozen=True, eq=False)
class PriorScaling(Rescaling):
    """Channel scales and prior scales chosen together.

    What enters a bound is ``kl_after + charge_nats`` (``complexity_nats``). ``scales`` gives the
    chosen prior scale of each tensor and ``prior`` the distribution itself; ``kl_after`` and
    ``kl_terms`` are recomputed from the full tensors and rounded up. ``kl_before`` is what the best
    prior scales alone achieve, at the same charge, without moving the network.
    """

    scales: Mapping[str, float]
    prior: DiagonalGaussian
    charge_nats: float

    @property
    def complexity_nats(self) -> float:
        """KL plus charge, rounded up."""
        return math.nextafter(self.kl_after + self.charge_nats, math.inf)


def rescale_with_prior_scales(
    Q: DiagonalGaussian,
    prior_means: Mapping[str, Tensor] | None,
    groups: ScaleGroups,
    *,
    grid: ScaleGrid,
    per_tensor: bool = False,
    start: np.ndarray | None = None,
    tolerance: float = 1e-10,
) -> PriorScaling:
    """Choose prior scales from ``grid`` and channel scales such that KL plus charge is small.

    ``prior_means`` of None stand for zero. With ``per_tensor`` every tensor has its own prior
    scale, at one charge each; otherwise all share one. The channel scales cost nothing; the prior
    scales cost ``charge_nats``, which must be added to the KL.

    ``start``, log-scales known to be good, saves most of the way: the search goes on from there
    alone. For a zero-mean prior it ends where it would have ended anyway.
    """
    search = _Search(Q, prior_means, groups, grid, per_tensor, Limits(tolerance, 1000))
    unmoved = search.choose(search.terms.unmoved)
    end = search.best(start)
    scales: Mapping[str, float] = end.prior_scales
    log_scales = end.log_scales.cpu().numpy()
    old_prior, prior = (DiagonalGaussian.from_means(search.means, s) for s in (unmoved, scales))
    before = kl_along_orbit(Q, old_prior, groups, np.zeros(groups.size))
    after = kl_along_orbit(Q, prior, groups, log_scales)
    if total_nats(after) >= total_nats(before):
        scales, prior, after, log_scales = unmoved, old_prior, before, np.zeros(groups.size)
    point = search.descent(torch.from_numpy(log_scales), scales)
    return PriorScaling(
        log_scales=log_scales,
        scales=MappingProxyType(scales),
        prior=prior,
        kl_before=total_nats(before),
        kl_after=total_nats(after),
        charge_nats=grid.charge_nats(choices=len(search.sharing)),
        kl_terms=MappingProxyType(after),
        balance_residual=point.balance_residual(),
        sweeps=end.sweeps,
        converged=end.converged,
    )


def rough_rescaling(
    Q: DiagonalGaussian,
    prior_means: Mapping[str, Tensor] | None,
    groups: ScaleGroups,
    *,
    grid: ScaleGrid,
    per_tensor: bool = False,
    start: np.ndarray | None = None,
) -> tuple[float, np.ndarray]:
    """About the KL that :func:`rescale_with_prior_scales` ends at, and log-scales near its end.

    Good for comparing posteriors, at a fraction of the cost; not rounded and never to be quoted.
    """
    search = _Search(Q, prior_means, groups, grid, per_tensor, Limits(_ROUGH, 100))
    if start is None or len(grid) == 1 or groups.size == 0:
        end = search.best(start)
        return end.nats, end.log_scales.cpu().numpy()
    near, _ = search.relax(torch.from_numpy(start).to(search.terms.device))
    return search.nats(near, search.choose(near)), near.cpu().numpy()


class _Search:
    """The joint problem: terms collapsed against a prior of scale one, and who shares a scale."""

    def __init__(
        self,
        Q: DiagonalGaussian,
        means: Mapping[str, Tensor] | None,
        groups: ScaleGroups,
        grid: ScaleGrid,
        per_tensor: bool,
        limits: Limits,
    ) -> None:
        zeros = {name: torch.zeros_like(mean) for name, mean in Q.means.items()}
        unit = DiagonalGaussian.from_means(means or zeros, 1.0)
        check_covered(Q, unit, groups)
        self.terms = collapse(Reading.of(Q, unit), groups)
        self.sharing = tuple((name,) for name in Q.names) if per_tensor else (Q.names,)
        self.grid, self.means, self.limits = grid, unit.means, limits

    def best(self, start: np.ndarray | None) -> Descended:
        """From one start if it is known, else from where the problem asks for."""
        unmoved = self.terms.unmoved
        if self.terms.size == 0:
            return Descended(unmoved, 0.0, 0, converged=True, prior_scales=self.choose(unmoved))
        if start is not None:
            return self.run(torch.from_numpy(start).to(self.terms.device))
        return best_of_two(self.run, self.descent(unmoved, self.choose(unmoved)), self.limits)

    def run(self, start: Tensor, phase: str = "rescaling") -> Descended:
        """Relax, round to the grid, descend again, until the choice no longer changes."""
        log_scales, sweeps = self.relax(start)
        scales = self.choose(log_scales)
        for _ in range(_ROUNDS):
            end = descend(self.descent(log_scales, scales), self.limits, phase=phase)
            sweeps += end.sweeps
            log_scales = end.log_scales
            again = self.choose(log_scales)
            if again == scales:
                break
            scales = again
        else:
            # Each round lowers the KL, so this is a valid pair; it is only not final.
            end = replace(end, nats=self.nats(log_scales, scales), converged=False)
        return replace(end, sweeps=sweeps, prior_scales=scales)

    def choose(self, log_scales: Tensor) -> dict[str, float]:
        """The best scales of the grid for a point of the orbit."""
        energies = self._energies(log_scales)
        return self.grid.cheapest_for(self.sharing, energies, self.terms.weights)

    def descent(self, log_scales: Tensor, scales: Mapping[str, float]) -> Descent:
        """A descent with the prior scales fixed, as the prior's dtype stores them."""
        dtype = next(iter(self.means.values())).dtype
        stored = {name: float(torch.tensor(scale, dtype=dtype)) for name, scale in scales.items()}
        precisions = {name: scale**-2 for name, scale in stored.items()}
        return Descent(self.terms, log_scales, precisions=precisions)

    def nats(self, log_scales: Tensor, scales: Mapping[str, float]) -> float:
        descent = self.descent(log_scales, scales)
        return descent.nats(descent.totals())

    def _energies(self, log_scales: Tensor) -> dict[str, float]:
        """Squared distance of each tensor from the prior means, variances included."""
        totals = Descent(self.terms, log_scales).totals()
        parts: dict[str, list[float]] = {n: [v] for n, v in self.terms.remainders.items()}
        sums = totals.squares - 2 * totals.products
        for term, value in zip(self.terms.terms, sums, strict=True):
            parts[term.tensor].append(float(value))
        return {name: math.fsum(values) for name, values in parts.items()}

    def relax(self, start: Tensor) -> tuple[Tensor, int]:
        """Descend over channel scales and prior scales together, any positive scales allowed."""
        energies = self._energies(start)
        precisions: dict[str, float] = {}
        for names in self.sharing:
            energy = math.fsum(energies[name] for name in names)
            count = sum(self.terms.weights[name] for name in names)
            precisions |= dict.fromkeys(names, count / energy if count else 1.0)
        descent = Descent(self.terms, start, precisions=precisions)
        totals = descent.totals()
        value = descent.nats(totals)
        sweeps = 0
        # Rounding to the grid undoes fine digits, so a rough end is enough.
        tolerance = max(self.limits.tolerance, 1e-6)
        while sweeps < self.limits.max_sweeps:
            precisions = self._joint_step(descent, totals, precisions)
            descent.sweep()
            sweeps += 1
            totals = descent.totals()
            new = descent.nats(totals)
            if value - new <= tolerance * abs(new):
                break
            value = new
        return descent.log_scales, sweeps

    def _joint_step(
        self, descent: Descent, totals: Totals, precisions: dict[str, float]
    ) -> dict[str, float]:
        """One scalar for each group of channels and one for each prior scale, all at once."""
        names, powers = list(self.terms.weights), self.terms.exponents
        groups = powers.shape[1]
        in_tensor = -2.0 * np.array([[n in shared for shared in self.sharing] for n in names])
        in_term = in_tensor[[names.index(term.tensor) for term in self.terms.terms]]
        remainders = [precisions[name] * self.terms.remainders[name] / 2 for name in names]
        no_groups = np.zeros((len(names), groups))
        shift = minimize_exponentials(
            np.concatenate([totals.squares / 2, -totals.products, remainders]),
            np.block([[2 * powers, in_term], [powers, in_term], [no_groups, in_tensor]]),
            np.append(self.terms.group_counts, in_tensor.T @ [*self.terms.weights.values()] / 2),
        )
        changes = dict(zip(names, in_tensor @ shift[groups:], strict=True))
        changed = {name: precisions[name] * math.exp(change) for name, change in changes.items()}
        descent.shift_groups(shift[:groups])
        descent.set_precisions(changed)
        return changed
