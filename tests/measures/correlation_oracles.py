"""The statistics of the correlation study by loops over pairs, as their papers state them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import combinations, permutations

import numpy as np

from nonvacuous.measures.correlation import Trials


def sign(value: float) -> int:
    return int(value > 0) - int(value < 0)


def tau(measure, gaps, weights=None) -> float:
    weights = [1.0] * len(gaps) if weights is None else weights
    agreement = untied = changing = 0.0
    for i, j in combinations(range(len(gaps)), 2):
        weight = weights[i] * weights[j]
        one, other = sign(measure[i] - measure[j]), sign(gaps[i] - gaps[j])
        agreement += weight * one * other
        untied += weight * abs(one)
        changing += weight * abs(other)
    return agreement / math.sqrt(untied * changing) if untied * changing else 0.0


def setting(trials: Trials, network: int, without: str | None = None) -> tuple[int, ...]:
    return tuple(int(codes[network]) for name, codes in trials.axes.items() if name != without)


def granulated(measure, trials: Trials, axis: str) -> float:
    """Jiang et al. 2020, equation (4): the mean over all groups of the correlation within each."""
    groups = defaultdict(list)
    for network in range(len(trials)):
        groups[(*setting(trials, network, axis), int(trials.seeds[network]))].append(network)
    found = []
    for members in groups.values():
        agreement = pairs = 0
        for i, j in combinations(members, 2):
            true = sign(trials.gaps[i] - trials.gaps[j])
            if true and trials.axes[axis][i] != trials.axes[axis][j]:
                agreement += true * sign(measure[i] - measure[j])
                pairs += 1
        if pairs:
            found.append(agreement / pairs)
    return sum(found) / len(found) if found else math.nan


def sign_errors(measure, trials: Trials, *, beyond: float):
    """Dziugaite et al. 2020: one error per environment, and their mean by kind of change."""
    errors = defaultdict(list)
    for i, j in permutations(range(len(trials)), 2):
        differing = [name for name, codes in trials.axes.items() if codes[i] != codes[j]]
        if len(differing) != 1 or trials.axes[differing[0]][i] > trials.axes[differing[0]][j]:
            continue
        difference = trials.gaps[i] - trials.gaps[j]
        error = math.sqrt(trials.noise[i] ** 2 + trials.noise[j] ** 2)
        if abs(difference) <= beyond * error:
            continue
        kind = (differing[0], int(trials.axes[differing[0]][i]), int(trials.axes[differing[0]][j]))
        environment = (kind, setting(trials, i, differing[0]))
        wrong = (1 - sign(measure[i] - measure[j]) * sign(difference)) / 2
        errors[environment].append(wrong)
    each = {environment: sum(v) / len(v) for environment, v in errors.items()}
    kinds = defaultdict(list)
    for (kind, _), value in each.items():
        kinds[kind].append(value)
    return each, {kind: sum(v) / len(v) for kind, v in kinds.items()}


def information(measure, trials: Trials, given: tuple[str, ...], weights=None) -> float:
    """Jiang et al. 2020, equations (7) to (9): I(V_measure; V_gap | U) / H(V_gap | U)."""
    weights = np.ones(len(trials)) if weights is None else weights
    joint: Counter = Counter()
    for i, j in permutations(range(len(trials)), 2):
        true = sign(trials.gaps[i] - trials.gaps[j])
        if true:
            known = tuple((int(trials.axes[a][i]), int(trials.axes[a][j])) for a in given)
            joint[known, sign(measure[i] - measure[j]), true] += weights[i] * weights[j]
    total = sum(joint.values())
    u, um, ug = Counter(), Counter(), Counter()
    for (known, said, true), count in joint.items():
        u[known] += count / total
        um[known, said] += count / total
        ug[known, true] += count / total
    told = sum(
        count / total * math.log(count / total * u[known] / (um[known, said] * ug[known, true]))
        for (known, said, true), count in joint.items()
    )
    unknown = -sum(p * math.log(p / u[known]) for (known, _), p in ug.items())
    return told / unknown if unknown > 1e-12 else math.nan
