"""Descent along single coordinates of a setting: what the searches of all theorems share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from nonvacuous.progress import Reporter
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, Scales

SettingT = TypeVar("SettingT", bound=Scales)
#: The estimated bound of a setting.
Objective = Callable[[SettingT], float]
#: The neighbor along one coordinate, a stride away; None where the grid ends.
Move = Callable[[SettingT, int], SettingT | None]
_STRIDES = (4, 2, 1)


def descend(
    starts: Sequence[SettingT],
    objective: Objective[SettingT],
    moves: Sequence[Move[SettingT]],
    *,
    rounds: int,
    reporter: Reporter,
) -> SettingT:
    """From the best of the starts, walk along one coordinate after the other while it helps."""
    seen: dict[SettingT, float] = {}

    def value(setting: SettingT) -> float:
        if setting not in seen:
            seen[setting] = objective(setting)
            reporter.report(len(seen), len(seen) + 1, f"{len(seen)} settings tried")
        return seen[setting]

    best = min(starts, key=value)
    for stride in _STRIDES:
        for _ in range(rounds):
            before = best
            for move in moves:
                best = _along(best, move, stride, value)
            if best == before:
                break
    return best


def _along(
    best: SettingT, move: Move[SettingT], stride: int, value: Objective[SettingT]
) -> SettingT:
    for direction in (stride, -stride):
        while True:
            moved = move(best, direction)
            if moved is None or not value(moved) < value(best):
                break
            best = moved
    return best


def vacuous(share: float, complexity: float) -> float:
    """An order among settings that say nothing: by how far they are from saying something.

    So much noise that every loss is 1 would be nearest by this measure, and is put last.
    """
    return (2.0 if share < 0.95 else 4.0) + share + math.sqrt(0.5 * complexity)


def all_scales(setting: SettingT, stride: int) -> SettingT | None:
    """The noise of all layers together."""
    first = setting.first + stride
    return replace(setting, first=first) if first in FIRST_SCALE else None


def later_scale(layer: int) -> Move[SettingT]:
    """The noise of one layer after the first, counted from 1."""

    def move(setting: SettingT, stride: int) -> SettingT | None:
        # The step into it grows, and the step out of it shrinks.
        steps = list(setting.steps)
        steps[layer - 1] += stride
        if layer < len(steps):
            steps[layer] -= stride
        return replace(setting, steps=tuple(steps))

    return move


def first_scale(setting: SettingT, stride: int) -> SettingT | None:
    """The noise of the first layer alone: the step out of it makes up for it."""
    first, rest = setting.first + stride, (setting.steps[0] - stride, *setting.steps[1:])
    return replace(setting, first=first, steps=rest) if first in FIRST_SCALE else None


def escape(setting: SettingT, stride: int) -> SettingT | None:
    """The escape probability, always to the next on the list."""
    place = setting.escape + (1 if stride > 0 else -1)
    return replace(setting, escape=place) if 0 <= place < len(ESCAPES) else None
