"""``nv.sparsity.study``: how sparse a network's activations are, how firmly, and what it buys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import checks
from nonvacuous.bounds.holdout import holdout
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.progress import Progress
from nonvacuous.sparsity.certify import certify_sparse
from nonvacuous.sparsity.comparisons import PlainChain, norm_bounds
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_norms import unrolled_layers
from nonvacuous.sparsity.conv_reading import read_faithfully
from nonvacuous.sparsity.findings import (
    SHARES,
    HeldOut,
    LayerRadii,
    NormBound,
    Shown,
    SparsityStudy,
)
from nonvacuous.sparsity.measuring import (
    Measured,
    activity,
    at_epsilon,
    has_bias,
    measure,
    measure_conv,
    measure_radii,
    quantiles,
)
from nonvacuous.sparsity.noise import check_examples
from nonvacuous.sparsity.radii import LEVEL, LocalScales, local_scales
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
    check_examples(sample, network)
    base = None if prior is None else _network(prior, sample)
    if isinstance(network, Layers):
        network.check_alive()
    network.check_active(sample.inputs)
    if base is not None:
        network.check_same_shape(base)
    given = (sample.inputs, sample.labels.cpu())
    asked: dict[str, Any] = {"epsilons": sizes, "level": LEVEL, "progress": progress}
    radii: tuple[Tensor, ...] = ()
    if isinstance(network, Layers):
        measured = measure(PlainChain.of(network), *given, **asked)
        own, radii = _of_layers(network, base, measured, sample, input_norm, failure, progress)
    else:
        assert isinstance(network, ConvChain)
        measured = measure_conv(network, *given, **asked)
        own = _of_convolutions(network, base, measured, input_norm, failure)
    names = network.names[:-1]
    middle = measured.choices[len(measured.choices) // 2]
    picked = torch.from_numpy(
        np.linspace(0, len(sample) - 1, min(_SHOWN, len(sample))).round().astype(np.int64)
    )
    return SparsityStudy(
        data=sample.name,
        examples=len(sample),
        errors=measured.errors,
        seen_norm=input_norm is None,
        level=LEVEL,
        failure=failure,
        seed=seed,
        activity=activity(names, measured),
        epsilons=tuple(at_epsilon(names, choice) for choice in measured.choices),
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
        **own,
    )


def _of_layers(
    layers: Layers,
    base: Network | None,
    measured: Measured,
    sample: Examples,
    input_norm: float | None,
    failure: float,
    progress: Progress | None,
) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    chain = PlainChain.of(layers)
    longest = _longest(measured.norms, chain.constant, input_norm)
    scales = _asked(chain, measured, longest)
    radii = measure_radii(chain, sample.inputs, scales, progress=progress)
    return {
        "sizes": (layers.inputs, *layers.widths, layers.classes),
        "biases": chain.constant,
        "input_norm": longest,
        "norm_bounds": norm_bounds(
            chain,
            PlainChain.of(base) if isinstance(base, Layers) else None,
            margins=measured.margins,
            input_norms=measured.norms,
            input_norm=longest,
            failure=failure,
        ),
        "radii": tuple(
            LayerRadii(
                name=name,
                sparsity=len(chain.weights[k]) - scales.active[k + 1],
                zero=float((radii[k] == 0).double().mean()),
                radius=quantiles(radii[k]),
                row=scales.row[k],
                joint=scales.joint[k],
                way=scales.ways[k],
                reach=scales.reach[k],
            )
            for k, name in enumerate(layers.names[:-1])
        ),
    }, radii


def _of_convolutions(
    chain: ConvChain,
    base: Network | None,
    measured: Measured,
    input_norm: float | None,
    failure: float,
) -> dict[str, Any]:
    longest = _longest(measured.norms, False, input_norm)
    bounds: tuple[NormBound, ...] = ()
    try:
        plain = PlainChain.of(unrolled_layers(chain))
        reference = PlainChain.of(unrolled_layers(base)) if isinstance(base, ConvChain) else None
    except NotYetSupported as error:
        note = f"No bounds from norms: {error}."
    else:
        note = "The bounds from norms see the convolutions written out as matrices."
        constant = float(plain.constant)
        bounds = norm_bounds(
            plain,
            reference,
            margins=measured.margins,
            input_norms=measured.norms.square().add(constant).sqrt(),
            input_norm=math.hypot(longest, constant),
            failure=failure,
        )
    hidden = (stage.units for stage in chain.stages[:-1])
    return {
        "sizes": (chain.inputs, *hidden, chain.classes),
        "biases": any(has_bias(stage) for stage in chain.stages),
        "input_norm": longest,
        "norm_bounds": bounds,
        "radii": (),
        "notes": (_NOT_DEFINED, note),
    }


def _network(model: nn.Module | Network, examples: Examples) -> Network:
    if isinstance(model, Network):
        return model
    if not isinstance(model, nn.Module):
        raise BadInput(
            "the model must be a torch.nn.Module, Layers or a ConvChain, not a "
            f"{type(model).__name__}."
        )
    return read_faithfully(model, examples)


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


def _asked(chain: PlainChain, measured: Measured, longest: float) -> LocalScales:
    """The constants where as many units may be active as are so on most examples."""
    active = [
        max(1, int(np.quantile(layer.numpy(), SHARES[-1], method="higher"))) + int(chain.constant)
        for layer in measured.active
    ]
    cost = max(len(w) ** 2 * w.shape[1] for w in chain.weights[:-1])
    return local_scales(chain.weights, active=active, input_norm=longest, babel=cost <= _BABEL)


def _held_out(
    network: Network, base: Network | None, sample: Examples, held_out: Any, failure: float
) -> tuple[HeldOut, ...]:
    tests = []
    if held_out is not None:
        tests.append(("the network on held-out examples", network, Examples.of(held_out)))
    if base is not None and any(bool((w != 0).any()) for w in base.weights):
        tests.append(("the prior itself on the same examples", base, sample))
    results = []
    for what, tested, examples in tests:
        errors = tested.errors(examples)
        risk = holdout(errors=errors, examples=len(examples), failure=failure)
        results.append(HeldOut(what, errors, len(examples), risk))
    return tuple(results)


def _settings(network: Network, theorem: Theorem, failure: float) -> list[SparseSettings]:
    """Of the certificate with sparsity, and of the one without."""
    # Theorem A draws no noise, and spends nothing on an estimate.
    own = failure if theorem == "A" else (1.0 - _SAMPLING_SHARE) * failure
    share = _SAMPLING_SHARE * failure
    settings = SparseSettings(theorem=theorem, confidence=1.0 - own, sampling_failure=share)
    if isinstance(network, ConvChain):
        settings = replace(settings, subset=_SUBSET, passes=_PASSES)
    return [settings, replace(settings, variant="dense")]
