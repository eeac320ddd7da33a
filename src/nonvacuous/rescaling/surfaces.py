"""Integrals over the orbits of deeper networks, in logarithms, by importance sampling.

Where weights lie between two rescaled units the orbit of a network is a surface with one
dimension for each unit, and the logarithm of a diagonal Gaussian along it, with its volume factor,

    h(s) = sum over pairs (up, down) of [cross exp(r) - square exp(2 r) / 2] + count . s,
    r = s_up - s_down,

couples neighboring layers. The integral of exp(h) has no closed form. It is sampled around the
peak of h, from a density with the curvature of h there and the heavier tails of Student's t; the
average of exp(h) / density is unbiased for the integral, so that its logarithm is too low on
average, by about half its squared relative error. With a point among the sample that was drawn
from exp(h) itself, the logarithm is too high on average: the two ends enclose the integral.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, logsumexp

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, NotYetSupported

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import ScaleGroups

#: Degrees of freedom of the tails: heavy enough for exp(h), whose logarithm falls linearly on one
#: side, and light enough that hundreds of coordinates together cost little.
_TAIL = 8.0
_NEWTON_STEPS = 60


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which pair of units each weight lies between, as far as scales move it."""

    up: np.ndarray
    down: np.ndarray
    pair_of: Mapping[str, np.ndarray]
    count: np.ndarray

    def sums(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Added up over the weights of each pair."""
        total = np.zeros(len(self.up))
        for name, pair in self.pair_of.items():
            total += np.bincount(pair, values[name].reshape(-1), minlength=len(self.up))
        return total


def pairs_of(groups: ScaleGroups) -> Pairs:
    """The pairs; a unit that is not there (an input, an output) has the number ``groups.size``."""
    size, codes = groups.size, {}
    for name, scales in groups.exponents.items():
        ends = {1.0: np.full(groups.shapes[name], size), -1.0: np.full(groups.shapes[name], size)}
        for scale in scales:
            if not scale.moves:
                continue
            if scale.power not in ends or (ends[scale.power] != size).any():
                raise NotYetSupported(
                    f"tensor {name!r} scales with a power of a unit's scale other than 1 and -1, "
                    "or with two units of one side; lifted_kl covers activations of degree one"
                )
            index = scale.spread(len(groups.shapes[name]))
            ends[scale.power] = np.broadcast_to(
                np.where(index < 0, size, index), groups.shapes[name]
            )
        code = ends[1] * (size + 1) + ends[-1]
        if (code != size * (size + 1) + size).any():
            codes[name] = code.reshape(-1)
    known, inverse = np.unique(np.concatenate(list(codes.values())), return_inverse=True)
    cuts = np.cumsum([len(code) for code in codes.values()])[:-1]
    up, down = np.divmod(known, size + 1)
    for side, word in ((up, "into"), (down, "out of")):
        lonely = np.setdiff1d(np.arange(size), side)
        if len(lonely):
            raise BadInput(
                f"unit {lonely[0]} of log_scales has no weights {word} it: nothing passes through "
                "it, and its orbit has no density; remove the unit from the network"
            )
    many = np.bincount(inverse, minlength=len(known))
    count = np.bincount(up, many, size + 1) - np.bincount(down, many, size + 1)
    pair_of = dict(zip(codes, np.split(inverse, cuts), strict=True))
    return Pairs(up, down, pair_of, count[:size])


@dataclass(frozen=True, eq=False)
class Surface:
    """h for one draw of the weights under one Gaussian."""

    pairs: Pairs
    square: np.ndarray
    cross: np.ndarray

    @classmethod
    def through(
        cls, weights: Mapping[str, np.ndarray], Q: DiagonalGaussian, pairs: Pairs
    ) -> Surface:
        squares, crosses = {}, {}
        for name in pairs.pair_of:
            mean = Q.means[name].detach().cpu().double().numpy()
            variance = Q.scales[name].detach().cpu().double().numpy() ** 2
            squares[name] = weights[name] ** 2 / variance
            crosses[name] = weights[name] * mean / variance
        return cls(pairs, pairs.sums(squares), pairs.sums(crosses))

    def height(self, points: np.ndarray) -> np.ndarray:
        """h at each row of ``points``."""
        factor = np.exp(self._exponents(points))
        heights = (factor * (self.cross - 0.5 * self.square * factor)).sum(-1)
        return np.asarray(heights + points @ self.pairs.count)

    def _exponents(self, points: np.ndarray) -> np.ndarray:
        padded = np.concatenate([points, np.zeros((*points.shape[:-1], 1))], axis=-1)
        return np.asarray(padded[..., self.pairs.up] - padded[..., self.pairs.down])

    def slope(self, point: np.ndarray) -> np.ndarray:
        factor = np.exp(self._exponents(point))
        flow = factor * (self.cross - self.square * factor)
        size = len(point)
        up = np.bincount(self.pairs.up, flow, size + 1)
        down = np.bincount(self.pairs.down, flow, size + 1)
        return np.asarray((up - down)[:size] + self.pairs.count)

    def curvature(self, point: np.ndarray) -> np.ndarray:
        """Minus the second derivative of h, made positive definite where crosses spoil it."""
        factor = np.exp(self._exponents(point))
        bend = self.square * factor**2
        bend = np.maximum(2 * bend - self.cross * factor, 0.1 * bend + 1e-12)
        size = len(point) + 1
        matrix = np.zeros((size, size))
        np.add.at(matrix, (self.pairs.up, self.pairs.up), bend)
        np.add.at(matrix, (self.pairs.down, self.pairs.down), bend)
        np.subtract.at(matrix, (self.pairs.up, self.pairs.down), bend)
        np.subtract.at(matrix, (self.pairs.down, self.pairs.up), bend)
        return matrix[:-1, :-1]

    def peak(self) -> np.ndarray:
        """Where h is largest near the draw itself, by damped Newton steps."""
        point = np.zeros(len(self.pairs.count))
        height = self.height(point)
        for _ in range(_NEWTON_STEPS):
            slope = self.slope(point)
            step = np.linalg.solve(self.curvature(point), slope)
            if slope @ step < 1e-12:
                break
            rate = min(1.0, 2.0 / float(np.abs(step).max()))
            while rate > 1e-6:
                raised = self.height(point + rate * step)
                if raised >= height:
                    break
                rate /= 2
            point, height = point + rate * step, raised
        return point

    def log_integral(
        self, generator: np.random.Generator, samples: int, *, own: bool
    ) -> tuple[float, float]:
        """ln of the integral of exp(h): an end that is too low on average, and one too high.

        ``own`` says that the draw of the weights came from this very Gaussian, so that s = 0 is
        a draw from exp(h); without it only the low end is known, and it is given twice.
        """
        center = self.peak()
        factor = np.linalg.cholesky(self.curvature(center))
        size = len(center)
        noise = generator.standard_t(_TAIL, (samples, size))
        points = center + np.linalg.solve(factor.T, noise.T).T
        if own:
            points = np.concatenate([points, np.zeros((1, size))])
            noise = np.concatenate([noise, (-center @ factor)[None]])
        constant = gammaln((_TAIL + 1) / 2) - gammaln(_TAIL / 2) - 0.5 * np.log(_TAIL * np.pi)
        density = size * constant - (_TAIL + 1) / 2 * np.log1p(noise**2 / _TAIL).sum(1)
        density += np.log(np.diag(factor)).sum()
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.nan_to_num(self.height(points) - density, nan=-np.inf)
        low = float(logsumexp(weights[:samples]) - np.log(samples))
        if not own:
            return low, low
        # One of the sample is the draw itself, in place of the last one.
        chosen = np.concatenate([weights[: samples - 1], weights[-1:]])
        return low, float(logsumexp(chosen) - np.log(samples))
