"""Does a measure order networks as their gaps do? Kendall's rank correlation with an interval.

Everything here and in the modules beside it is about plain arrays: one entry per network. All
statistics are sums over pairs of networks. Weights of one give the statistic itself, random weights
its bootstrap: where all pairs enter, a pair counts as the product of its networks' weights; where
few do, see `Coupled.counts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nonvacuous.errors import BadInput

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
#: Rows of a matrix of all pairs that are in memory at once.
_ROWS = 512


@dataclass(frozen=True)
class Estimate:
    """A statistic with the range that most of its bootstrap draws fall into."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, drawn: Numbers, *, least: float = -1.0) -> Estimate:
        """The first entry, and the central 95 % of the draws that follow it.

        The range ends where the statistic does, at ``least`` and 1: weights of few pairs may be
        negative, and a draw then lies beyond.
        """
        low, high = np.percentile(drawn[1:], [2.5, 97.5]).clip(least, 1.0)
        return cls(float(drawn[0]), float(low), float(high))


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
        own = np.asarray(gaps, dtype=np.float64)
        if own.ndim != 1 or len(own) < 2 or not np.isfinite(own).all():
            raise BadInput(
                f"gaps must be a list of at least two finite numbers, one per network; got "
                f"{len(own) if own.ndim == 1 else own.shape}"
            )
        columns = {name: np.asarray(column) for name, column in hyperparameters.items()}
        for name, column in (*columns.items(), ("seeds", seeds), ("noise", noise)):
            if column is not None and np.shape(column) != own.shape:
                raise BadInput(
                    f"{name} has shape {np.shape(column)}, but there are {len(own)} gaps; give "
                    "one value for each network"
                )
        axes, values = {}, {}
        for name, column in columns.items():
            levels, codes = np.unique(column, return_inverse=True)
            if len(levels) > 1:
                axes[name], values[name] = codes.astype(np.int64), tuple(levels.tolist())
        zeros = np.zeros(len(own))
        return cls(
            gaps=own,
            noise=zeros if noise is None else np.asarray(noise, dtype=np.float64),
            axes=axes,
            values=values,
            seeds=zeros.astype(np.int64) if seeds is None else np.asarray(seeds, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.gaps)

    def where(self, kept: NDArray[np.bool_]) -> Trials:
        """Some of the networks; an axis stays even if only one of its values is left."""
        axes = {name: codes[kept] for name, codes in self.axes.items()}
        some = {name: getattr(self, name)[kept] for name in ("gaps", "noise", "seeds")}
        return replace(self, axes=axes, **some)

    @property
    def cells(self) -> Codes:
        """The same number for networks that differ in their seed alone."""
        return numbered(self.axes.values(), len(self))


def numbered(columns: Iterable[Codes], networks: int) -> Codes:
    """0, 1, 2, ...: the same number for networks that agree in all columns."""
    table = np.column_stack([np.zeros(networks, dtype=np.int64), *columns])
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def ranked(values: Any) -> Codes:
    """The rank of each value, equal ones sharing a rank; infinities have ranks too."""
    return np.unique(np.asarray(values), return_inverse=True)[1].reshape(-1).astype(np.int64)


def _signs(values: Numbers, first: Codes, second: Codes) -> NDArray[Any]:
    """Which network of each pair has the larger value: 1 the first, -1 the second, 0 neither."""
    order = ranked(values)
    return np.asarray(np.sign(order[first] - order[second]))


def signs_by_rows(measure: Any, gaps: Any) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
    """The same of measures and of gaps for all pairs: some rows of their matrices at a time."""
    one, other = ranked(measure), ranked(gaps)
    for start in range(0, len(one), _ROWS):
        part = slice(start, start + _ROWS)
        yield part, np.sign(one[part, None] - one), np.sign(other[part, None] - other)


def bootstrap_weights(cells: Codes, *, draws: int, seed: int) -> Numbers:
    """(draws, networks) random weights for the Bayesian bootstrap (Rubin 1981).

    Each cell, seeds included, gets one exponential weight: repetitions of the same cell resemble
    one another and must not pass for independent networks. No network ever vanishes, so pairs and
    groups stay whole.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.exponential(size=(draws, int(cells.max()) + 1))
    return np.asarray(drawn[:, cells] / drawn[:, cells].mean(axis=1, keepdims=True))


def kendall_tau(measure: Any, gaps: Any, weights: Numbers | None = None) -> Numbers:
    """Kendall's tau-b of two columns, for every row of ``weights`` (one row of ones by default).

    1 for the same order, -1 for the opposite one, about 0 for unrelated ones. A measure that is
    the same for all networks orders nothing: 0.

    >>> float(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4])[0]) == 4 / 6
    True
    """
    rows = np.ones((1, len(gaps))) if weights is None else weights
    columns = rows.T.astype(np.float32)
    sums = np.zeros((3, len(rows)))
    for part, said, true in signs_by_rows(measure, gaps):
        for number, pairs in enumerate((said * true, abs(said), abs(true))):
            counted = (pairs.astype(np.float32) @ columns).astype(np.float64)
            sums[number] += (counted * rows.T[part]).sum(axis=0)
    agreement, untied, changing = sums
    scale = np.sqrt(untied * changing)
    return np.divide(agreement, scale, out=np.zeros(len(rows)), where=scale > 0)


@dataclass(frozen=True, eq=False)
class Coupled:
    """Pairs of networks that differ in one hyper-parameter alone, their seeds being equal.

    first, second   the networks of each pair
    groups          which group each pair belongs to, numbered from 0: networks of a group share all
                    other hyper-parameters
    """

    first: Codes
    second: Codes
    groups: Codes

    def __len__(self) -> int:
        return len(self.first)

    def counts(self, weights: Numbers) -> Numbers:
        """(draws, pairs): by how much a pair counts where each network is in a few pairs only.

        1 and what the two weights deviate from it. The product of the weights has one more term,
        which is nothing among all pairs but half as much variance again among few. This is the
        jackknife over networks (its influence values, randomly weighted), whose variance is never
        too small on average (Efron and Stein 1981). Each group counts alike, however many of its
        pairs are there.
        """
        together = weights[:, self.first] + weights[:, self.second] - 1.0
        return np.asarray(together * (1.0 / np.bincount(self.groups)[self.groups]))


def coupled_by(trials: Trials, axis: str) -> Coupled:
    """All pairs in which ``axis`` is what differs."""
    others = [codes for name, codes in trials.axes.items() if name != axis]
    keys = numbered([*others, trials.seeds], len(trials))
    own = trials.axes[axis]
    first, second = np.nonzero(np.triu((keys[:, None] == keys) & (own[:, None] != own)))
    # Groups without a pair leave no hole in the numbering.
    return Coupled(first, second, ranked(keys[first]))


def granulated_tau(
    measure: Numbers, gaps: Numbers, pairs: Coupled, weights: Numbers | None = None
) -> Numbers:
    """The mean over groups of the rank correlation within each, for every row of ``weights``.

    Within a group: pairs ordered as their gaps, minus pairs ordered the other way round, over all
    pairs whose gaps differ. A pair that the measure does not tell apart counts as neither. nan
    where no pair is left.
    """
    rows = np.ones((1, len(measure))) if weights is None else weights
    differ = _signs(gaps, pairs.first, pairs.second)
    kept = np.flatnonzero(differ != 0)
    if not len(kept):
        return np.full(len(rows), np.nan)
    left = Coupled(pairs.first[kept], pairs.second[kept], pairs.groups[kept])
    agreement = _signs(measure, left.first, left.second) * differ[kept]
    counts = left.counts(rows)
    return np.asarray((counts * agreement).sum(axis=1) / counts.sum(axis=1))


# The sign-error of Dziugaite et al. 2020: how often a measure names the wrong one of two networks.
#
# An environment is one change of one hyper-parameter with all others fixed, such as "width from 64
# to 256, everything else so". A measure that explains generalization must be right in each of them,
# not on average only, so the worst environment is what a robust measure is judged by.


@dataclass(frozen=True, eq=False)
class Environments(Coupled):
    """Pairs of networks from two cells that differ in one hyper-parameter, whatever their seeds.

    first, second   the networks of each pair, in the order of the hyper-parameter's values; only
                    pairs whose gaps differ by more than chance
    groups          the environment of each pair
    kind            of each environment: which change it is, whatever the others are
    kinds           (hyper-parameter, value before, value after) of each kind
    left_out        pairs whose gaps differ too little to say which one is larger
    """

    kind: Codes
    kinds: tuple[tuple[str, int, int], ...]
    left_out: int


def environments(trials: Trials, *, beyond: float = 1.0) -> Environments:
    names = list(trials.axes)
    pairs = [np.zeros((6, 0), dtype=np.int64)]
    for number, axis in enumerate(names):
        own = trials.axes[axis]
        keys = numbered([trials.axes[name] for name in names if name != axis], len(trials))
        first, second = np.nonzero((keys[:, None] == keys) & (own[:, None] < own))
        change = np.full(len(first), number), own[first], own[second], keys[first]
        pairs.append(np.stack([first, second, *change]))
    first, second, *changes = np.concatenate(pairs, axis=1)
    error = np.hypot(trials.noise[first], trials.noise[second])
    sure = abs(trials.gaps[first] - trials.gaps[second]) > beyond * error
    found, groups = np.unique(np.stack(changes)[:, sure], axis=1, return_inverse=True)
    kinds, kind = np.unique(found[:3], axis=1, return_inverse=True)
    named = tuple((names[number], before, after) for number, before, after in kinds.T.tolist())
    left_out = int((~sure).sum())
    first, second = first[sure], second[sure]
    return Environments(first, second, groups.ravel(), kind.ravel(), named, left_out)


def pair_errors(measure: Numbers, gaps: Numbers, among: Environments) -> Numbers:
    """For each pair: 0 where the measure names the network with the larger gap, 1 where it names
    the other one, one half where it does not tell them apart."""
    said = _signs(measure, among.first, among.second)
    true = _signs(gaps, among.first, among.second)
    return np.asarray((1.0 - said * true) / 2.0)


def environment_errors(errors: Numbers, among: Environments) -> Numbers:
    return np.asarray(np.bincount(among.groups, weights=errors) / np.bincount(among.groups))


def sign_errors(errors: Numbers, among: Environments, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Mean error over all environments, and over those of each kind of change.

    For every row of ``weights``. Each environment counts alike, however many pairs it has.
    """
    counts = among.counts(weights)
    wrong = counts * errors
    of_kind = np.eye(len(among.kinds))[among.kind[among.groups]]
    return wrong.sum(axis=1) / counts.sum(axis=1), wrong @ of_kind / (counts @ of_kind)
