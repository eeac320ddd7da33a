"""Descents on the collapsed problem: sweeps and group scalars until hardly anything is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.rescaling.sweeps import Descent

_WINDOW = 5


def extrapolated(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """A point at which the next step should be small, or None while too little is known.

    ``pairs`` are those of a point and where one sweep took it, the latest last. Where a few
    channels hang together tightly (chains of depthwise layers, recurrence), sweeps still converge,
    but slowly and along few directions. Anderson's method combines the last points such that their
    steps cancel as well as they can: a guess, taken only if the KL is lower there.
    """
    if len(pairs) < 3:
        return None
    starts, ends = (torch.stack(each) for each in zip(*pairs, strict=True))
    steps = ends - starts
    turns = steps[1:] - steps[:-1]
    # A handful of unknowns: the small system is solved on the processor.
    gram = (turns @ turns.T).cpu().numpy()
    right = (turns @ steps[-1]).cpu().numpy()
    size = np.sqrt(np.diag(gram))
    if not (np.isfinite(gram).all() and (size > 0).all()):
        return None
    mixture = np.linalg.lstsq(gram / np.outer(size, size), right / size, rcond=1e-12)[0] / size
    mixed = torch.from_numpy(mixture).to(ends.device)
    return ends[-1] - mixed @ (ends[1:] - ends[:-1])


Progress = Callable[[str, int, int, str], None]
# A sweep that gains more than this part of what the one before gained is slow.
_SLOW = 0.1
_NOISE = 16 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class Limits:
    """When to stop, as in :func:`nonvacuous.rescaling.solver.rescale`, and whom to tell."""

    tolerance: float
    max_sweeps: int
    progress: Progress | None = None

    def __post_init__(self) -> None:
        checks.within("tolerance", self.tolerance, 0.0, 1.0, open=True)
        checks.count("max_sweeps", self.max_sweeps, minimum=1)


@dataclass(frozen=True, eq=False)
class Descended:
    """The end of one descent on the collapsed problem; ``nats`` steers and is not for quoting.

    ``prior_scales`` are those of each tensor where they were chosen too.
    """

    log_scales: Tensor
    nats: float
    sweeps: int
    converged: bool
    prior_scales: Mapping[str, float] = field(default_factory=dict)


def best_of_two(
    run: Callable[[Tensor, str], Descended], given: Descent, limits: Limits
) -> Descended:
    """What ``run`` ends at from the network as ``given``, or from a second start if that is better.

    Only where the problem is not convex. The second start is the best point for a prior with the
    same scales and zero means. It does not depend on how the network was scaled to begin with, so
    neither does what a descent from there finds.
    """
    first, terms = run(given.log_scales, "rescaling"), given.terms
    if terms.centered:
        return first
    centered = replace(terms, terms=tuple(replace(term, products=None) for term in terms.terms))
    descent = Descent(centered, given.log_scales, precisions=given.precisions)
    middle = descend(descent, limits, phase="rescaling: second start")
    second = run(middle.log_scales, "rescaling: second descent")
    best = min(first, second, key=lambda end: end.nats)
    return replace(best, sweeps=first.sweeps + middle.sweeps + second.sweeps)


def descend(descent: Descent, limits: Limits, *, phase: str = "rescaling") -> Descended:
    """Alternate group scalars and sweeps until hardly any decrease is left."""
    pairs: list[tuple[Tensor, Tensor]] = []
    totals = descent.totals()
    _finite(descent.nats(totals))
    totals = descent.coarse_step(totals)
    value, point = _finite(descent.nats(totals)), descent.log_scales
    decrease = math.inf
    ratios = (0.0, 0.0)
    converged = False
    sweeps = 0
    while not converged and sweeps < limits.max_sweeps:
        descent.sweep()
        sweeps += 1
        totals = descent.coarse_step(descent.totals())
        new = _finite(descent.nats(totals))
        start, point = point, descent.log_scales
        pairs = [*pairs[-_WINDOW:], (start, point)]
        slow = value - new > _SLOW * decrease
        if slow and (guess := extrapolated(pairs)) is not None:
            there = descent.at(guess)
            there_totals = there.totals()
            if (lower := there.nats(there_totals)) < new:
                descent, totals, point, new = there, there_totals, there.log_scales, lower
            else:
                pairs = pairs[-1:]  # The earlier ones misled.
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
    return Descended(descent.log_scales, value, sweeps, converged)


def _finite(nats: float) -> float:
    if not math.isfinite(nats):
        raise BadInput(
            "the weights of this network are scaled so unevenly that the squares of their ratios "
            "leave the range of float64; first move it to a better point of its orbit by hand "
            "(rescaled(module, groups, log_scales))"
        )
    return nats
