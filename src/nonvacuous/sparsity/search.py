"""Searching for a good setting on a few examples, with noise that is never used again.

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
from nonvacuous.sparsity.evaluation import Evaluator
from nonvacuous.sparsity.noise import Inputs, noisy_pass, standard_noise
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, Setting, kl_nats
from nonvacuous.sparsity.theorem_f import SIZES
from nonvacuous.training.progress import Progress, Reporter

Objective = Callable[[Setting], float]
_COARSE = (-52, -46, -40, -34, -28, -22, -16, -10, -4)
_STRIDES = (4, 2, 1)
_ROUNDS = 12
#: Examples that a search uses even where the network is deep.
_FEWEST = 500


def search(
    evaluator: Evaluator,
    inputs: Inputs,
    *,
    failure: float,
    sampling_failure: float,
    trials: int,
    subset: int,
    seed: int,
    progress: Progress | None = None,
) -> Setting:
    """The setting with the smallest estimated bound, by descent along single coordinates."""
    device = evaluator.device
    generator = torch.Generator(device).manual_seed(derived_seed(seed, "search"))
    if evaluator.theorem == "E" and evaluator.sparse:
        # The cost of an example grows with the square of the depth, and the same time must do.
        pairs = evaluator.layers.hidden * (evaluator.layers.hidden + 1) // 2
        subset = min(subset, max(_FEWEST, 3 * subset // pairs))
    chosen = torch.randperm(len(inputs), generator=generator, device=device)[:subset]
    part = inputs.part(chosen)
    noise = standard_noise(evaluator.placed, len(part), generator)
    slack = -math.log(sampling_failure) / trials

    def objective(setting: Setting) -> float:
        # Far too large noise cannot win, and the KL alone may rule a setting out.
        complexity = kl_nats(evaluator.distances, setting.sigmas) / len(inputs)
        if complexity > 3.0:
            return vacuous(1.0, complexity)
        noisy = noisy_pass(evaluator.placed, part, setting.sigmas, noise)
        share = float(evaluator.losses(setting, part, noisy).double().mean())
        upper = float(kl_inverse_upper(share, slack))
        bound = evaluator.bound(setting, upper, examples=len(inputs), failure=failure)
        return bound if bound < 1.0 else vacuous(share, complexity)

    reporter = Reporter(progress, "search")
    best = _descend(_starts(evaluator), objective, reporter)
    reporter.report(1, 1, "setting found", always=True)
    return best


def vacuous(share: float, complexity: float) -> float:
    """An order among settings that say nothing: by how far they are from saying something.

    So much noise that every loss is 1 would be nearest by this measure, and is put last.
    """
    return (2.0 if share < 0.95 else 4.0) + share + math.sqrt(0.5 * complexity)


def _starts(evaluator: Evaluator) -> list[Setting]:
    steps = (2,) + (0,) * (len(evaluator.distances) - 2)
    if evaluator.theorem == "D":
        return [Setting(first, steps, escape) for first in _COARSE for escape in (5, 9)]
    if evaluator.theorem == "F":
        return [
            Setting(first, steps, escape, SIZES, 4, evaluator.sparse)
            for first in _COARSE
            for escape in (5, 8)
        ]
    # A cap suits networks near their prior, whose activations the prior foretells; otherwise every
    # example may break it, and the descent would see nothing but ones.
    forms = [("cap", 1, evaluator.sparse), ("exponential", 0, False)]
    return [
        Setting(first, steps, 5 if tail == "cap" else 8, tail, factor, anchored)
        for first in _COARSE
        for tail, factor, anchored in forms
    ]


def _descend(starts: list[Setting], objective: Objective, reporter: Reporter) -> Setting:
    seen: dict[Setting, float] = {}

    def value(setting: Setting) -> float:
        if setting not in seen:
            seen[setting] = objective(setting)
            reporter.report(len(seen), len(seen) + 1, f"{len(seen)} settings tried")
        return seen[setting]

    best = min(starts, key=value)
    for stride in _STRIDES:
        for _ in range(_ROUNDS):
            before = best
            for axis in range(len(best.steps) + 7):
                best = _along(best, axis, stride, value)
            if best == before:
                break
    return best


def _along(best: Setting, axis: int, stride: int, value: Objective) -> Setting:
    """Walk along one coordinate as long as it helps."""
    for direction in (stride, -stride):
        while True:
            moved = _moved(best, axis, direction)
            if moved is None or not value(moved) < value(best):
                break
            best = moved
    return best


def _moved(setting: Setting, axis: int, stride: int) -> Setting | None:
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
        return replace(setting, named=not setting.named) if stride > 0 else None
    if axis == layers + 3:
        # The first layer's scale alone: the step out of it makes up for it.
        first, rest = setting.first + stride, (setting.steps[0] - stride, *setting.steps[1:])
        return replace(setting, first=first, steps=rest) if first in FIRST_SCALE else None
    if setting.tail is None:
        return None
    if axis == layers + 4:
        return replace(setting, factor=setting.factor + stride)
    if stride < 0:
        return None
    if axis == layers + 5 and setting.tail == SIZES:
        return None
    if axis == layers + 5:
        other = "exponential" if setting.tail == "cap" else "cap"
        return replace(setting, tail=other, factor=1 if other == "cap" else 0)
    return replace(setting, anchored=False) if setting.anchored else None
