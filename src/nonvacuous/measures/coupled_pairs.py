"""The sign-error of Dziugaite et al. 2020: how often a measure names the wrong one of two networks.

An environment is one change of one hyper-parameter with all others fixed, such as "width from 64 to
256, everything else so". A measure that explains generalization must be right in each of them, not
on average only, so the worst environment is what a robust measure is judged by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nonvacuous.measures.correlation import Codes, Numbers, Trials, coupled_weights, ranked


@dataclass(frozen=True, eq=False)
class Environments:
    """Pairs of networks from two cells that differ in one hyper-parameter, whatever their seeds.

    first, second   the networks of each pair, in the order of the hyper-parameter's values; only
                    pairs whose gaps differ by more than chance
    environment     of each pair, ascending from 0
    kind            of each environment: which change it is, whatever the others are
    kinds           (hyper-parameter, value before, value after) of each kind
    left_out        pairs whose gaps differ too little to say which one is larger
    """

    first: Codes
    second: Codes
    environment: Codes
    kind: Codes
    kinds: tuple[tuple[str, int, int], ...]
    left_out: int

    def __len__(self) -> int:
        return len(self.kind)


def environments(trials: Trials, *, beyond: float = 1.0) -> Environments:
    """Environments in which some pair's gaps differ by more than ``beyond`` standard errors."""
    cells = trials.cells
    firsts: list[Codes] = []
    seconds: list[Codes] = []
    numbers: list[Codes] = []
    kinds_of: list[int] = []
    kinds: list[tuple[str, int, int]] = []
    left_out = 0
    members = [np.flatnonzero(cells == cell) for cell in range(int(cells.max()) + 1)]
    table = np.array([[codes[m[0]] for codes in trials.axes.values()] for m in members])
    for column, axis in enumerate(trials.axes):
        others = np.delete(table, column, axis=1)
        keys = np.unique(others, axis=0, return_inverse=True)[1].reshape(-1)
        found: dict[tuple[str, int, int], int] = {}
        for key in range(int(keys.max()) + 1):
            here = np.flatnonzero(keys == key)
            here = here[np.argsort(table[here, column])]
            for place, before in enumerate(here):
                for after in here[place + 1 :]:
                    i, j = (a.reshape(-1) for a in np.meshgrid(members[before], members[after]))
                    sure = _differ(trials, i, j, beyond)
                    left_out += int((~sure).sum())
                    if not sure.any():
                        continue
                    change = (axis, int(table[before, column]), int(table[after, column]))
                    if change not in found:
                        found[change] = len(kinds)
                        kinds.append(change)
                    firsts.append(i[sure])
                    seconds.append(j[sure])
                    numbers.append(np.full(int(sure.sum()), len(kinds_of)))
                    kinds_of.append(found[change])
    empty: Codes = np.zeros(0, dtype=np.int64)
    return Environments(
        np.concatenate([empty, *firsts]),
        np.concatenate([empty, *seconds]),
        np.concatenate([empty, *numbers]),
        np.array(kinds_of, dtype=np.int64),
        tuple(kinds),
        left_out,
    )


def _differ(trials: Trials, i: Codes, j: Codes, beyond: float) -> NDArray[np.bool_]:
    error = np.hypot(trials.noise[i], trials.noise[j])
    sure: NDArray[np.bool_] = abs(trials.gaps[i] - trials.gaps[j]) > beyond * error
    return sure


def pair_errors(measure: Numbers, gaps: Numbers, found: Environments) -> Numbers:
    """For each pair: 0 where the measure names the network with the larger gap, 1 where it names
    the other one, one half where it does not tell them apart."""
    places, heights = ranked(measure), ranked(gaps)
    said = np.sign(places[found.first] - places[found.second])
    true = np.sign(heights[found.first] - heights[found.second])
    errors: Numbers = (1.0 - said * true) / 2.0
    return errors


def environment_errors(errors: Numbers, found: Environments) -> Numbers:
    """The mean error in each environment."""
    means: Numbers = np.bincount(found.environment, weights=errors) / np.bincount(found.environment)
    return means


def sign_errors(
    errors: Numbers, found: Environments, weights: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """Mean error over all environments, and over those of each kind of change.

    For every row of ``weights``. Each environment counts alike, however many pairs it has.
    """
    networks = int(max(found.first.max(), found.second.max())) + 1
    rows = np.ones((1, networks)) if weights is None else weights
    shares = 1.0 / np.bincount(found.environment)[found.environment]
    counts = coupled_weights(rows, found.first, found.second) * shares
    wrong = counts * errors
    by_kind = np.zeros((len(rows), len(found.kinds)))
    kinds = found.kind[found.environment]
    for kind in range(len(found.kinds)):
        here = kinds == kind
        by_kind[:, kind] = wrong[:, here].sum(axis=1) / counts[:, here].sum(axis=1)
    return wrong.sum(axis=1) / counts.sum(axis=1), by_kind
