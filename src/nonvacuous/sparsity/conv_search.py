"""Searching for a setting on a few examples, with noise that is never used again.

The PAC-Bayes event holds for all settings at once, each at its own charge, so that looking at the
bound examples here is free. The final noise is not: it is drawn after the setting is frozen.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_evaluation import ConvEvaluator
from nonvacuous.sparsity.conv_noise import ConvInputs, noisy_pass, pieces, standard_noise
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting
from nonvacuous.sparsity.descent import (
    Move,
    all_scales,
    descend,
    escape,
    first_scale,
    later_scale,
    vacuous,
)
from nonvacuous.sparsity.setting import kl_nats

_COARSE = (-60, -52, -44, -36, -28, -20, -12)
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
            return vacuous(1.0, complexity)
        lost = 0
        for piece, draws in zip(parts, noise, strict=True):
            noisy = noisy_pass(chain, piece, setting.sigmas, draws)
            lost += int(evaluator.losses(setting, piece, noisy).sum())
        share = lost / len(part)
        upper = float(kl_inverse_upper(share, slack))
        bound = evaluator.bound(setting, upper, examples=len(inputs), failure=failure)
        return bound if bound < 1.0 else vacuous(share, complexity)

    reporter = Reporter(progress, "search")
    best = descend(
        _starts(evaluator),
        objective,
        _moves(len(evaluator.distances), sparse=evaluator.sparse),
        rounds=_ROUNDS,
        reporter=reporter,
    )
    reporter.report(1, 1, "setting found", always=True)
    return best


def _starts(evaluator: ConvEvaluator) -> list[ConvSetting]:
    steps = (2,) + (0,) * (len(evaluator.distances) - 2)
    forms = (("cap", 1, 5), ("exponential", 0, 8))
    return [
        ConvSetting(first, steps, place, tail, factor)
        for first in _COARSE
        for tail, factor, place in forms
    ]


def _moves(layers: int, *, sparse: bool) -> list[Move[ConvSetting]]:
    later: list[Move[ConvSetting]] = [later_scale(layer) for layer in range(1, layers)]
    shared: list[Move[ConvSetting]] = [
        all_scales, *later, escape, first_scale, _factor, _tail,
    ]  # fmt: skip
    return [*shared, _blend] if sparse else shared


def _factor(setting: ConvSetting, stride: int) -> ConvSetting:
    return replace(setting, factor=setting.factor + stride)


def _tail(setting: ConvSetting, stride: int) -> ConvSetting | None:
    if stride < 0:
        return None
    other = "exponential" if setting.tail == "cap" else "cap"
    return replace(setting, tail=other, factor=1 if other == "cap" else 0)


def _blend(setting: ConvSetting, stride: int) -> ConvSetting | None:
    blend = setting.blend + (1 if stride > 0 else -1)
    return replace(setting, blend=blend) if 0 <= blend < len(BLENDS) else None
