"""Searching for a good setting on a few examples, with noise that is never used again.

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
from nonvacuous.sparsity.descent import (
    Move,
    all_scales,
    descend,
    escape,
    first_scale,
    later_scale,
    vacuous,
)
from nonvacuous.sparsity.evaluation import Evaluator
from nonvacuous.sparsity.noise import Inputs, noisy_pass, standard_noise
from nonvacuous.sparsity.setting import Setting, kl_nats
from nonvacuous.sparsity.theorem_f import SIZES

_COARSE = (-52, -46, -40, -34, -28, -22, -16, -10, -4)
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
    best = descend(
        _starts(evaluator),
        objective,
        _moves(len(evaluator.distances)),
        rounds=_ROUNDS,
        reporter=reporter,
    )
    reporter.report(1, 1, "setting found", always=True)
    return best


def _starts(evaluator: Evaluator) -> list[Setting]:
    steps = (2,) + (0,) * (len(evaluator.distances) - 2)
    if evaluator.theorem == "D":
        return [Setting(first, steps, place) for first in _COARSE for place in (5, 9)]
    if evaluator.theorem == "F":
        return [
            Setting(first, steps, place, SIZES, 4, evaluator.sparse)
            for first in _COARSE
            for place in (5, 8)
        ]
    # A cap suits networks near their prior, whose activations the prior foretells; otherwise every
    # example may break it, and the descent would see nothing but ones.
    forms = [("cap", 1, evaluator.sparse), ("exponential", 0, False)]
    return [
        Setting(first, steps, 5 if tail == "cap" else 8, tail, factor, anchored)
        for first in _COARSE
        for tail, factor, anchored in forms
    ]


def _moves(layers: int) -> list[Move[Setting]]:
    later: list[Move[Setting]] = [later_scale(layer) for layer in range(1, layers)]
    return [all_scales, *later, escape, _named, first_scale, _factor, _tail, _anchored]


def _named(setting: Setting, stride: int) -> Setting | None:
    return replace(setting, named=not setting.named) if stride > 0 else None


def _factor(setting: Setting, stride: int) -> Setting | None:
    return None if setting.tail is None else replace(setting, factor=setting.factor + stride)


def _tail(setting: Setting, stride: int) -> Setting | None:
    if setting.tail in (None, SIZES) or stride < 0:
        return None
    other = "exponential" if setting.tail == "cap" else "cap"
    return replace(setting, tail=other, factor=1 if other == "cap" else 0)


def _anchored(setting: Setting, stride: int) -> Setting | None:
    leaves = setting.tail is not None and setting.anchored and stride > 0
    return replace(setting, anchored=False) if leaves else None
