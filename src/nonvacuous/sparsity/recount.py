"""A certificate that was made earlier, gone through again: its setting, charges, noise and losses.

Everything here starts from what a record holds (a frozen setting and a seed) and from the two
networks; nothing is searched. Whoever writes certificates and whoever checks them call this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.sparsity.certificate import Count, count_losses, final_seed
from nonvacuous.sparsity.certify import evaluator_of, read_inputs
from nonvacuous.sparsity.conv_search import CONV_THEOREM
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting
from nonvacuous.sparsity.judging import Judge, Network
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, THEOREMS, Setting
from nonvacuous.sparsity.theorem_a import UniformSetting
from nonvacuous.sparsity.theorem_e import TAILS
from nonvacuous.sparsity.theorem_f import SIZES

__all__ = [
    "AnyEvaluator",
    "AnySetting",
    "Network",
    "evaluator_of",
    "final_seed",
    "frozen_conv_setting",
    "frozen_setting",
    "recount",
]

#: The theorems, and what they choose.
AnyEvaluator = Judge[Any, Any, Any]
AnySetting = Setting | UniformSetting | ConvSetting
SettingT = TypeVar("SettingT", Setting, UniformSetting, ConvSetting)


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


def recount(
    evaluator: AnyEvaluator,
    prior: Network,
    setting: AnySetting,
    examples: Examples,
    *,
    passes: int,
    seed: int,
    progress: Progress | None = None,
) -> Count:
    """Count the losses of a frozen setting with the noise that ``seed`` draws.

    ``seed`` is that of the noise itself (:func:`final_seed`), so that another one gives fresh
    trials. Theorem A draws no noise: every example is looked at once.
    """
    with torch.no_grad():
        inputs = read_inputs(evaluator.network, prior, examples, evaluator.device)
        return count_losses(
            evaluator,
            setting,
            inputs,
            passes=passes,
            seed=seed,
            phase="counting again",
            progress=progress,
        )
