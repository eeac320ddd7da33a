"""A certificate of a convolutional network, gone through again: its setting and its losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_evaluation import CONV_THEOREM, ConvEvaluator
from nonvacuous.sparsity.conv_foretold import read_inputs
from nonvacuous.sparsity.conv_noise import fresh_passes
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting, reference
from nonvacuous.sparsity.conv_theorem import TAILS
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE

#: A margin within this of its threshold, relative, may fall to the other side on another machine.
CLOSE = 1e-6


@dataclass(frozen=True)
class Recount:
    """Losses counted again; ``close`` of the trials hang on rounding."""

    errors: int
    trials: int
    close: int

    def agrees_with(self, *, errors: int, trials: int) -> bool:
        """The same counts, but for trials that another processor may round to the other side."""
        return trials == self.trials and abs(errors - self.errors) <= self.close


def frozen_conv_setting(theorem: str, variant: str, record: Mapping[str, Any]) -> ConvSetting:
    """The setting that a record names; positions outside the grids are refused."""
    if theorem != CONV_THEOREM:
        raise BadInput(
            f"theorem {theorem!r} does not cover convolutions; a convolutional network is "
            f"certified by theorem {CONV_THEOREM}"
        )
    names = {entry.name for entry in fields(ConvSetting)}
    if set(record) != names:
        odd = sorted(set(record) ^ names)
        raise BadInput(f"a setting for convolutions has {sorted(names)}; see {odd}")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
    for name, value in values.items():
        if name == "steps":
            right = isinstance(value, tuple) and all(type(entry) is int for entry in value)
        elif name == "tail":
            right = value in TAILS
        else:
            right = type(value) is int
        if not right:
            raise BadInput(f"the setting's {name} cannot be {value!r}")
    setting = ConvSetting(**values)
    if (
        setting.first not in FIRST_SCALE
        or setting.escape not in range(len(ESCAPES))
        or setting.blend not in range(len(BLENDS))
    ):
        raise BadInput(
            "the setting names a noise scale, an escape probability or a share of norms off its "
            "grid"
        )
    if variant != "sparse" and setting.blend != ConvSetting.blend:
        # It plays no part and costs nothing there, but another one would draw other noise.
        raise BadInput("a setting without the use of inactive units has no share of norms to name")
    return setting


def conv_evaluator(
    chain: ConvChain,
    prior: ConvChain,
    *,
    variant: str,
    choices: int = 1,
    device: torch.device | str = "cpu",
) -> ConvEvaluator:
    """The theorem for this network and prior, with every constant measured."""
    chain.check_same_shape(prior)
    # Norms of pooling use derivatives.
    with torch.enable_grad():
        return ConvEvaluator(
            chain.to(device), prior.to(device), sparse=variant == "sparse", choices=choices
        )


def recount_conv(
    evaluator: ConvEvaluator,
    prior: ConvChain,
    setting: ConvSetting,
    examples: Examples,
    *,
    passes: int,
    seed: int,
    progress: Progress | None = None,
) -> Recount:
    """Count the losses of a frozen setting with the noise that ``seed`` draws."""
    chain = evaluator.chain
    known = reference(prior).to(chain.stages[0].layer.weight.device)
    reporter = Reporter(progress, "counting again")
    errors, close, done = 0, 0, 0
    with torch.no_grad():
        inputs = read_inputs(chain, known, examples)
        trials = passes * len(inputs)
        for part, noisy in fresh_passes(chain, inputs, setting.sigmas, passes=passes, seed=seed):
            losses, near = evaluator.counted(setting, part, noisy, within=CLOSE)
            errors += int(losses.sum())
            close += int(near.sum())
            done += len(part)
            reporter.report(done, trials, f"{done:,} noisy networks")
    return Recount(errors, done, close)
