"""A certificate that was made earlier, gone through again: its setting, charges, noise and losses.

Everything here starts from what a record holds (a frozen setting and a seed) and from the two
networks; nothing is searched. Whoever writes certificates and whoever checks them call this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.certificate import THEOREMS
from nonvacuous.sparsity.constants import Charge, reference
from nonvacuous.sparsity.evaluation import Evaluator
from nonvacuous.sparsity.noise import clean_pass, fresh_passes, read_inputs
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, Setting
from nonvacuous.sparsity.theorem_a import UniformEvaluator, UniformSetting
from nonvacuous.sparsity.theorem_e import TAILS
from nonvacuous.sparsity.theorem_f import SIZES
from nonvacuous.sparsity.weights import Layers
from nonvacuous.training.progress import Progress, Reporter

#: A margin within this of its threshold, relative, may fall to the other side on another machine.
_CLOSE = 1e-6


@dataclass(frozen=True)
class Recount:
    """Losses counted again; ``close`` of the trials hang on rounding."""

    errors: int
    trials: int
    close: int

    def agrees_with(self, *, errors: int, trials: int) -> bool:
        """The same counts, but for trials that another processor may round to the other side."""
        return trials == self.trials and abs(errors - self.errors) <= self.close


def frozen_setting(theorem: str, record: Mapping[str, Any]) -> Setting | UniformSetting:
    """The setting that a record names; positions outside the grids are refused."""
    if theorem not in THEOREMS:
        raise BadInput(f"there is no Theorem {theorem!r}; there are {', '.join(THEOREMS)}")
    kind = UniformSetting if theorem == "A" else Setting
    names = {entry.name for entry in fields(kind)}
    if set(record) != names:
        odd = sorted(set(record) ^ names)
        raise BadInput(f"a setting of Theorem {theorem} has {sorted(names)}; see {odd}")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
    _check_types(theorem, values)
    setting = kind(**values)
    if setting.first not in FIRST_SCALE or setting.escape not in range(len(ESCAPES)):
        raise BadInput("the setting names a noise scale or an escape probability off its grid")
    return setting


def final_seed(seed: int, network_digest: str, setting: Setting | UniformSetting) -> int:
    """The seed of the final noise: it does not exist before network and setting do."""
    return derived_seed(seed, "final", network_digest, setting)


def evaluator_of(
    layers: Layers,
    prior: Layers,
    *,
    theorem: str,
    variant: str,
    choices: int = 1,
    device: torch.device | str = "cpu",
) -> Evaluator | UniformEvaluator:
    """The theorem for this network and prior, ready to judge a setting."""
    sparse = variant == "sparse"
    if theorem == "A":
        return UniformEvaluator(layers, prior, sparse=sparse, choices=choices, device=device)
    return Evaluator(layers, prior, theorem=theorem, sparse=sparse, choices=choices, device=device)


def charges_of(
    evaluator: Evaluator | UniformEvaluator, setting: Setting | UniformSetting
) -> tuple[Charge, ...]:
    """Every choice inside the loss with its price, from the network and the prior themselves.

    Measuring the constants and rounding them up on their grids is part of this, and so is the
    refusal of one that is below the network's.
    """
    if isinstance(evaluator, UniformEvaluator):
        assert isinstance(setting, UniformSetting)
        return evaluator.charges(setting)
    assert isinstance(setting, Setting)
    return evaluator.charges(setting)


def scales_of(
    evaluator: Evaluator | UniformEvaluator, setting: Setting | UniformSetting
) -> tuple[float, ...]:
    """The noise scale of each layer."""
    if isinstance(evaluator, UniformEvaluator):
        assert isinstance(setting, UniformSetting)
        return evaluator.scales(setting)
    assert isinstance(setting, Setting)
    return setting.sigmas


def recount(
    evaluator: Evaluator | UniformEvaluator,
    prior: Layers,
    setting: Setting | UniformSetting,
    examples: Examples,
    *,
    passes: int,
    seed: int,
    progress: Progress | None = None,
) -> Recount:
    """Count the losses of a frozen setting with the noise that ``seed`` draws.

    ``seed`` is that of the noise itself (:func:`final_seed`), so that another one gives fresh
    trials. Theorem A draws no noise: every example is looked at once.
    """
    place = evaluator.placed.weights[0].device
    inputs = read_inputs(evaluator.layers.to(place), reference(prior).to(place), examples)
    if isinstance(evaluator, UniformEvaluator):
        assert isinstance(setting, UniformSetting)
        before, scores = clean_pass(evaluator.placed, inputs)
        failed, level, margin = evaluator.judged(setting, inputs, before, scores)
        return Recount(int(failed.sum()), len(inputs), _close(level, margin))
    assert isinstance(setting, Setting)
    trials, errors, close, done = passes * len(inputs), 0, 0, 0
    reporter = Reporter(progress, "counting again")
    for part, noisy in fresh_passes(
        evaluator.placed, inputs, setting.sigmas, passes=passes, seed=seed
    ):
        losses, level, margin = evaluator.judged(setting, part, noisy)
        errors += int(losses.sum())
        close += _close(level, margin)
        done += len(part)
        reporter.report(done, trials, f"{done:,} noisy networks")
    return Recount(errors, done, close)


def _close(level: torch.Tensor, margin: torch.Tensor) -> int:
    size = level.abs() + margin.abs()
    return int(((margin - level).abs() <= _CLOSE * size).sum())


def _check_types(theorem: str, values: Mapping[str, Any]) -> None:
    """Positions are whole numbers: a record from a file may hold anything."""
    lists = ("steps", "inactive")
    words = ("tail",)
    switches = ("anchored", "named")
    for name, value in values.items():
        if name in lists:
            right = isinstance(value, tuple) and all(type(entry) is int for entry in value)
        elif name in words:
            allowed = {"D": (None,), "E": TAILS, "F": (SIZES,)}[theorem]
            right = value in allowed
        elif name in switches:
            right = isinstance(value, bool)
        else:
            right = type(value) is int
        if not right:
            raise BadInput(f"the setting's {name} cannot be {value!r}")
