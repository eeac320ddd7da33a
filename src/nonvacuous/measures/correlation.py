"""Does a measure order networks as their gaps do? Kendall's rank correlation with an interval.

Everything here and in the modules beside it is about plain arrays: one entry per network. All
statistics are sums over pairs of networks. Weights of one give the statistic itself, random weights
its bootstrap: where all pairs enter, a pair counts as the product of its networks' weights; where
few do, see `coupled_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nonvacuous.errors import BadInput

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
#: Rows of a matrix of all pairs that are in memory at once.
ROWS = 512


@dataclass(frozen=True)
class Estimate:
    """A statistic with the range that most of its bootstrap draws fall into."""

    value: float
    low: float
    high: float

    @classmethod
    def of(
        cls, value: float, draws: Numbers, *, least: float = -1.0, confidence: float = 0.95
    ) -> Estimate:
        """The central share ``confidence`` of the draws around a value.

        It ends where the statistic does, at ``least`` and 1: weights of few pairs may be negative,
        and a draw then lies beyond.
        """
        tail = 50.0 * (1.0 - confidence)
        low, high = np.percentile(draws, [tail, 100.0 - tail]).clip(least, 1.0)
        return cls(float(value), float(low), float(high))

    def to_dict(self) -> dict[str, float]:
        """Plain numbers for a file."""
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, eq=False)
class Trials:
    """Trained networks: how they were trained and how large their gaps came out.

    gaps      of each network
    noise     standard error of each gap; zeros where it is not known
    axes      hyper-parameter -> its value for each network, as numbers 0, 1, 2, ...
    values    hyper-parameter -> what these numbers stand for
    seeds     which repetition of its cell each network is
    """

    gaps: Numbers
    noise: Numbers
    axes: Mapping[str, Codes]
    values: Mapping[str, tuple[Any, ...]]
    seeds: Codes

    @classmethod
    def of(
        cls,
        gaps: Any,
        hyperparameters: Mapping[str, Any],
        *,
        seeds: Any | None = None,
        noise: Any | None = None,
    ) -> Trials:
        """Check and encode. Hyper-parameters that never change are left out."""
        found = np.asarray(gaps, dtype=np.float64)
        if found.ndim != 1 or len(found) < 2 or not np.isfinite(found).all():
            raise BadInput(
                f"gaps must be a list of at least two finite numbers, one per network; got "
                f"{len(found) if found.ndim == 1 else found.shape}"
            )
        columns = {name: np.asarray(column) for name, column in hyperparameters.items()}
        for name, column in (*columns.items(), ("seeds", seeds), ("noise", noise)):
            if column is not None and np.shape(column) != found.shape:
                raise BadInput(
                    f"{name} has shape {np.shape(column)}, but there are {len(found)} gaps; give "
                    "one value for each network"
                )
        axes, values = {}, {}
        for name, column in columns.items():
            levels, codes = np.unique(column, return_inverse=True)
            if len(levels) > 1:
                axes[name], values[name] = codes.astype(np.int64), tuple(levels.tolist())
        zeros = np.zeros(len(found))
        return cls(
            gaps=found,
            noise=zeros if noise is None else np.asarray(noise, dtype=np.float64),
            axes=axes,
            values=values,
            seeds=zeros.astype(np.int64) if seeds is None else np.asarray(seeds, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.gaps)

    def where(self, kept: NDArray[np.bool_]) -> Trials:
        """Some of the networks; an axis stays even if only one of its values is left."""
        return Trials(
            gaps=self.gaps[kept],
            noise=self.noise[kept],
            axes={name: codes[kept] for name, codes in self.axes.items()},
            values=self.values,
            seeds=self.seeds[kept],
        )

    @property
    def cells(self) -> Codes:
        """The same number for networks that differ in their seed alone."""
        if not self.axes:
            return np.zeros(len(self), dtype=np.int64)
        table = np.column_stack(list(self.axes.values()))
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def ranked(values: Any) -> Codes:
    """Places of values in their order, equal ones sharing a place; infinities have places too."""
    return np.unique(np.asarray(values), return_inverse=True)[1].reshape(-1).astype(np.int64)


def bootstrap_weights(cells: Codes, *, draws: int, seed: int) -> Numbers:
    """(draws, networks) random weights for the Bayesian bootstrap (Rubin 1981).

    Each cell, seeds included, gets one exponential weight: repetitions of the same cell resemble
    one another and must not pass for independent networks. No network ever vanishes, so pairs and
    groups stay whole.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.exponential(size=(draws, int(cells.max()) + 1))
    weights: Numbers = drawn[:, cells]
    return np.asarray(weights / weights.mean(axis=1, keepdims=True))


def coupled_weights(weights: Numbers, first: Codes, second: Codes) -> Numbers:
    """(draws, pairs): by how much a pair counts where each network is in a few pairs only.

    1 and what the two weights deviate from it. The product of the weights has one more term, which
    is nothing among all pairs but half as much variance again among few. This is the jackknife
    over networks (its influence values, randomly weighted), whose variance is never too small on
    average (Efron and Stein 1981).
    """
    together: Numbers = weights[:, first] + weights[:, second] - 1.0
    return together


def kendall_tau(measure: Any, gaps: Any, weights: Numbers | None = None) -> Numbers:
    """Kendall's tau-b of two columns, for every row of ``weights`` (one row of ones by default).

    1 for the same order, -1 for the opposite one, about 0 for unrelated ones. A measure that is
    the same for all networks orders nothing: 0.

    >>> float(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4])[0]) == 4 / 6
    True
    """
    one, other = ranked(measure), ranked(gaps)
    rows = np.ones((1, len(one))) if weights is None else weights
    columns = rows.T.astype(np.float32)
    sums = np.zeros((3, len(rows)))
    for start in range(0, len(one), ROWS):
        part = slice(start, start + ROWS)
        first = np.sign(one[part, None] - one[None, :]).astype(np.float32)
        second = np.sign(other[part, None] - other[None, :]).astype(np.float32)
        for place, pairs in enumerate((first * second, abs(first), abs(second))):
            sums[place] += ((pairs @ columns).astype(np.float64) * rows.T[part]).sum(axis=0)
    agreement, untied, changing = sums
    scale = np.sqrt(untied * changing)
    return np.divide(agreement, scale, out=np.zeros(len(rows)), where=scale > 0)


@dataclass(frozen=True, eq=False)
class Coupled:
    """Pairs of networks that differ in one hyper-parameter alone, their seeds being equal.

    first, second   the networks of each pair
    groups          which group each pair belongs to, in ascending order from 0: networks of a group
                    share all other hyper-parameters
    """

    first: Codes
    second: Codes
    groups: Codes

    def __len__(self) -> int:
        return len(self.first)


def coupled_by(trials: Trials, axis: str) -> Coupled:
    """All pairs in which ``axis`` is what differs."""
    others = [codes for name, codes in trials.axes.items() if name != axis]
    table = np.column_stack([*others, trials.seeds])
    keys = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(keys, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
    first: list[Codes] = []
    second: list[Codes] = []
    groups: list[Codes] = []
    for group in members:
        i, j = np.triu_indices(len(group), k=1)
        differ = trials.axes[axis][group[i]] != trials.axes[axis][group[j]]
        first.append(group[i][differ])
        second.append(group[j][differ])
        groups.append(np.full(int(differ.sum()), len(groups)))
    whole = np.concatenate(groups)
    return Coupled(
        np.concatenate(first),
        np.concatenate(second),
        # Groups without a pair leave no hole in the numbering.
        np.unique(whole, return_inverse=True)[1].reshape(-1).astype(np.int64),
    )


def granulated_tau(
    measure: Numbers, gaps: Numbers, pairs: Coupled, weights: Numbers | None = None
) -> Numbers:
    """The mean over groups of the rank correlation within each, for every row of ``weights``.

    Within a group: pairs ordered as their gaps, minus pairs ordered the other way round, over all
    pairs whose gaps differ. A pair that the measure does not tell apart counts as neither. nan
    where no pair is left.
    """
    rows = np.ones((1, len(measure))) if weights is None else weights
    places, heights = ranked(measure), ranked(gaps)
    told = np.sign(heights[pairs.first] - heights[pairs.second])
    kept = np.flatnonzero(told != 0)
    if not len(kept):
        return np.full(len(rows), np.nan)
    first, second = pairs.first[kept], pairs.second[kept]
    agreement = np.sign(places[first] - places[second]) * told[kept]
    # Each group counts alike, however many of its pairs are there.
    shares = 1.0 / np.bincount(pairs.groups[kept])[pairs.groups[kept]]
    counts = coupled_weights(rows, first, second) * shares
    averaged: Numbers = (counts * agreement).sum(axis=1) / counts.sum(axis=1)
    return averaged
