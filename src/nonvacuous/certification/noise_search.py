"""Which noise around a given network's weights serves best: how much, and in which gauge.

Scales and gauges are compared on few pairs of a draw and an example and at about the KL that
rescaling will leave; the best is rescaled to the end, and what may be certified is estimated on
more pairs. These choices are free, since the bound holds for all posteriors at once; but an
estimate errs, and rescaling must never make a certificate worse. Two posteriors are in question:

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
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import kl_inverse_upper, seeger
from nonvacuous.certification.gauge import Gauge, Rescaled, Where
from nonvacuous.certification.job import Job
from nonvacuous.certification.measurement import complexity_of
from nonvacuous.distributions import DiagonalGaussian, grids, priors
from nonvacuous.records import ComplexityRecord
from nonvacuous.risk.pairs import RiskPilot
from nonvacuous.rules.arithmetic import SAMPLING_SHARE

#: Pairs of a draw and an example spent on what may be certified, and on each scale tried.
SEARCH_TRIALS = 10_000
_FEW_TRIALS = 1_500
#: Standard deviations that are far more than an estimate errs, or one draw costs above the mean.
_CLEARLY = 6.0
#: How far a promise may be off where the KL is summed roughly.
_ROUGHLY = 1.01
#: First every fourth scale is tried, then the neighbors of the best one.
_STEP = 4


#: What the bound makes of a scale, and where that is no news, something larger that it grows with.
Look = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Tried:
    """One posterior, and its losses in some trials."""

    where: Where
    scale: float
    rescaled: Rescaled
    losses: np.ndarray

    @property
    def risk(self) -> float:
        return float(self.losses.mean())


#: What to measure, and what it costs where that was needed on the way.
Chosen = tuple[tuple[Tried, ComplexityRecord | None], ...]


class NoiseSearch:
    """Tries noise on the bound examples. ``gauge`` is None where nothing can be rescaled."""

    def __init__(
        self,
        job: Job,
        module: nn.Module,
        prior: priors.Prior,
        scales: grids.ScaleGrid,
        gauge: Gauge | None,
        seed: int,
    ) -> None:
        self._job, self._module, self._prior = job, module, prior
        self._scales, self._gauge, self._seed = scales.scales, gauge, seed
        self._examples = job.bound_part.to(job.device)
        self._pilot = RiskPilot(module, self._examples)
        self._known: dict[tuple[Where, float, int], np.ndarray] = {}
        self._tries = 0

    def run(self) -> tuple[Chosen, str | None]:
        """The posteriors to measure, and the digest that all draws are derived from.

        Without rescaling the draws are derived from the posterior itself.
        """
        start = self._best_of_all()
        plain = self._tried("given", start, self._unmoved(self._scales[start]))
        if self._gauge is None:
            return ((plain, None),), None
        moved = self._tried("given", start, self._gauge.rescaled("given", plain.scale))
        solved = {("given", start): moved.rescaled}
        rivals: list[tuple[float, Where, int]] = []
        for where in self._gauge.wheres:
            center, nats = self._downhill(where, start)
            scale = self._scales[center]
            if where == "balanced":  # the cheapest gauge is where this one ends
                solved[where, center] = self._gauge.rescaled(where, scale)
            noise = self._gauge.noise(where, scale)
            risk = float(self._losses(where, scale, noise, _FEW_TRIALS).mean())
            # Where rough sums cannot tell them apart, the gauge that all forms of a network share.
            promise = self._promise(risk, nats) * (1.0 if where == "balanced" else _ROUGHLY)
            rivals.append((promise, where, center))
        # Symmetries and exact sums take long, and change in one gauge what they do in another.
        _, where, center = min(rivals, key=lambda each: each[0])
        rescaled = solved.get((where, center)) or self._gauge.rescaled(where, self._scales[center])
        rival = self._tried(where, center, rescaled)
        return self._worth_measuring(plain, moved, rival), plain.rescaled.noise.digest()

    def _worth_measuring(
        self, plain: Tried, moved: Tried, tried: Tried
    ) -> tuple[tuple[Tried, ComplexityRecord], ...]:
        """The noise as given, or moved, or the rival, or what has to be measured to tell them."""
        cost = self._complexity(tried)
        rival = tried, cost
        promise = self._promise(tried.risk, cost.kl_nats)
        # By how much the difference of two risks errs: here, and at the end.
        apart = (tried.losses - plain.losses[: len(tried.losses)]).var() + 1e-4
        error = math.sqrt(apart * (1.0 / SEARCH_TRIALS + 1.0 / self._trials))
        risk = tried.risk + _CLEARLY * error
        surely = self._promise(risk, cost.kl_nats)
        alone = self._job.predictor == "stochastic"
        # To compare all units takes long: mostly the rival wins whatever that would save.
        plain_cost, moved_cost = (self._complexity(t, overlaps=False) for t in (plain, moved))
        off = self._promise(plain.risk, plain_cost.kl_nats)
        limit = min(off, self._promise(moved.risk, moved_cost.kl_nats))
        if alone and promise < limit and surely < off:
            return (rival,)
        plain_cost = self._compared(plain, plain_cost)
        moved_cost = self._compared(moved, moved_cost)
        off = self._promise(plain.risk, plain_cost.kl_nats)
        sure = plain, plain_cost
        # A few predictions change when the same noise is moved.
        rounding = (2 + self._trials / 5_000) / self._trials
        worst = moved.risk + rounding, moved_cost.kl_nats + self._luck(moved)
        if self._promise(*worst, measured=2) < off:
            sure = moved, moved_cost
        if not promise < self._promise(sure[0].risk, sure[1].kl_nats):
            return (sure,)
        if alone and surely < off:
            return (rival,)
        if sure[0] is moved:
            return sure, rival
        # One draw of the weights decides for all examples: nothing was estimated that finely.
        worth = self._promise(tried.risk, cost.kl_nats, measured=3) < off
        if self._job.predictor == "drawn" and worth:
            return sure, (moved, moved_cost), rival
        return (sure,)

    def _best_of_all(self) -> int:
        """The best scale without rescaling: coarsely over all, then finely."""
        count, center = len(self._scales), 0
        values: dict[int, Look] = {}
        # From the largest on: much smaller ones cost so much that they need not be tried.
        positions = [count - 1, *reversed(range(0, count, _STEP))]
        for step in (_STEP // 2, _STEP // 4, 0):
            for position in positions:
                if 0 <= position < count and position not in values:
                    unmoved = self._unmoved(self._scales[position])
                    kl_nats, limit = unmoved.kl_nats, min(values.values(), default=None)
                    values[position] = self._look("given", position, unmoved.noise, kl_nats, limit)
            center = min(values, key=lambda p: (values[p], p))
            positions = [center - step, center + step]
        return center

    def _downhill(self, where: Where, start: int) -> tuple[int, float]:
        """The best scale in one gauge, and about its KL: the bound has one valley, not far."""
        gauge, center = self._gauge, start
        assert gauge is not None
        values: dict[int, Look] = {}
        nats: dict[int, float] = {}
        while True:
            near = [p for p in (center, center - 1, center + 1) if 0 <= p < len(self._scales)]
            for position in near:
                if position not in values:
                    noise = gauge.noise(where, self._scales[position])
                    nats[position] = gauge.rough_nats(where, noise)
                    limit = min(values.values(), default=None)
                    values[position] = self._look(where, position, noise, nats[position], limit)
            lowest = min(near, key=values.__getitem__)
            if lowest == center:
                return center, nats[center]
            center = lowest

    def _look(
        self, where: Where, position: int, noise: DiagonalGaussian, nats: float, best: Look | None
    ) -> Look:
        """What the bound makes of a scale in few trials; and what tells hopeless scales apart.

        A scale that would not be the best even without an error is not tried.
        """
        scale, risk = self._scales[position], 0.0
        for known in (False, True):
            if known:
                risk = float(self._losses(where, scale, noise, _FEW_TRIALS).mean())
            value = self._value(risk, nats)
            look = value, risk + math.sqrt(max(0.0, nats) / (2 * len(self._examples)))
            if best is not None and look > best:
                break
        self._tries += 1
        if self._job.progress is not None:
            others = 0 if self._gauge is None else len(self._gauge.wheres)
            most = len(self._scales) // _STEP + 6 + 4 * others
            message = f"noise {scale:.4g} gives {value:.3f}"
            self._job.progress("noise", min(self._tries, most), most, message)
        return look

    def _tried(self, where: Where, position: int, rescaled: Rescaled) -> Tried:
        scale = self._scales[position]
        losses = self._losses(where, scale, rescaled.noise, SEARCH_TRIALS)
        return Tried(where, scale, rescaled, losses)

    def _unmoved(self, scale: float) -> Rescaled:
        posterior = DiagonalGaussian.around(self._module, scale=scale)
        prior = self._prior.choose(self._module, posterior)
        size = 0 if self._gauge is None else self._gauge.groups.size
        return Rescaled(posterior, posterior, prior, np.zeros(size))

    def _losses(
        self, where: Where, scale: float, noise: DiagonalGaussian, trials: int
    ) -> np.ndarray:
        """Estimated before anything is moved: with and without rescaling they are the same."""
        key = where, scale, trials
        if key not in self._known:
            loss, seen = self._job.loss, []

            def watched(outputs: Tensor, labels: Tensor) -> Tensor:
                values = loss(outputs, labels)
                seen.append(values.double().cpu().numpy())
                return values

            self._pilot(
                noise,
                loss=replace(loss, function=watched),
                trials=trials,
                generator=torch.Generator(device=self._job.device).manual_seed(self._seed),
            )
            self._known[key] = np.concatenate(seen)
        return self._known[key]

    def _value(self, risk: float, kl_nats: float) -> float:
        return seeger(
            empirical_risk=min(1.0, risk),
            kl_nats=max(0.0, kl_nats),  # a rough sum may fall below zero by rounding
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

    def _luck(self, moved: Tried) -> float:
        """By how many nats the price of one drawn network may gain less from a move than the KL.

        The difference of both prices is a square of Gaussian weights, and the move keeps the draw.
        """
        if self._job.predictor != "drawn":
            return 0.0
        variance = 0.0
        before, after = self._unmoved(moved.scale), moved.rescaled
        for name, mean in before.posterior.means.items():
            scale, end = before.posterior.scales[name].double(), after.posterior.scales[name]
            factor = end.double() / scale
            own, other = (p.prior.scales[name].double() ** -2 for p in (before, after))
            center, middle = before.prior.means[name].double(), mean.double()
            square, slope = (factor**2 * other - own) / 2, center * (own - factor * other)
            linear = (2 * square * middle + slope) * scale
            variance += float((linear**2 + 2 * square**2 * scale**4).sum())
        return _CLEARLY * math.sqrt(variance)

    def _complexity(self, tried: Tried, *, overlaps: bool = True) -> ComplexityRecord:
        assert self._gauge is not None
        rescaled, graph = tried.rescaled, self._gauge.graph
        return complexity_of(
            self._job, rescaled.posterior, rescaled.prior, graph, overlaps=overlaps
        )

    def _compared(self, tried: Tried, least: ComplexityRecord) -> ComplexityRecord:
        """With all units compared; where there are none, nothing was left out."""
        units = any(saving.symmetry == "permutation" for saving in least.symmetries)
        return self._complexity(tried) if units else least
