"""The scale of the scores: free where the loss sees their order only.

Multiplying every tensor that writes the scores by one positive number moves the posterior along
one more orbit. It is one more free scale, and can be searched together with the hidden ones.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks.scale_groups import AxisScale, Group
from nonvacuous.rescaling.output_layer import OutputLayer

if TYPE_CHECKING:
    from torch import Tensor

    from nonvacuous.networks.scale_groups import ScaleGroups


#: The name of the group that holds the scale of the scores.
OUTPUT_SCALE = "scale of the scores"


def output_scale_place(groups: ScaleGroups) -> int | None:
    """Where the scale of the scores stands in log_scales, None if it is not among these groups."""
    return next((group.start for group in groups.groups if group.name == OUTPUT_SCALE), None)


def with_output_scale(groups: ScaleGroups, output: OutputLayer) -> ScaleGroups:
    """The same groups and, as the last entry of log_scales, one scale for all scores.

    Valid for losses that see only the order of the scores (0-1 and top-k); for others the function
    that matters would change. ``rescale`` searches it together with the hidden scales, which is
    better than one after the other. Groups that have it already come back as they are.
    """
    if output_scale_place(groups) is not None:
        return groups
    place = groups.size
    exponents = dict(groups.exponents)
    for name in output.tensors:
        index = np.full(groups.shapes[name][0], place, dtype=np.int64)
        exponents[name] = (*exponents[name], AxisScale((0,), index, 1.0))
    added = Group(
        name=OUTPUT_SCALE,
        start=place,
        size=1,
        tensors=tuple((name, (0,), 1.0) for name in output.tensors),
        layer=output.weight.rpartition(".")[0],
        independent=True,
    )
    return dataclasses.replace(
        groups, size=place + 1, groups=(*groups.groups, added), exponents=exponents
    )


def best_output_log_scale(
    Q: DiagonalGaussian, P: DiagonalGaussian, output: OutputLayer, *, translation: bool
) -> float:
    """The natural logarithm of the factor that makes the last layer's KL smallest.

    Exact, for any prior means and scales. With ``translation`` it is the KL after the quotient by
    a common shift of the scores that is made smallest.

    As a function of the factor a, the KL is (A a^2 - 2 C a) / 2 - N ln a and a constant. A is the
    posterior's second moment in units of the prior, C the product of the two means, and N the
    number of weights (of directions that are left, one less per column, with ``translation``).
    """
    output.check_in(Q)
    output.check_in(P)
    moment = product = 0.0
    count = 0
    for name in output.tensors:
        mean, variance = output.columns(Q, name)
        prior_mean, prior_variance = output.columns(P, name)
        moment += float(((variance + mean.square()) / prior_variance).sum())
        product += float((mean * prior_mean / prior_variance).sum())
        count += mean.numel()
        if translation:
            lost = _along_shift(mean, variance, prior_mean, prior_variance)
            moment, product = moment - lost[0], product - lost[1]
            count -= mean.shape[1]
    root = math.hypot(product, 2 * math.sqrt(moment * count))
    # The positive root of A a^2 - C a - N, in the form that does not cancel.
    if product >= 0:
        return math.log((product + root) / (2 * moment))
    return math.log(2 * count / (root - product))


def _along_shift(
    mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor
) -> tuple[float, float]:
    """The parts of the moment and of the product that lie along a common shift of a column."""
    precision = (1 / prior_variance).sum(0)
    spread = (variance / prior_variance.square()).sum(0) / precision
    centers = [(m / prior_variance).sum(0) for m in (mean, prior_mean)]
    moment = spread + centers[0].square() / precision
    return float(moment.sum()), float((centers[0] * centers[1] / precision).sum())
