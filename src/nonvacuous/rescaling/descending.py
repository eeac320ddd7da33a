"""Descents on the collapsed problem: sweeps and group scalars until hardly anything is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.rescaling.extrapolation import Extrapolation
from nonvacuous.rescaling.sweeps import Descent, Totals
from nonvacuous.rescaling.terms import Terms

Progress = Callable[[str, int, int, str], None]
# A sweep that gains more than this part of what the one before gained is slow.
_SLOW = 0.1
_NOISE = 16 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class Limits:
    """When to stop, and whom to tell.

    A descent stops when the decrease still to come, judged by the last sweeps, is below
    ``tolerance`` times the KL, or after ``max_sweeps``.
    """

    tolerance: float
    max_sweeps: int
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise BadInput(f"tolerance must lie strictly between 0 and 1, got {self.tolerance!r}")
        if self.max_sweeps < 1:
            raise BadInput(f"max_sweeps must be at least 1, got {self.max_sweeps!r}")


@dataclass(frozen=True, eq=False)
class Descended:
    """The end of one descent on the collapsed problem; ``nats`` steers and is not for quoting."""

    log_scales: Tensor
    nats: float
    sweeps: int
    converged: bool


def best_descent(terms: Terms, limits: Limits) -> Descended:
    """One descent where the problem is convex, the better of two where it is not."""
    start = torch.zeros(terms.size, dtype=torch.float64, device=terms.device)
    first = descend(Descent(terms, start), limits)
    if terms.centered:
        return first
    middle = zero_mean_start(terms, limits)
    second = descend(Descent(terms, middle.log_scales), limits, phase="rescaling: second descent")
    best = min((first, second), key=lambda end: end.nats)
    return replace(best, sweeps=first.sweeps + middle.sweeps + second.sweeps)


def zero_mean_start(
    terms: Terms, limits: Limits, *, precisions: Mapping[str, float] | None = None
) -> Descended:
    """The best point for a prior with the same scales and zero means.

    It does not depend on how the network was scaled to begin with, so neither does what a descent
    from there finds.
    """
    centered = replace(terms, terms=tuple(replace(term, products=None) for term in terms.terms))
    start = torch.zeros(terms.size, dtype=torch.float64, device=terms.device)
    descent = Descent(centered, start, precisions=precisions)
    return descend(descent, limits, phase="rescaling: second start")


def descend(
    descent: Descent,
    limits: Limits,
    *,
    phase: str = "rescaling",
    watch: Callable[[float], None] | None = None,
) -> Descended:
    """Alternate group scalars and sweeps until hardly any decrease is left.

    ``watch`` is called with the KL after every move; tests use it to see that no move goes up.
    """
    tell = watch if watch is not None else lambda _: None
    extrapolation = Extrapolation()
    totals = descent.totals()
    tell(_finite(descent.nats(totals)))
    totals = descent.coarse_step(totals)
    value, point = _finite(descent.nats(totals)), descent.log_scales
    tell(value)
    decrease = math.inf
    ratios = (0.0, 0.0)
    converged = False
    sweeps = 0
    while not converged and sweeps < limits.max_sweeps:
        descent.sweep()
        sweeps += 1
        totals = descent.totals()
        if watch is not None:
            watch(descent.nats(totals))
        totals = descent.coarse_step(totals)
        new = _finite(descent.nats(totals))
        tell(new)
        start, point = point, descent.log_scales
        extrapolation.note(start, point)
        if value - new > _SLOW * decrease:
            descent, totals, new = _jump(descent, totals, new, extrapolation)
            point = descent.log_scales
        # Decreases are geometric in the end: the worse of the last two ratios is trusted, but
        # none below one tenth.
        latest = value - new
        ratios = (ratios[1], latest / decrease if decrease > 0 else 0.0)
        ratio = min(max(*ratios, 0.1), 0.999)
        left = latest * ratio / (1 - ratio)
        noise = _NOISE * (totals.squares.sum() + 2 * np.abs(totals.products).sum() + abs(new))
        converged = sweeps > 1 and left <= max(limits.tolerance * abs(new), float(noise))
        value, decrease = new, latest
        if limits.progress is not None:
            limits.progress(phase, sweeps, limits.max_sweeps, f"KL {new:.6g} nats")
    return Descended(
        log_scales=descent.log_scales,
        nats=value,
        sweeps=sweeps,
        converged=converged,
    )


def _jump(
    descent: Descent, totals: Totals, nats: float, extrapolation: Extrapolation
) -> tuple[Descent, Totals, float]:
    """Go to the guessed end of the sequence if the KL is lower there."""
    guess = extrapolation.guess()
    if guess is None:
        return descent, totals, nats
    there = descent.at(guess)
    found = there.totals()
    if there.nats(found) < nats:
        return there, found, there.nats(found)
    extrapolation.forget()
    return descent, totals, nats


def _finite(nats: float) -> float:
    if not math.isfinite(nats):
        raise BadInput(
            "the weights of this network are scaled so unevenly that the squares of their ratios "
            "leave the range of float64; first move it to a better point of its orbit by hand "
            "(rescaled(module, groups, log_scales))"
        )
    return nats
