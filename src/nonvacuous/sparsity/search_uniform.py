"""Searching for the setting of Theorem A; like every search, free in the PAC-Bayes part."""

from __future__ import annotations

from dataclasses import replace

import torch

from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.descent import vacuous
from nonvacuous.sparsity.noise import Inputs, clean_pass
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, total_nats
from nonvacuous.sparsity.theorem_a import UniformEvaluator, UniformSetting

_STRIDES = (8, 4, 2, 1)
_ROUNDS = 8
#: Share of the examples that may have fewer inactive units than the search starts from.
_QUANTILE = 0.01


def search_uniform(
    evaluator: UniformEvaluator,
    inputs: Inputs,
    *,
    failure: float,
    subset: int,
    seed: int,
    progress: Progress | None = None,
) -> UniformSetting:
    """The setting of Theorem A with the smallest estimated bound, coordinate by coordinate.

    With sparsity at least one unit of every hidden layer is asked to stay inactive; without, none.
    """
    device = inputs.first.device
    generator = torch.Generator(device).manual_seed(derived_seed(seed, "search"))
    order = torch.randperm(len(inputs), generator=generator, device=device)
    part = inputs.part(order[:subset])
    before, scores = clean_pass(evaluator.placed, part)
    seen: dict[UniformSetting, float] = {}
    reporter = Reporter(progress, "search")

    def value(setting: UniformSetting) -> float:
        if setting in seen:
            return seen[setting]
        complexity = evaluator.kl(setting) / len(inputs)
        failed, _, _ = evaluator.judged(setting, part, before, scores)
        escape, share = setting.escape_probability, float(failed.double().mean())
        bound = derandomized(
            loss_upper=min(1.0, escape + (1.0 - escape) * share),
            escape=escape,
            kl_nats=min(evaluator.kl(setting), 1e9),
            grid_nats=total_nats(evaluator.charges(setting)),
            examples=len(inputs),
            failure=failure,
        )
        seen[setting] = bound if bound < 1.0 else vacuous(share, complexity)
        reporter.report(len(seen), len(seen) + 1, f"{len(seen)} settings tried")
        return seen[setting]

    inactive = tuple(
        max(1, int(torch.quantile((z < 0).sum(1).double(), _QUANTILE))) if evaluator.sparse else 0
        for z in before
    )
    inactive = tuple(min(s, w - 1) for s, w in zip(inactive, evaluator.layers.widths, strict=True))
    steps = (0,) * evaluator.layers.hidden
    starts = [UniformSetting(inactive, first, steps, 4) for first in range(-48, 1, 6)]
    if evaluator.sparse:
        fewest = tuple(min(1, width - 1) for width in evaluator.layers.widths)
        starts += [UniformSetting(fewest, first, steps, 4) for first in range(-48, 1, 6)]
    best = min(starts, key=value)
    for stride in _STRIDES:
        for _ in range(_ROUNDS):
            previous = best
            for axis in range(2 * evaluator.layers.hidden + 2):
                for direction in (stride, -stride):
                    moved = _moved(best, axis, direction, evaluator)
                    while moved is not None and value(moved) < value(best):
                        best = moved
                        moved = _moved(best, axis, direction, evaluator)
            if best == previous:
                break
    reporter.report(1, 1, "setting found", always=True)
    return best


def _moved(
    setting: UniformSetting, axis: int, stride: int, evaluator: UniformEvaluator
) -> UniformSetting | None:
    hidden = evaluator.layers.hidden
    if axis == 0:
        first = setting.first + stride
        return replace(setting, first=first) if first in FIRST_SCALE else None
    if axis <= hidden:
        steps = list(setting.steps)
        steps[axis - 1] += stride
        if axis < hidden:
            steps[axis] -= stride
        return replace(setting, steps=tuple(steps))
    if axis == hidden + 1:
        escape = setting.escape + (1 if stride > 0 else -1)
        return replace(setting, escape=escape) if 0 <= escape < len(ESCAPES) else None
    if not evaluator.sparse:
        return None
    layer = axis - hidden - 2
    count = setting.inactive[layer] + stride
    if not 1 <= count < evaluator.layers.widths[layer]:
        return None
    return replace(
        setting, inactive=(*setting.inactive[:layer], count, *setting.inactive[layer + 1 :])
    )
