"""``nv.sparsity.study``: how sparse a network's activations are, how firmly, and what it buys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import checks, norms
from nonvacuous.bounds.holdout import holdout
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.progress import Progress
from nonvacuous.sparsity import conv_norms, conv_reading, findings, measuring, noise
from nonvacuous.sparsity.certify import certify_sparse
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.findings import HeldOut, LayerRadii, NormBound, Shown, SparsityStudy
from nonvacuous.sparsity.measuring import Measured
from nonvacuous.sparsity.norms import frobenius_norm, row_norm, spectral_norm
from nonvacuous.sparsity.radii import LEVEL, LocalScales, PlainChain, local_scales
from nonvacuous.sparsity.setting import SparseSettings, Theorem
from nonvacuous.sparsity.weights import Layers, Network

EPSILONS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
#: Examples whose values are kept for the pictures.
_SHOWN = 2000
#: With convolutions every noisy pass draws kernels for every example: fewer of them there.
_SUBSET, _PASSES = 400, 1
#: What the Monte-Carlo estimate gets of the failure probability, which covers it too.
_SAMPLING_SHARE = 0.2
_NOT_DEFINED = (
    "Sparse local radii and the activity ratio are not defined for convolutions: they count the "
    "weights between active units, and a kernel is shared by all positions. Which units surely "
    "keep their sign is counted instead, when every kernel moves by at most epsilon times the "
    "longest one and every layer by at most epsilon times its norm."
)
#: Products of the babel function beyond which it is not worth its time.
_BABEL = 2 * 10**8


def study(
    model: nn.Module | Network,
    examples: Any,
    *,
    epsilons: Sequence[float] = EPSILONS,
    prior: nn.Module | Network | None = None,
    held_out: Any = None,
    input_norm: float | None = None,
    confidence: float = 0.95,
    theorem: Theorem = "E",
    seed: int = 0,
    progress: Progress | None = None,
) -> SparsityStudy:
    """Measure the sparsity of a plain ReLU network on examples, and certify it if a prior is given.

    model        linear layers or convolutions with ReLU between them, biases or not, pooling after
                 the ReLU; not changed. Where a number has no meaning for convolutions, the study
                 says so in its ``notes``
    examples     those the bounds are about; they may have trained the model, not the prior
    epsilons     how far every layer may move, relative to its norms. A unit counts that is three
                 times the theorem's radius away from zero, as the published bound asks for
    prior        a network of the same shape that was chosen without these examples: then every
                 term of the sparsity certificate is computed too, with sparsity and without
    held_out     examples that trained neither, for the plain test beside the bounds
    input_norm   how long any input can be; by default the longest one seen, which the bounds from
                 norms then take for granted
    confidence   of each bound on its own
    theorem      which certificate, "A", "D", "E" or "F" ("E" for convolutions)
    seed         decides the noise of the certificate; nothing else here is random
    """
    sample = Examples.of(examples)
    failure = checks.failure_of(confidence)
    sizes = sorted(checks.grid_of("epsilons", epsilons))
    network = _network(model, sample)
    noise.check_examples(sample, network)
    base = None if prior is None else _network(prior, sample)
    if isinstance(network, Layers):
        network.check_alive()
    network.check_active(sample.inputs)
    if base is not None:
        network.check_same_shape(base)
    convolutional = isinstance(network, ConvChain)
    looking: Any = measuring.measure_conv if convolutional else measuring.measure
    asked: dict[str, Any] = {"epsilons": sizes, "level": LEVEL, "progress": progress}
    measured: Measured = looking(network, sample.inputs, sample.labels.cpu(), **asked)
    longest = _longest(measured.norms, network.biased and not convolutional, input_norm)
    compared, note = _from_norms(network, base, measured, longest, failure)
    scales, radii = _radii(network, measured, longest, sample, progress)
    names = network.names[:-1]
    middle = measured.choices[len(measured.choices) // 2]
    picked = torch.from_numpy(
        np.linspace(0, len(sample) - 1, min(_SHOWN, len(sample))).round().astype(np.int64)
    )
    return SparsityStudy(
        data=sample.name,
        examples=len(sample),
        errors=measured.errors,
        sizes=(network.inputs, *map(len, measured.lit), network.classes),
        biases=network.biased,
        input_norm=longest,
        seen_norm=input_norm is None,
        level=LEVEL,
        failure=failure,
        seed=seed,
        activity=measuring.activity(names, measured),
        radii=tuple(
            LayerRadii(
                name=name,
                sparsity=len(measured.lit[k]) + int(network.biased) - scales.active[k + 1],
                zero=float((radii[k] == 0).double().mean()),
                radius=measuring.quantiles(radii[k]),
                row=scales.row[k],
                joint=scales.joint[k],
                way=scales.ways[k],
                reach=scales.reach[k],
            )
            for k, name in enumerate(names)
            if scales is not None
        ),
        epsilons=tuple(measuring.at_epsilon(names, choice) for choice in measured.choices),
        norm_bounds=compared,
        held_out=_held_out(network, base, sample, held_out, failure),
        certificates=tuple(
            certify_sparse(network, base, sample, each, seed=seed, progress=progress)
            for each in _settings(network, theorem, failure)
            if base is not None
        ),
        shown=Shown(
            radii=tuple(tuple(layer[picked].tolist()) for layer in radii),
            sparsity=tuple(tuple(layer[picked].tolist()) for layer in middle.sparsity),
            epsilon=middle.epsilon,
        ),
        notes=(_NOT_DEFINED, note) if convolutional else (),
    )


def _from_norms(
    network: Network, base: Network | None, measured: Measured, longest: float, failure: float
) -> tuple[tuple[NormBound, ...], str]:
    """The bounds from norms, and what has to be said of them where there are convolutions."""
    try:
        plain = conv_norms.unrolled_layers(network)
        reference = None if base is None else conv_norms.unrolled_layers(base)
    except NotYetSupported as error:
        return (), f"No bounds from norms: {error}."
    # What was measured of images leaves the constant out.
    missing = float(plain.biased and isinstance(network, ConvChain))
    bounds = norm_bounds(
        plain,
        reference,
        margins=measured.margins,
        input_norms=measured.norms.square().add(missing).sqrt(),
        input_norm=math.hypot(longest, missing),
        failure=failure,
    )
    return bounds, "The bounds from norms see the convolutions written out as matrices."


def _radii(
    network: Network,
    measured: Measured,
    longest: float,
    sample: Examples,
    progress: Progress | None,
) -> tuple[LocalScales | None, tuple[Tensor, ...]]:
    """The constants where as many units may be active as are so on most examples, and the radii."""
    if not isinstance(network, Layers):
        return None, ()
    chain = PlainChain.of(network)
    active = [
        max(1, int(np.quantile(layer.numpy(), findings.SHARES[-1], method="higher")))
        + int(chain.constant)
        for layer in measured.active
    ]
    cost = max(len(w) ** 2 * w.shape[1] for w in chain.weights[:-1])
    scales = local_scales(chain.weights, active=active, input_norm=longest, babel=cost <= _BABEL)
    return scales, measuring.measure_radii(chain, sample.inputs, scales, progress=progress)


def _network(model: nn.Module | Network, examples: Examples) -> Network:
    if isinstance(model, Network):
        return model
    if not isinstance(model, nn.Module):
        raise BadInput(
            "the model must be a torch.nn.Module, Layers or a ConvChain, not a "
            f"{type(model).__name__}."
        )
    return conv_reading.read_faithfully(model, examples)


def _longest(norms: Tensor, constant: bool, given: float | None) -> float:
    seen = float(norms.max())
    if seen == 0.0:
        raise BadInput("every input is zero; nothing can be said about activations.")
    if given is None:
        return seen
    limit = checks.positive("input_norm", given)
    if constant:
        limit = math.hypot(limit, 1.0)
    if seen > limit * (1 + 1e-9):
        raise BadInput(
            f"input_norm is {given:g}, but an input has the norm "
            f"{math.sqrt(seen**2 - float(constant)):g}; give a larger one, or scale the "
            "inputs."
        )
    return limit


def _held_out(
    network: Network, base: Network | None, sample: Examples, held_out: Any, failure: float
) -> tuple[HeldOut, ...]:
    tests = []
    if held_out is not None:
        tests.append(("the network on held-out examples", network, Examples.of(held_out)))
    if base is not None and any(bool((w != 0).any()) for w in base.weights):
        tests.append(("the prior itself on the same examples", base, sample))
    counts = [(what, each.errors(examples), len(examples)) for what, each, examples in tests]
    return tuple(
        HeldOut(what, errors, count, holdout(errors=errors, examples=count, failure=failure))
        for what, errors, count in counts
    )


def _settings(network: Network, theorem: Theorem, failure: float) -> list[SparseSettings]:
    """Of the certificate with sparsity, and of the one without."""
    # Theorem A draws no noise, and spends nothing on an estimate.
    own = failure if theorem == "A" else (1.0 - _SAMPLING_SHARE) * failure
    share = _SAMPLING_SHARE * failure
    settings = SparseSettings(theorem=theorem, confidence=1.0 - own, sampling_failure=share)
    if isinstance(network, ConvChain):
        settings = replace(settings, subset=_SUBSET, passes=_PASSES)
    return [settings, replace(settings, variant="dense")]


#: Norms below this are taken as this: the grid ends somewhere.
_SMALLEST = 2.0**-59


def norm_bounds(
    network: Layers,
    reference: Layers | None,
    *,
    margins: Tensor,
    input_norms: Tensor,
    input_norm: float,
    failure: float,
) -> tuple[NormBound, ...]:
    """Each bound at the grid margin that suits it best, the searches paid for.

    reference     weights chosen without these examples, from which Bartlett's bound measures the
                  distance; None for zero
    input_norm    how long an input can be
    """
    chain = PlainChain.of(network)
    weights, width = chain.weights, chain.widest
    layers = len(weights)
    exact = [spectral_norm(weight) for weight in weights]
    spectral = [_grid(value) for value in exact]
    whole = [frobenius_norm(w, rows=w.shape[0], columns=w.shape[1]) for w in weights]
    frobenius = [_grid(value) for value in whole[:-1]]
    frobenius.append(_grid(row_norm(weights[-1], columns=weights[-1].shape[1])))
    # Sums of the norms of the rows of each layer's difference from the reference.
    others: Sequence[Tensor] = [torch.zeros_like(w) for w in weights]
    if reference is not None and reference.biased == network.biased:
        others = PlainChain.of(reference).weights
    pairs = zip(weights, others, strict=True)
    sums = [_grid(float((w - other).norm(dim=1).sum()) * (1 + 1e-9)) for w, other in pairs]
    total = math.sqrt(float(input_norms.square().sum()) * (1 + 1e-9))

    gaps = {
        "Bartlett, Foster, Telgarsky 2017": partial(
            norms.bartlett_gap, inputs_norm=total, spectral_norms=spectral, row_sums=sums,
            width=width, failure=norms.grid_share(failure, numbers=2 * layers + 1),
        ),
        "Neyshabur, Bhojanapalli, Srebro 2018": partial(
            norms.neyshabur_gap, input_norm=input_norm, width=width, frobenius_norms=whole,
            spectral_norms=exact, failure=norms.grid_share(failure, numbers=1),
        ),
        "Golowich, Rakhlin, Shamir 2018": partial(
            norms.golowich_gap, input_norm=input_norm, frobenius_norms=frobenius,
            classes=len(weights[-1]), failure=norms.grid_share(failure, numbers=layers + 1),
        ),
    }  # fmt: skip
    return tuple(_best(name, gap, margins) for name, gap in gaps.items())


def _best(name: str, gap: Callable[..., float], margins: Tensor) -> NormBound:
    """The margin with the smallest sum of margin errors and gap, were it not cut at 1."""
    positive = margins[margins > 0]
    largest = float(positive.max()) if len(positive) else 1.0
    # From the largest margin that anything has, downward: above it everything is an error.
    highest = norms.grid_point(max(largest, 1e-12), downward=True)
    tried = [highest * 2.0 ** (-j / 4) for j in range(41)]
    # 2 ** (j / 4) again, so that the margins are the very points of the grid.
    points = sorted({norms.grid_point(value * (1 - 1e-9)) for value in tried})
    candidates, examples = [], len(margins)
    for margin in points:
        errors, value = int((margins <= margin).sum()), gap(margin=margin, examples=examples)
        risk = norms.margin_risk(margin_errors=errors, examples=examples, gap=value)
        candidates.append(NormBound(name, margin, errors, value, risk))
    return min(candidates, key=lambda bound: bound.margin_errors / examples + bound.gap)


def _grid(value: float) -> float:
    return norms.grid_point(max(value, _SMALLEST))
