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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import logsumexp
from scipy.stats import t as student_t
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.networks.scale_groups import ScaleGroups

#: Degrees of freedom of the tails: heavy enough for exp(h), whose logarithm falls linearly on one
#: side, and light enough that hundreds of coordinates together cost little.
_TAIL = 8.0


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which pair of units each weight lies between, as far as scales move it.

    ``ends`` is the sparse matrix [pairs, units] that takes s to r: 1 at a pair's upper end and
    -1 at its lower one (an input or an output is no unit). Pairs are sorted by their upper end,
    then by their lower one. ``pair_of`` gives, for each tensor that scales move, the axes along
    which all weights lie between the same units, and the pairs along the others.
    """

    size: int
    ends: Any
    pair_of: Mapping[str, tuple[tuple[int, ...], np.ndarray]]
    count: np.ndarray

    @property
    def deep(self) -> bool:
        """Whether some weight lies between two rescaled units."""
        return bool((abs(self.ends).sum(axis=1) > 1).any())

    def sums(self, draws: int, parts: Iterable[tuple[str, np.ndarray]]) -> np.ndarray:
        """Tensors [draws, *shape] added up over the weights of each pair: [draws, pairs]."""
        total = np.zeros((draws, self.ends.shape[0]))
        for name, values in parts:
            alike, pair = self.pair_of[name]
            rows = values.sum(axis=tuple(axis + 1 for axis in alike)) if alike else values
            for target, row in zip(total, rows.reshape(draws, -1), strict=True):
                target += np.bincount(pair, row, minlength=len(target))
        return total

    def along_orbits(
        self,
        Q: DiagonalGaussian,
        weights: Mapping[str, np.ndarray],
        squares: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sums of squares / variance and of weights * mean / variance, for each pair.

        ``squares`` are those of the weights unless others are given.
        """
        draws = len(next(iter(weights.values())))
        squares = squares or {name: weight**2 for name, weight in weights.items()}
        variances = {name: array(Q.scales[name]) ** 2 for name in self.pair_of}
        means = {name: array(Q.means[name]) for name in self.pair_of}
        scaled = ((name, squares[name] / variance) for name, variance in variances.items())
        crossed = ((n, weights[n] * (m / variances[n])) for n, m in means.items() if m.any())
        return self.sums(draws, scaled), self.sums(draws, crossed)


def pairs_of(groups: ScaleGroups) -> Pairs:
    """The pairs of a network whose units all pass something on."""
    size = groups.size
    codes: dict[str, tuple[tuple[int, ...], np.ndarray]] = {}
    for name, scales in groups.exponents.items():
        moving = [scale for scale in scales if scale.moves]
        if not moving:
            continue
        powers = [scale.power for scale in moving]
        if not set(powers) <= {1.0, -1.0} or len(set(powers)) < len(powers):
            raise NotYetSupported(
                f"tensor {name!r} scales with a power of a unit's scale other than 1 and -1, "
                "or with two units of one side; lifted_kl covers activations of degree one"
            )
        dimensions = len(groups.shapes[name])
        ends = {1.0: np.array(size), -1.0: np.array(size)}
        for scale in moving:
            index = scale.spread(dimensions)
            ends[scale.power] = np.where(index < 0, size, index)
        touched = {axis for scale in moving for axis in scale.axes}
        alike = tuple(axis for axis in range(dimensions) if axis not in touched)
        codes[name] = alike, np.ravel(ends[1.0] * (size + 1) + ends[-1.0])
    if not codes:
        raise BadInput(
            "no tensor is rescaled: there is no hidden unit with a free scale, and the lifted KL "
            "is the KL itself (Q.kl_nats(P))"
        )
    known, inverse = np.unique(
        np.concatenate([code for _, code in codes.values()]), return_inverse=True
    )
    up, down = np.divmod(known, size + 1)
    for side, word in ((up, "into"), (down, "out of")):
        lonely = np.setdiff1d(np.arange(size), side)
        if len(lonely):
            raise BadInput(
                f"unit {lonely[0]} of log_scales has no weights {word} it: nothing passes through "
                "it, and its orbit has no density; remove the unit from the network"
            )
    cuts = np.cumsum([len(code) for _, code in codes.values()])[:-1]
    pair_of = {
        name: (alike, pair)
        for (name, (alike, _)), pair in zip(codes.items(), np.split(inverse, cuts), strict=True)
    }
    signs, rows = np.repeat([1.0, -1.0], len(known)), np.tile(np.arange(len(known)), 2)
    ends = csr_array((signs, (rows, np.concatenate([up, down]))))[:, :size]
    pairs = Pairs(size, ends, pair_of, np.zeros(size))
    many = pairs.sums(1, ((name, np.ones((1, *groups.shapes[name]))) for name in pair_of))[0]
    return replace(pairs, count=ends.T @ many)


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
        """``weights`` have a leading axis for the one draw."""
        square, cross = pairs.along_orbits(Q, weights)
        return cls(pairs, square[0], cross[0])

    def height(self, points: np.ndarray) -> np.ndarray:
        """h at each row of ``points``."""
        factor = self._factors(points)
        heights = (factor * (self.cross - 0.5 * self.square * factor)).sum(-1)
        return np.asarray(heights + points @ self.pairs.count)

    def _factors(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp((self.pairs.ends @ points.T).T))

    def slope(self, point: np.ndarray) -> np.ndarray:
        factor = self._factors(point)
        flow = factor * (self.cross - self.square * factor)
        return np.asarray(self.pairs.ends.T @ flow + self.pairs.count)

    def curvature(self, point: np.ndarray) -> np.ndarray:
        """Minus the second derivative of h, made positive definite where crosses spoil it."""
        factor = self._factors(point)
        bend = self.square * factor**2
        bend = np.maximum(2 * bend - self.cross * factor, 0.1 * bend + 1e-12)
        ends = self.pairs.ends
        return np.asarray((ends.T @ ends.multiply(bend[:, None])).toarray())

    def peak(self) -> np.ndarray:
        """Where h is largest near the draw itself."""
        found = minimize(
            lambda point: -self.height(point),
            np.zeros(len(self.pairs.count)),
            jac=lambda point: -self.slope(point),
            hess=self.curvature,
            method="trust-exact",
        )
        return np.asarray(found.x)

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
        density = student_t.logpdf((points - center) @ factor, _TAIL).sum(1)
        density += np.log(np.diag(factor)).sum()
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.nan_to_num(self.height(points) - density, nan=-np.inf)
        low = float(logsumexp(weights[:samples]) - np.log(samples))
        if not own:
            return low, low
        # One of the sample is the draw itself, in place of the last one.
        chosen = np.concatenate([weights[: samples - 1], weights[-1:]])
        return low, float(logsumexp(chosen) - np.log(samples))


def array(tensor: Tensor) -> np.ndarray:
    """A tensor in numpy's float64."""
    return tensor.detach().cpu().double().numpy()
