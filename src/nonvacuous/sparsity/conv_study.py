"""The study of a convolutional network: what has a meaning there, and words for what has none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nonvacuous.bounds.holdout import holdout
from nonvacuous.data.examples import Examples
from nonvacuous.errors import NotYetSupported
from nonvacuous.progress import Progress
from nonvacuous.sparsity.certificate import Theorem, Variant, certify_sparse, divided
from nonvacuous.sparsity.comparisons import PlainChain, norm_bounds
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_norms import unrolled_layers
from nonvacuous.sparsity.findings import HeldOut, NormBound, Shown, SparsityStudy
from nonvacuous.sparsity.measuring import (
    Measured,
    activity,
    at_epsilon,
    check_alive,
    has_bias,
    measure_conv,
)

#: Every noisy pass draws kernels for every example: fewer of them than for linear layers.
_SUBSET, _PASSES = 400, 1
_NOT_DEFINED = (
    "Sparse local radii and the activity ratio are not defined for convolutions: they count the "
    "weights between active units, and a kernel is shared by all positions. Which units surely "
    "keep their sign is counted instead, when every kernel moves by at most epsilon times the "
    "longest one and every layer by at most epsilon times its norm."
)


def study_conv(
    chain: ConvChain,
    sample: Examples,
    *,
    epsilons: Sequence[float],
    base: ConvChain | None,
    held_out: Any,
    longest: float,
    seen_norm: bool,
    level: float,
    failure: float,
    theorem: Theorem,
    variants: Sequence[Variant],
    seed: int,
    shown: int,
    progress: Progress | None,
) -> SparsityStudy:
    """Arguments as :func:`nonvacuous.sparsity.study.study` has checked them.

    longest   how long an input can be
    shown     examples whose values are kept for the pictures
    """
    labels = sample.labels.cpu()
    names = chain.names[:-1]
    measured = measure_conv(
        chain, sample.inputs, labels, epsilons=epsilons, level=level, progress=progress
    )
    check_alive(measured, names)
    middle = measured.choices[len(measured.choices) // 2]
    picked = torch.from_numpy(
        np.linspace(0, len(sample) - 1, min(shown, len(sample))).round().astype(np.int64)
    )
    bounds, why_not = _norm_bounds(chain, base, measured, longest=longest, failure=failure)
    confidence, sampling_failure = divided(failure, theorem)
    return SparsityStudy(
        data=sample.name,
        examples=len(sample),
        errors=measured.errors,
        sizes=(
            math.prod(chain.input_shape),
            *(stage.units for stage in chain.stages[:-1]),
            chain.classes,
        ),
        biases=any(has_bias(stage) for stage in chain.stages),
        input_norm=longest,
        seen_norm=seen_norm,
        level=float(level),
        failure=failure,
        seed=seed,
        activity=activity(names, measured),
        radii=(),
        epsilons=tuple(at_epsilon(names, choice) for choice in measured.choices),
        norm_bounds=bounds,
        held_out=_held_out(chain, base, sample, held_out, failure),
        certificates=()
        if base is None
        else tuple(
            certify_sparse(
                chain,
                base,
                sample,
                theorem=theorem,
                variant=variant,
                subset=_SUBSET,
                passes=_PASSES,
                seed=seed,
                progress=progress,
                confidence=confidence,
                sampling_failure=sampling_failure,
            )
            for variant in variants
        ),
        shown=Shown(
            radii=(),
            sparsity=tuple(tuple(layer[picked].tolist()) for layer in middle.sparsity),
            epsilon=middle.epsilon,
        ),
        notes=(_NOT_DEFINED, *why_not),
    )


def _norm_bounds(
    chain: ConvChain,
    base: ConvChain | None,
    measured: Measured,
    *,
    longest: float,
    failure: float,
) -> tuple[tuple[NormBound, ...], tuple[str, ...]]:
    """The bounds from norms of the network written out as matrices, or why there are none."""
    try:
        plain = PlainChain.of(unrolled_layers(chain))
        reference = None if base is None else PlainChain.of(unrolled_layers(base))
    except NotYetSupported as error:
        return (), (f"No bounds from norms: {error}.",)
    constant = float(plain.constant)
    found = norm_bounds(
        plain,
        reference,
        margins=measured.margins,
        input_norms=measured.norms.square().add(constant).sqrt(),
        input_norm=math.hypot(longest, constant),
        failure=failure,
    )
    return found, ("The bounds from norms see the convolutions written out as matrices.",)


def _held_out(
    chain: ConvChain, base: ConvChain | None, sample: Examples, held_out: Any, failure: float
) -> tuple[HeldOut, ...]:
    """The plain tests that a certificate must stand beside."""
    found = []
    if held_out is not None:
        others = Examples.of(held_out)
        found.append(_tested("the network on held-out examples", chain, others, failure))
    if base is not None and any(bool((s.layer.weight != 0).any()) for s in base.stages):
        found.append(_tested("the prior itself on the same examples", base, sample, failure))
    return tuple(found)


def _tested(what: str, chain: ConvChain, examples: Examples, failure: float) -> HeldOut:
    errors = measure_conv(
        chain, examples.inputs, examples.labels.cpu(), epsilons=(), level=1.0
    ).errors
    risk = holdout(errors=errors, examples=len(examples), failure=failure)
    return HeldOut(what, errors, len(examples), risk)
