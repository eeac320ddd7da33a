"""Searching for a setting on a few examples, with noise that is never used again.

The PAC-Bayes event holds for all settings at once, each at its own charge, so that looking at the
bound examples here is free. The final noise is not: it is drawn after the setting is frozen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_evaluation import ConvEvaluator
from nonvacuous.sparsity.conv_noise import ConvInputs, noisy_pass, pieces, standard_noise
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, kl_nats
from nonvacuous.training.progress import Progress, Reporter

Objective = Callable[[ConvSetting], float]
_COARSE = (-60, -52, -44, -36, -28, -20, -12)
_STRIDES = (4, 2, 1)
_ROUNDS = 8


def search(
    evaluator: ConvEvaluator,
    inputs: ConvInputs,
    *,
    failure: float,
    sampling_failure: float,
    trials: int,
    subset: int,
    seed: int,
    progress: Progress | None = None,
) -> ConvSetting:
    """The setting with the smallest estimated bound, by descent along single coordinates."""
    chain = evaluator.chain
    device = inputs.images.device
    order = torch.Generator().manual_seed(derived_seed(seed, "search"))
    chosen = torch.randperm(len(inputs), generator=order)[:subset].to(device)
    part = inputs.part(chosen)
    generator = torch.Generator(device).manual_seed(derived_seed(seed, "search noise"))
    parts = [part.part(piece) for piece in pieces(chain, len(part))]
    noise = [standard_noise(chain, len(piece), generator) for piece in parts]
    slack = -math.log(sampling_failure) / trials

    def objective(setting: ConvSetting) -> float:
        complexity = kl_nats(evaluator.distances, setting.sigmas) / len(inputs)
        if complexity > 3.0:
            return _vacuous(1.0, complexity)
        lost = 0
        for piece, draws in zip(parts, noise, strict=True):
            noisy = noisy_pass(chain, piece, setting.sigmas, draws)
            lost += int(evaluator.losses(setting, piece, noisy).sum())
        share = lost / len(part)
        upper = float(kl_inverse_upper(share, slack))
        bound = evaluator.bound(setting, upper, examples=len(inputs), failure=failure)
        return bound if bound < 1.0 else _vacuous(share, complexity)

    reporter = Reporter(progress, "search")
    best = _descend(_starts(evaluator), objective, reporter, sparse=evaluator.sparse)
    reporter.report(1, 1, "setting found", always=True)
    return best


def _vacuous(share: float, complexity: float) -> float:
    """An order among settings that say nothing: by how far they are from saying something."""
    return (2.0 if share < 0.95 else 4.0) + share + math.sqrt(0.5 * complexity)


def _starts(evaluator: ConvEvaluator) -> list[ConvSetting]:
    steps = (2,) + (0,) * (len(evaluator.distances) - 2)
    forms = (("cap", 1, 5), ("exponential", 0, 8))
    return [
        ConvSetting(first, steps, escape, tail, factor)
        for first in _COARSE
        for tail, factor, escape in forms
    ]


def _descend(
    starts: list[ConvSetting], objective: Objective, reporter: Reporter, *, sparse: bool
) -> ConvSetting:
    seen: dict[ConvSetting, float] = {}

    def value(setting: ConvSetting) -> float:
        if setting not in seen:
            seen[setting] = objective(setting)
            reporter.report(len(seen), len(seen) + 1, f"{len(seen)} settings tried")
        return seen[setting]

    best = min(starts, key=value)
    for stride in _STRIDES:
        for _ in range(_ROUNDS):
            before = best
            for axis in range(len(best.steps) + (6 if sparse else 5)):
                best = _along(best, axis, stride, value)
            if best == before:
                break
    return best


def _along(best: ConvSetting, axis: int, stride: int, value: Objective) -> ConvSetting:
    """Walk along one coordinate as long as it helps."""
    for direction in (stride, -stride):
        while True:
            moved = _moved(best, axis, direction)
            if moved is None or not value(moved) < value(best):
                break
            best = moved
    return best


def _moved(setting: ConvSetting, axis: int, stride: int) -> ConvSetting | None:
    """The neighbor along a coordinate, or None where the grid ends."""
    layers = len(setting.steps)
    if axis == 0:
        first = setting.first + stride
        return replace(setting, first=first) if first in FIRST_SCALE else None
    if axis <= layers:
        # One layer's scale alone: the step into it grows, and the step out of it shrinks.
        steps = list(setting.steps)
        steps[axis - 1] += stride
        if axis < layers:
            steps[axis] -= stride
        return replace(setting, steps=tuple(steps))
    if axis == layers + 1:
        escape = setting.escape + (1 if stride > 0 else -1)
        return replace(setting, escape=escape) if 0 <= escape < len(ESCAPES) else None
    if axis == layers + 2:
        # The first layer's scale alone: the step out of it makes up for it.
        first, rest = setting.first + stride, (setting.steps[0] - stride, *setting.steps[1:])
        return replace(setting, first=first, steps=rest) if first in FIRST_SCALE else None
    if axis == layers + 3:
        return replace(setting, factor=setting.factor + stride)
    if axis == layers + 5:
        blend = setting.blend + (1 if stride > 0 else -1)
        return replace(setting, blend=blend) if 0 <= blend < len(BLENDS) else None
    if stride < 0:
        return None
    other = "exponential" if setting.tail == "cap" else "cap"
    return replace(setting, tail=other, factor=1 if other == "cap" else 0)
