"""Which noise around a given network's weights serves best: how much, and in which gauge.

Every try is estimated on a few pairs of a draw and an example. These choices are free, since the
bound holds for all posteriors at once; but an estimate errs, and rescaling must never make a
certificate worse. Two posteriors are in question:

sure    the noise that would be certified without rescaling, moved: it predicts as before, draw by
        draw, at a smaller KL. It stays where it was if the gain is so small that a few predictions
        changed by rounding could undo it
rival   what seems best of all, be it noise of another scale or in another gauge

A rival that beats the certificate without rescaling by far more than estimates err is certified
alone. Otherwise both are measured in full, and the better number is issued, at the price of two
samples: it is never worse than the sure one, which is never worse than without rescaling. One drawn
network may cost more than the KL says: where the gain is not sure, the noise before and after the
move and the rival are all measured, and the result is worse by at most ln 3 nats.

All tries share their random numbers, and the draws at the end are those of the certificate without
rescaling: differences are measured much more finely than either risk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import kl_inverse_upper, seeger
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
from nonvacuous.rules.arithmetic import SAMPLING_SHARE

#: Pairs of a draw and an example spent on each try.
SEARCH_TRIALS = 10_000
#: Standard deviations that are far more than an estimate errs, or one draw costs above the mean.
_CLEARLY = 6.0
#: First every fourth scale is tried, then the neighbors of the best one.
_STEP = 4


@dataclass(frozen=True, eq=False)
class Tried:
    """One posterior, its losses in a few trials, and what the bound makes of both."""

    where: Where
    scale: float
    rescaled: Rescaled
    losses: np.ndarray
    value: float

    @property
    def risk(self) -> float:
        return float(self.losses.mean())


@dataclass(frozen=True, eq=False)
class Found:
    """What to measure, and the digest that all draws are derived from.

    Without rescaling the draws are derived from the posterior itself.
    """

    tried: tuple[tuple[Tried, ComplexityRecord | None], ...]
    noise_digest: str | None = None


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
        """The posteriors to measure, one or two."""
        plain = self._best("given", self._unmoved)
        if isinstance(self._gauge, str):
            return Found(((plain, None),))
        # Symmetries are worth more in some gauges than in others: they decide along.
        sure = plain, self._complexity(plain)
        off = self._promise(plain.risk, sure[1].kl_nats)
        moved = self._tried("given", plain.scale, self._gauge.rescaled)
        moved_cost = self._complexity(moved)
        worst = moved.risk + self._rounding, moved_cost.kl_nats + self._luck(moved)
        if self._promise(*worst, measured=2) < off:
            sure = moved, moved_cost
        limit = self._promise(sure[0].risk, sure[1].kl_nats)
        rival = None
        for where in self._gauge.wheres:
            tried = self._best(where, self._gauge.rescaled)
            cost = self._complexity(tried)
            value = self._promise(tried.risk, cost.kl_nats)
            if value < limit:
                limit, rival = value, (tried, cost)
        digest = plain.rescaled.noise.digest()
        if rival is None:
            return Found((sure,), digest)
        tried, cost = rival
        risk = tried.risk + _CLEARLY * self._error(tried, plain)
        if self._job.predictor == "stochastic" and self._promise(risk, cost.kl_nats) < off:
            return Found((rival,), digest)
        if sure[0] is moved:
            return Found((sure, rival), digest)
        # One draw of the weights decides for all examples: nothing was estimated that finely.
        worth = self._promise(tried.risk, cost.kl_nats, measured=3) < off
        if self._job.predictor == "drawn" and worth:
            return Found((sure, (moved, moved_cost), rival), digest)
        return Found((sure,), digest)

    def _best(self, where: Where, make: Callable[[Where, float], Rescaled]) -> Tried:
        """The best scale in one gauge: coarsely, then finely. The bound has one valley."""
        count, best = len(self._scales), None
        done: set[int] = set()
        positions = [*range(0, count, _STEP), count - 1]
        for step in (_STEP // 2, _STEP // 4, 0):
            for position in positions:
                if 0 <= position < count and position not in done:
                    done.add(position)
                    tried = self._tried(where, self._scales[position], make)
                    self._report(tried)
                    if best is None or tried.value < best.value:
                        best, center = tried, position
            positions = [center - step, center + step]
        assert best is not None
        return best

    def _tried(self, where: Where, scale: float, make: Callable[[Where, float], Rescaled]) -> Tried:
        rescaled = make(where, scale)
        losses = self._losses(where, scale, rescaled.noise)
        return Tried(
            where, scale, rescaled, losses, self._value(float(losses.mean()), rescaled.kl_nats)
        )

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

    def _promise(self, risk: float, kl_nats: float, *, measured: int = 1) -> float:
        """What would be promised at this risk if so many posteriors were measured."""
        if self._job.predictor == "drawn":
            return self._value(risk, kl_nats + math.log(measured))
        share = SAMPLING_SHARE * self._job.failure / self._job.attempts
        exponent = math.log(measured / share) / self._job.trials
        return self._value(kl_inverse_upper(min(1.0, risk), exponent), kl_nats)

    @property
    def _trials(self) -> int:
        return self._job.trials if self._job.predictor == "stochastic" else len(self._examples)

    @property
    def _rounding(self) -> float:
        """How much of the risk a few predictions change when the same noise is moved."""
        return (2 + self._trials / 5_000) / self._trials

    def _error(self, tried: Tried, plain: Tried) -> float:
        """By how much the difference of two risks errs: here, and at the end."""
        apart = (tried.losses - plain.losses[: len(tried.losses)]).var()
        return math.sqrt((apart + 1e-4) * (1.0 / SEARCH_TRIALS + 1.0 / self._trials))

    def _luck(self, moved: Tried) -> float:
        """By how many nats the price of one drawn network may gain less from a move than the KL.

        The difference of both prices is a square of Gaussian weights, and the move keeps the draw.
        """
        if self._job.predictor != "drawn":
            return 0.0
        variance = 0.0
        before, after = self._unmoved("given", moved.scale), moved.rescaled
        for name, mean in before.posterior.means.items():
            scale, end = before.posterior.scales[name].double(), after.posterior.scales[name]
            factor = end.double() / scale
            own, other = (p.prior.scales[name].double() ** -2 for p in (before, after))
            center, middle = before.prior.means[name].double(), mean.double()
            square, slope = (factor**2 * other - own) / 2, center * (own - factor * other)
            linear = (2 * square * middle + slope) * scale
            variance += float((linear**2 + 2 * square**2 * scale**4).sum())
        return _CLEARLY * math.sqrt(variance)

    def _complexity(self, tried: Tried) -> ComplexityRecord:
        assert isinstance(self._gauge, Gauge)
        rescaled = tried.rescaled
        return complexity_of(self._job, rescaled.posterior, rescaled.prior, self._gauge.graph)

    def _report(self, tried: Tried) -> None:
        self._tries += 1
        if self._job.progress is not None:
            rounds = 1 if isinstance(self._gauge, str) else 1 + len(self._gauge.wheres)
            most = rounds * min(len(self._scales), len(self._scales) // _STEP + 6)
            message = f"noise {tried.scale:.4g} gives {tried.value:.3f}"
            self._job.progress("noise", min(self._tries, most), most, message)
