"""Which noise around a given network's weights serves best: how much, and in which gauge.

Every try is estimated on a few pairs of a draw and an example. These choices are free, since the
bound holds for all posteriors at once; but an estimate errs, and rescaling must never make a
certificate worse. So everything is compared with the noise that would be certified without it:

* The same noise, rescaled, predicts as before, draw by draw, at a smaller KL. It is taken unless
  the gain is so small that a few predictions changed by rounding could undo it.
* Noise of another scale or in another gauge is taken where it seems better still, and better than
  what would be certified without rescaling by more than the estimates may err.

All tries share their random numbers, and whatever is chosen, the draws at the end are those of the
certificate without rescaling: differences are measured much more finely than either risk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import seeger
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.gauge import Gauge, Rescaled, Where
from nonvacuous.certification.job import Job
from nonvacuous.certification.measurement import complexity_of
from nonvacuous.data import Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import Prior
from nonvacuous.records import ComplexityRecord
from nonvacuous.risk import estimate_risk

#: Pairs of a draw and an example spent on each try.
SEARCH_TRIALS = 10_000
#: Standard deviations by which another posterior must be better than plain noise.
_CLEARLY = 4.0
#: First every fourth scale is tried, then the neighbors of the best one.
_STEP = 4


@dataclass(frozen=True, eq=False)
class Tried:
    """One posterior, its losses in a few trials, and what the bound makes of both."""

    where: Where
    scale: float
    found: Rescaled
    losses: np.ndarray
    value: float

    @property
    def risk(self) -> float:
        return float(self.losses.mean())


@dataclass(frozen=True, eq=False)
class Found:
    """What to certify, the digest that its draws are derived from, and what it costs if known.

    Without rescaling the draws are derived from the posterior itself.
    """

    best: Tried
    noise_digest: str | None = None
    complexity: ComplexityRecord | None = None


class NoiseSearch:
    """Tries noise on the bound examples. ``gauge`` is the reason where nothing can be rescaled."""

    def __init__(
        self,
        job: Job,
        module: nn.Module,
        split: Split,
        prior: Prior,
        scales: ScaleGrid,
        gauge: Gauge | str,
        seed: int,
    ) -> None:
        self._job, self._module, self._prior = job, module, prior
        self._scales, self._gauge, self._seed = scales.scales, gauge, seed
        self._examples = job.examples.subset(split.bound).to(job.device)
        self._known: dict[tuple[Where, float], np.ndarray] = {}
        self._tries = 0

    def run(self) -> Found:
        """The posterior to certify."""
        plain = self._best("given", self._unmoved)
        if isinstance(self._gauge, str):
            return Found(plain)
        # Symmetries are worth more in some gauges than in others: they decide along.
        best, costs = plain, self._complexity(plain)
        limit = self._value(plain.risk, costs.kl_nats)
        moved = self._tried("given", plain.scale, self._gauge.rescaled)
        others = [self._best(where, self._gauge.rescaled) for where in self._gauge.wheres]
        for tried in (moved, *sorted(others, key=lambda other: other.value)):
            complexity = self._complexity(tried)
            safe = self._value(tried.risk + self._error(tried, plain), complexity.kl_nats)
            better = self._value(tried.risk, complexity.kl_nats)
            if safe < limit and better < self._value(best.risk, costs.kl_nats):
                best, costs = tried, complexity
        return Found(best, plain.found.noise.digest(), costs)

    def _best(self, where: Where, make: Callable[[Where, float], Rescaled]) -> Tried:
        """The best scale in one gauge: coarsely, then finely. The bound has one valley."""
        count, best = len(self._scales), None
        done: set[int] = set()
        places = [*range(0, count, _STEP), count - 1]
        for step in (_STEP // 2, _STEP // 4, 0):
            for place in places:
                if 0 <= place < count and place not in done:
                    done.add(place)
                    tried = self._tried(where, self._scales[place], make)
                    self._report(tried)
                    if best is None or tried.value < best.value:
                        best, center = tried, place
            places = [center - step, center + step]
        assert best is not None
        return best

    def _tried(self, where: Where, scale: float, make: Callable[[Where, float], Rescaled]) -> Tried:
        found = make(where, scale)
        losses = self._losses(where, scale, found.noise)
        return Tried(where, scale, found, losses, self._value(float(losses.mean()), found.kl_nats))

    def _unmoved(self, where: Where, scale: float) -> Rescaled:
        posterior = DiagonalGaussian.around(self._module, scale=scale)
        prior = self._prior.choose(self._module, posterior).distribution
        size = 0 if isinstance(self._gauge, str) else self._gauge.groups.size
        return Rescaled(posterior, posterior, prior, np.zeros(size))

    def _losses(self, where: Where, scale: float, noise: DiagonalGaussian) -> np.ndarray:
        """Estimated before anything is moved: with and without rescaling they are the same."""
        if (where, scale) not in self._known:
            loss, seen = self._job.loss, []

            def watched(outputs: Tensor, labels: Tensor) -> Tensor:
                values = loss(outputs, labels)
                seen.append(
                    (values.double().cpu().numpy() - loss.lower) / (loss.upper - loss.lower)
                )
                return values

            estimate_risk(
                with_weights(self._module, noise.means),
                noise,
                self._examples,
                loss=replace(loss, function=watched),
                trials=SEARCH_TRIALS,
                generator=torch.Generator(device=self._job.device).manual_seed(self._seed),
            )
            self._known[where, scale] = np.concatenate(seen)
        return self._known[where, scale]

    def _value(self, risk: float, kl_nats: float) -> float:
        return seeger(
            empirical_risk=min(1.0, risk),
            kl_nats=kl_nats,
            examples=len(self._examples),
            failure=self._job.failure,
        )

    def _error(self, tried: Tried, plain: Tried) -> float:
        """How much worse the risk may come out at the end, compared with that of plain noise."""
        trials = self._job.trials if self._job.predictor == "stochastic" else len(self._examples)
        if tried.losses is plain.losses:  # the same predictions up to rounding
            return (2 + trials / 5_000) / trials
        apart = (tried.losses - plain.losses[: len(tried.losses)]).var()
        return _CLEARLY * math.sqrt((apart + 1e-4) * (1.0 / SEARCH_TRIALS + 1.0 / trials))

    def _complexity(self, tried: Tried) -> ComplexityRecord:
        assert isinstance(self._gauge, Gauge)
        found = tried.found
        return complexity_of(self._job, found.posterior, found.prior, self._gauge.graph)

    def _report(self, tried: Tried) -> None:
        self._tries += 1
        if self._job.progress is not None:
            rounds = 1 if isinstance(self._gauge, str) else 1 + len(self._gauge.wheres)
            most = rounds * min(len(self._scales), len(self._scales) // _STEP + 6)
            message = f"noise {tried.scale:.4g} gives {tried.value:.3f}"
            self._job.progress("noise", min(self._tries, most), most, message)
