"""A certificate for one fixed network: search, freeze, fresh noise, one number.

And one that was made earlier, gone through again from what its record holds, a frozen setting and a
seed: nothing is searched then. Whoever writes certificates and whoever checks them call this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.sparsity import conv_search, noise
from nonvacuous.sparsity.certificate import (
    Count,
    SparsityCertificate,
    count_losses,
    final_estimate,
)
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.conv_search import CONV_THEOREM, ConvEvaluator
from nonvacuous.sparsity.gauge import gauged
from nonvacuous.sparsity.judging import Judge
from nonvacuous.sparsity.search import Evaluator
from nonvacuous.sparsity.setting import (
    BLENDS,
    ESCAPES,
    FIRST_SCALE,
    SIZES,
    TAILS,
    THEOREMS,
    ConvSetting,
    Setting,
    SparseSettings,
)
from nonvacuous.sparsity.theorem_a import UniformEvaluator, UniformSetting
from nonvacuous.sparsity.weights import Layers, Network

#: The theorems, and what they choose.
AnyEvaluator = Judge[Any, Any, Any]
AnySetting = Setting | UniformSetting | ConvSetting


def certify_sparse(
    network: nn.Module | Network,
    prior: nn.Module | Network,
    examples: Examples,
    settings: SparseSettings | None = None,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> SparsityCertificate:
    """Certify the fixed ``network`` with examples that ``prior`` has not seen.

    Covered are chains of linear layers and convolutions with ReLU between them, a convolution
    followed by at most one max or average pooling; every other layer is refused by name. With
    convolutions the theorem is E (docs/theory/sparsity.md, 10) and the gauge the given one.

    device   where noise is drawn and losses are counted, in float64; without it, where the examples
             lie. Constants of the network are measured on the processor. Each kind of device has
             random numbers of its own: the same seed gives another certificate there, which is as
             valid
    """
    chosen = settings or SparseSettings()
    where = examples.inputs.device if device is None else torch.device(device)
    layers, center = (
        read_network(one, examples.inputs[:2]) if isinstance(one, nn.Module) else one
        for one in (network, prior)
    )
    check_covered(layers, center, theorem=chosen.theorem, gauge=chosen.gauge)
    if isinstance(layers, Layers) and isinstance(center, Layers):
        layers.check_alive()
        layers, center = gauged(layers, center, chosen.gauge)
    with torch.no_grad():
        inputs = read_inputs(layers, center, examples, where)
    judge = evaluator_of(
        layers,
        center,
        theorem=chosen.theorem,
        variant=chosen.variant,
        choices=chosen.choices,
        device=where,
        block=chosen.block,
    )
    with torch.no_grad():
        setting = judge.search(inputs, chosen, seed=seed, progress=progress)
        certificate = final_estimate(judge, setting, inputs, chosen, seed=seed, progress=progress)
    if chosen.gauge == "given":
        return certificate
    return replace(certificate, details={**certificate.details, "gauge": chosen.gauge})


def read_inputs(
    network: Network, prior: Network, examples: Examples, device: torch.device | str
) -> Any:
    """What the theorems for such a network need of the examples, on the device."""
    read: Any = conv_search if isinstance(network, ConvChain) else noise
    return read.read_inputs(network.to(device), prior.to(device), examples)


def evaluator_of(
    layers: Network,
    prior: Network,
    *,
    theorem: str,
    variant: str,
    choices: int = 1,
    device: torch.device | str = "cpu",
    block: int = 1,
) -> AnyEvaluator:
    """The theorem for this network and prior, ready to judge a setting."""
    check_covered(layers, prior, theorem=theorem, gauge="given")
    same: dict[str, Any] = {"sparse": variant == "sparse", "choices": choices}
    if isinstance(layers, ConvChain) and isinstance(prior, ConvChain):
        # Norms of pooling use derivatives.
        with torch.enable_grad():
            return ConvEvaluator(layers.to(device), prior.to(device), **same)
    assert isinstance(layers, Layers) and isinstance(prior, Layers)
    if theorem == "A":
        return UniformEvaluator(layers, prior, device=device, block=block, **same)
    return Evaluator(layers, prior, theorem=theorem, device=device, **same)


def check_covered(network: Network, prior: Network, *, theorem: str, gauge: str) -> None:
    """Refuse what no theorem is about."""
    network.check_same_shape(prior)
    if isinstance(network, ConvChain) and theorem != CONV_THEOREM:
        raise BadInput(
            f"theorem {theorem} covers linear layers only; a convolutional network is certified "
            f'by theorem "{CONV_THEOREM}"'
        )
    if isinstance(network, ConvChain) and gauge != "given":
        raise BadInput(
            f"gauge {gauge!r} is there for linear layers only; a convolutional network is "
            'certified with the weights it has: gauge="given"'
        )


# A certificate that was made earlier: its setting, and its losses counted again.


def frozen_setting(
    theorem: str, variant: str, record: Mapping[str, Any], *, convolutional: bool = False
) -> AnySetting:
    """The setting that a record names; positions outside the grids are refused."""
    if theorem not in THEOREMS:
        raise BadInput(f"there is no Theorem {theorem!r}; there are {', '.join(THEOREMS)}")
    if convolutional and theorem != CONV_THEOREM:
        raise BadInput(
            f"theorem {theorem!r} does not cover convolutions; a convolutional network is "
            f"certified by theorem {CONV_THEOREM}"
        )
    kind: Any = Setting if theorem != "A" else UniformSetting
    if convolutional:
        kind = ConvSetting
    names = {entry.name for entry in fields(kind)}
    if set(record) != names:
        odd = sorted(set(record) ^ names)
        raise BadInput(f"a setting of Theorem {theorem} has {sorted(names)}; see {odd}")
    try:
        # A record from a file may hold anything: positions are whole numbers, and no fractions.
        setting: AnySetting = TypeAdapter(kind).validate_json(json.dumps(dict(record)), strict=True)
    except (TypeError, ValidationError) as error:
        raise BadInput(f"the setting cannot be read: {error}") from error
    if setting.first not in FIRST_SCALE or setting.escape not in range(len(ESCAPES)):
        raise BadInput("the setting names a noise scale or an escape probability off its grid")
    _check_free(theorem, variant, setting)
    return setting


def _check_free(theorem: str, variant: str, setting: AnySetting) -> None:
    """A choice that costs nothing must be none: it would draw other noise, or ask for less."""
    if isinstance(setting, UniformSetting):
        if min(setting.inactive, default=0) < 0:
            raise BadInput("the setting asks for less than no inactive unit")
        if variant != "sparse" and any(setting.inactive):
            raise BadInput("a setting without the use of inactive units asks for some")
        return
    if setting.tail not in {"D": (None,), "E": TAILS, "F": (SIZES,)}[theorem]:
        raise BadInput(f"the setting's tail cannot be {setting.tail!r}")
    if isinstance(setting, ConvSetting):
        if setting.blend not in range(len(BLENDS)):
            raise BadInput("the setting names a share of norms off its grid")
        if variant != "sparse" and setting.blend != ConvSetting.blend:
            raise BadInput(
                "a setting without the use of inactive units has no share of norms to name"
            )
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

    ``seed`` is that of the noise itself (:func:`~nonvacuous.sparsity.certificate.final_seed`), so
    that another one gives fresh trials. Theorem A draws no noise: every example is looked at once.
    """
    phase = "counting again"
    with torch.no_grad():
        inputs = read_inputs(evaluator.network, prior, examples, evaluator.device)
        return count_losses(
            evaluator, setting, inputs, passes=passes, seed=seed, phase=phase, progress=progress
        )
