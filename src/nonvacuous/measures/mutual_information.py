"""Conditional mutual information of Jiang et al. 2020: what a measure tells beyond the settings.

For two networks, how much does the sign of the difference of a measure tell about the sign of the
difference of the gaps, once some hyper-parameters of both are known? The share of what was unknown,
from 0 to 1, at the worst choice of at most two hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from nonvacuous.measures.correlation import ROWS, Codes, Numbers, numbered, ranked

Names = tuple[str, ...]


#: Sets of hyper-parameters that are known, each as one number per network.
Conditions = Mapping[Names, Codes]


def conditions_of(axes: Mapping[str, Codes]) -> Conditions:
    """Every set of at most two hyper-parameters, the empty one included."""
    networks = len(next(iter(axes.values())))
    return {
        chosen: numbered([axes[name] for name in chosen], networks)
        for size in range(3)
        for chosen in combinations(axes, size)
    }


def normalized_information(
    measure: Numbers, gaps: Numbers, conditions: Conditions, weights: Numbers | None = None
) -> Numbers:
    """For every set I(sign of measure; sign of gap | set) over H(sign of gap | set).

    Over all ordered pairs of networks whose gaps differ, a pair counting as the product of its
    weights, for every row of ``weights`` (one row of ones by default). nan where the set leaves
    nothing unknown.
    """
    networks = len(gaps)
    rows = np.ones((1, networks)) if weights is None else weights
    columns = [int(codes.max()) + 1 for codes in conditions.values()]
    ends = np.cumsum(columns)
    known = np.zeros((len(rows), networks, int(ends[-1])), dtype=np.float32)
    for codes, end, width in zip(conditions.values(), ends, columns, strict=True):
        known[:, np.arange(networks), codes + end - width] = rows
    ranks, heights = ranked(measure), ranked(gaps)
    # The other three of the six tables are these with the two networks exchanged.
    counts = [[np.zeros((len(rows), width, width)) for width in columns] for _ in range(3)]
    for start in range(0, networks, ROWS):
        part = slice(start, start + ROWS)
        said = np.sign(ranks[part, None] - ranks[None, :])
        true = np.sign(heights[part, None] - heights[None, :])
        for table, (mark, outcome) in enumerate(((1, 1), (1, -1), (0, 1))):
            pairs = ((said == mark) & (true == outcome)).astype(np.float32)
            sums = pairs @ known
            for number, (end, width) in enumerate(zip(ends, columns, strict=True)):
                own = slice(end - width, end)
                first = known[:, part, own].swapaxes(1, 2).astype(np.float64)
                counts[table][number] += first @ sums[:, :, own]
    shares = [
        [_share_known(*(table[draw] for table in tables)) for tables in zip(*counts, strict=True)]
        for draw in range(len(rows))
    ]
    return np.array(shares)


def _share_known(agreeing: Numbers, opposed: Numbers, tied: Numbers) -> float:
    """From counts of pairs by the values of both networks; the gap of the first is larger where
    they agree or the measure is tied, smaller where they are opposed."""
    # Axes: values of the first, values of the second, measure (+, -, 0), gap (+, -).
    table = np.stack(
        [
            np.stack([agreeing, opposed], axis=-1),
            np.stack([opposed.T, agreeing.T], axis=-1),
            np.stack([tied, tied.T], axis=-1),
        ],
        axis=-2,
    )
    total = table.sum()
    if total <= 0:
        return float("nan")
    table = table / total
    given = table.sum(axis=(2, 3), keepdims=True)
    by_measure = table.sum(axis=3, keepdims=True)
    by_gap = table.sum(axis=2, keepdims=True)
    information = _sum(table, table * given, by_measure * by_gap)
    unknown = -_sum(by_gap, by_gap, given + 0 * by_gap)
    return information / unknown if unknown > 1e-12 else float("nan")


def _sum(weights: Numbers, above: Numbers, below: Numbers) -> float:
    """Σ weights · ln(above / below), nothing where the weight is nothing."""
    some = weights > 0
    return float((weights[some] * np.log(above[some] / below[some])).sum())


def least_information(shares: Numbers, conditions: Conditions) -> tuple[float, Names]:
    """The smallest share and the hyper-parameters at which it is reached.

    Rounding may leave a share a hair below 0, which it cannot be.
    """
    if np.isnan(shares).all():
        return 0.0, ()
    least = int(np.nanargmin(shares))
    return max(0.0, float(shares[least])), list(conditions)[least]
