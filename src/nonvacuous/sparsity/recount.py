"""A certificate that was made earlier, gone through again: its setting, charges, noise and losses.

Everything here starts from what a record holds (a frozen setting and a seed) and from the two
networks; nothing is searched. Whoever writes certificates and whoever checks them call this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import conv_search, conv_setting
from nonvacuous.sparsity.certify import check_covered, linear_evaluator
from nonvacuous.sparsity.constants import reference
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_search import CONV_THEOREM, ConvEvaluator
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting
from nonvacuous.sparsity.judging import InputsT, Judge, PassT, Priced
from nonvacuous.sparsity.judging import SettingT as NoisySettingT
from nonvacuous.sparsity.noise import read_inputs
from nonvacuous.sparsity.search import Evaluator
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, THEOREMS, Setting
from nonvacuous.sparsity.theorem_a import UniformEvaluator, UniformSetting
from nonvacuous.sparsity.theorem_e import TAILS
from nonvacuous.sparsity.theorem_f import SIZES
from nonvacuous.sparsity.weights import Layers

#: A network as its theorems read it, the theorems for it, and what they choose.
Network = Layers | ConvChain
AnyEvaluator = Priced[Any]
AnySetting = Setting | UniformSetting | ConvSetting
SettingT = TypeVar("SettingT", Setting, UniformSetting, ConvSetting)


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


def frozen_setting(
    theorem: str, variant: str, record: Mapping[str, Any]
) -> Setting | UniformSetting:
    """The setting that a record names; positions outside the grids are refused."""
    if theorem not in THEOREMS:
        raise BadInput(f"there is no Theorem {theorem!r}; there are {', '.join(THEOREMS)}")
    tails = {"D": (None,), "E": TAILS, "F": (SIZES,)}.get(theorem, ())
    setting: Setting | UniformSetting
    if theorem == "A":
        setting = _read(UniformSetting, f"of Theorem {theorem}", record, tails)
    else:
        setting = _read(Setting, f"of Theorem {theorem}", record, tails)
    _check_free(theorem, variant, setting)
    return setting


def frozen_conv_setting(theorem: str, variant: str, record: Mapping[str, Any]) -> ConvSetting:
    """The setting that a record names; positions outside the grids are refused."""
    if theorem != CONV_THEOREM:
        raise BadInput(
            f"theorem {theorem!r} does not cover convolutions; a convolutional network is "
            f"certified by theorem {CONV_THEOREM}"
        )
    setting = _read(ConvSetting, "for convolutions", record, TAILS)
    if setting.blend not in range(len(BLENDS)):
        raise BadInput("the setting names a share of norms off its grid")
    if variant != "sparse" and setting.blend != ConvSetting.blend:
        # It plays no part and costs nothing there, but another one would draw other noise.
        raise BadInput("a setting without the use of inactive units has no share of norms to name")
    return setting


def _read(
    kind: type[SettingT], what: str, record: Mapping[str, Any], tails: Sequence[str | None]
) -> SettingT:
    """A setting whose positions are whole numbers: a record from a file may hold anything."""
    names = {entry.name for entry in fields(kind)}
    if set(record) != names:
        odd = sorted(set(record) ^ names)
        raise BadInput(f"a setting {what} has {sorted(names)}; see {odd}")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
    for name, value in values.items():
        if name in ("steps", "inactive"):
            right = isinstance(value, tuple) and all(type(entry) is int for entry in value)
        elif name == "tail":
            right = value in tails
        elif name in ("anchored", "named"):
            right = isinstance(value, bool)
        else:
            right = type(value) is int
        if not right:
            raise BadInput(f"the setting's {name} cannot be {value!r}")
    setting = kind(**values)
    if setting.first not in FIRST_SCALE or setting.escape not in range(len(ESCAPES)):
        raise BadInput("the setting names a noise scale or an escape probability off its grid")
    return setting


def _check_free(theorem: str, variant: str, setting: Setting | UniformSetting) -> None:
    """A choice that costs nothing must be none: it would draw other noise, or ask for less."""
    if isinstance(setting, UniformSetting):
        if min(setting.inactive, default=0) < 0:
            raise BadInput("the setting asks for less than no inactive unit")
        if variant != "sparse" and any(setting.inactive):
            raise BadInput("a setting without the use of inactive units asks for some")
        return
    if theorem == "D" and setting.factor:
        raise BadInput("Theorem D has no tail, and the setting names a factor of it")
    if setting.anchored and (theorem == "D" or variant != "sparse"):
        raise BadInput(
            f"Theorem {theorem}, {variant}, has no mean shifts that meet the prior's weights"
        )


def final_seed(seed: int, network_digest: str, setting: AnySetting) -> int:
    """The seed of the final noise: it does not exist before network and setting do."""
    return derived_seed(seed, "final", network_digest, setting)


def evaluator_of(
    layers: Network,
    prior: Network,
    *,
    theorem: str,
    variant: str,
    choices: int = 1,
    device: torch.device | str = "cpu",
) -> AnyEvaluator:
    """The theorem for this network and prior, ready to judge a setting."""
    sparse = variant == "sparse"
    if not isinstance(layers, ConvChain) and not isinstance(prior, ConvChain):
        return linear_evaluator(
            layers, prior, theorem=theorem, sparse=sparse, choices=choices, device=device
        )
    chain, center = check_covered(layers, prior, theorem=theorem, gauge="given")
    chain.check_same_shape(center)
    # Norms of pooling use derivatives.
    with torch.enable_grad():
        return ConvEvaluator(chain.to(device), center.to(device), sparse=sparse, choices=choices)


def recount(
    evaluator: AnyEvaluator,
    prior: Network,
    setting: AnySetting,
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
    if isinstance(evaluator, ConvEvaluator):
        assert isinstance(prior, ConvChain) and isinstance(setting, ConvSetting)
        chain = evaluator.chain
        known = conv_setting.reference(prior).to(chain.stages[0].layer.weight.device)
        with torch.no_grad():
            images = conv_search.read_inputs(chain, known, examples)
            return _counted(evaluator, setting, images, passes, seed, progress, every_class=True)
    assert isinstance(prior, Layers) and isinstance(evaluator, Evaluator | UniformEvaluator)
    where = evaluator.on_device.weights[0].device
    inputs = read_inputs(evaluator.layers.to(where), reference(prior).to(where), examples)
    if isinstance(evaluator, UniformEvaluator):
        assert isinstance(setting, UniformSetting)
        failed, level, margin = evaluator.judged(setting, inputs)
        return Recount(int(failed.sum()), len(inputs), _close(level, margin))
    assert isinstance(setting, Setting)
    return _counted(evaluator, setting, inputs, passes, seed, progress)


def _counted(
    evaluator: Judge[NoisySettingT, InputsT, PassT],
    setting: NoisySettingT,
    inputs: InputsT,
    passes: int,
    seed: int,
    progress: Progress | None,
    *,
    every_class: bool = False,
) -> Recount:
    trials, errors, close, done = passes * len(inputs), 0, 0, 0
    reporter = Reporter(progress, "counting again")
    for part, noisy in evaluator.fresh_passes(setting, inputs, passes=passes, seed=seed):
        if every_class:
            losses, near = evaluator.counted(setting, part, noisy, within=CLOSE)
            close += int(near.sum())
        else:
            losses, level, margin = evaluator.judged(setting, part, noisy)
            close += _close(level, margin)
        errors += int(losses.sum())
        done += len(part)
        reporter.report(done, trials, f"{done:,} noisy networks")
    return Recount(errors, done, close)


def _close(level: torch.Tensor, margin: torch.Tensor) -> int:
    """Trials that hang on rounding; at infinity none does, though infinity is at most infinity."""
    size = level.abs() + margin.abs()
    near = (margin - level).abs() <= CLOSE * size
    return int((near & level.isfinite() & margin.isfinite()).sum())
