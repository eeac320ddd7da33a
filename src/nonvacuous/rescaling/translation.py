"""The shift of the scores: adding one number to all classes changes no prediction.

In each column of the last weight (all classes, one feature) and in the bias, the direction
(1, ..., 1) moves all scores alike. Posterior and prior may be compared after this direction is
forgotten: the KL of the projections on the remaining K - 1 directions. The predictors are the
same, and by the chain rule the KL drops by the divergence along the forgotten direction.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.output_layer import OutputLayer

_ROUNDING = 64 * torch.finfo(torch.float64).eps


def translation_savings(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    output: OutputLayer,
    *,
    relative_error: float = 0.0,
) -> dict[str, float]:
    """Nats saved in each tensor of the last layer, rounded down; any prior means and scales.

    With x the ratio of variances and d the difference of means, class by class, and with weights
    p proportional to the prior's precisions 1/T, a column saves

        ( sum p x - 1 + ln sum p/x + (sum p d)^2 sum 1/T ) / 2,

    which is never negative: by Jensen it is at least the mean of (x - 1 - ln x) / 2.
    ``relative_error`` says how far the means and scales of ``Q`` may be off.
    """
    output.check_in(Q)
    output.check_in(P)
    savings = {}
    for name in output.tensors:
        saved, size = _column_savings(*output.columns(Q, name), *output.columns(P, name))
        # Every column saves something in exact arithmetic, so a rounded-down one counts as 0.
        lower = (saved - (_ROUNDING + 4 * relative_error) * size).clamp_min(0.0)
        savings[name] = max(0.0, float(lower.sum()) * (1 - _ROUNDING))
    return savings


def _column_savings(
    mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """The saving of each column, and a magnitude to which its rounding error is proportional."""
    precision = 1 / prior_variance
    total = precision.sum(0)
    weight = precision / total
    ratio = variance / prior_variance
    spread = (weight * ratio).sum(0)
    log_spread = torch.log((weight / ratio).sum(0))
    difference = mean - prior_mean
    square = (weight * difference).sum(0).square() * total
    # The mean difference may cancel: its error is relative to the sum of absolute values.
    lever = (weight * difference.abs()).sum(0) * (weight * (mean.abs() + prior_mean.abs())).sum(0)
    saved = (spread - 1 + log_spread + square) / 2
    return saved, 1 + spread + log_spread.abs() + square + lever * total


def log_volume(variance: Tensor) -> Tensor:
    """ln det of the covariance of independent classes after the shift is forgotten.

    The classes are the last axis. For variances D it is sum ln D + ln mean 1/D.
    """
    return variance.log().sum(-1) + torch.log((1 / variance).mean(-1))


def squared_length(difference: Tensor, variance: Tensor) -> Tensor:
    """A difference of means in units of the covariance that is left, squared; classes last."""
    inverse = 1 / variance
    shift = (difference * inverse).sum(-1, keepdim=True) / inverse.sum(-1, keepdim=True)
    return ((difference - shift).square() * inverse).sum(-1)
