"""The granulated rank correlation of Jiang et al. 2020: one hyper-parameter changes at a time.

A measure that merely tells which value one strong hyper-parameter has can order all networks well
(every measure knows how many parameters there are) and yet say nothing about any other change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nonvacuous.measures.correlation import Codes, Numbers, Trials, coupled_weights, ranked


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
