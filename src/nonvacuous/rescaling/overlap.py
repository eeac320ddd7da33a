"""How much the laws of two units overlap, for all pairs of units of a layer.

For Gaussians with means m and variances v the overlap of unit j with unit k at power a is

    E_{q_k} (q_j / q_k)^a  =  prod_i  v_j^((1-a)/2) v_k^(a/2) w^(-1/2) exp(-a (1-a) d^2 / (2 w)),
    w = (1-a) v_j + a v_k,   d = m_j - m_k.

Every factor is at most 1, so leaving coordinates out gives an upper bound: sums stop as soon as
all pairs are told apart, and very wide layers use their most telling coordinates only. Where the
variances of a unit are multiples of those of the others, as equal noise is before and after
rescaling, the sums over coordinates are the same for all powers and computed once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.bounds.rounding import EPSILON
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.output_layer import OutputLayer

_ROUNDING = 64 * EPSILON


def translation_savings(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    output: OutputLayer,
    *,
    relative_error: float = 0.0,
) -> dict[str, float]:
    """Nats saved in each tensor of the last layer, rounded down; any prior means and scales.

    Adding one number to all classes changes no prediction: in each column of the last weight (all
    classes, one feature) and in the bias, the direction (1, ..., 1) moves all scores alike. Without
    it the predictors are the same, and by the chain rule the KL of the projections on the other
    K - 1 directions is smaller by the divergence along it.
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


_CHUNK = 1 << 18  # pairs times coordinates at a time: a few arrays of this size stay in a cache
_BUDGET = 1 << 28  # pairs times coordinates in one evaluation; coordinates beyond it are left out
_STEP = 32
_ALIKE = 1e-6  # variances that differ by less are one number and its rounding


@dataclass(frozen=True, eq=False)
class _Alike:
    """Coordinates in which unit j has variances r_j (1 + e_ji), all e being small.

    With R = (1-a) r_j + a r_k and p = (1-a) r_j / R, to the first order in e

        sum d^2 / w  =  (sum d^2 - p sum d^2 e_j - (1-p) sum d^2 e_k) / R    and
        sum ln w     =  n ln R + p sum e_j + (1-p) sum e_k,

    the former rounded down by convexity, the latter too large by at most n e^2. The same holds for
    classes whose common shift is forgotten: n is one less, the means are those around what is
    forgotten, and a class adds to sum e what it adds to the volume that is left.
    """

    size: Tensor  # r_j
    logs: Tensor  # sum of ln v_j
    excess: Tensor  # sum of e_j
    squares: Tensor  # sum of d^2 for units j, k
    tilted: Tensor  # sum of d^2 e_j
    entries: int
    allowance: float

    @classmethod
    def of(cls, means: Tensor, variances: Tensor, *, shifted: bool = False) -> _Alike | None:
        """``shifted``: the coordinates are classes, and their common shift is forgotten."""
        logs, counted = variances.log().sum(1), torch.ones_like(means[0])
        if shifted:
            typical = variances.log().mean(0).exp()
            weight = 1 / typical / (1 / typical).sum()
            means = (means - (means @ weight)[:, None]) / typical.sqrt()
            logs, counted = log_volume(variances) - log_volume(typical), 1 - weight
            variances = variances / typical
        size = variances.log().mean(1).exp()
        relative = variances / size[:, None] - 1
        largest = float(relative.abs().amax()) if relative.numel() else 0.0
        if not largest <= _ALIKE:
            return None
        entries = means.shape[1] - shifted
        centered = means - means.mean(0)
        own = centered.square().sum(1)
        squares = own[:, None] + own - 2 * centered @ centered.mT
        # The products cancel: what they may be off by is left out, an overlap grows by that.
        squares = squares - 8 * (entries + 8) * EPSILON * (own[:, None] + own)
        lever = relative * centered
        tilted = (lever * centered).sum(1, keepdim=True) - 2 * lever @ centered.mT
        tilted = tilted + relative @ centered.square().mT
        allowance = (entries + 2) * largest**2
        return cls(size, logs, relative @ counted, squares, tilted, entries, allowance)

    def log_overlaps(self, rows: Tensor, a: Tensor) -> Tensor:
        """[rows, units]; ``a`` is a column."""
        first, second = (1 - a) * self.size, a * self.size[rows, None]
        mixed = first + second
        share = first / mixed
        other = 1 - share
        apart = self.squares[rows] - share * self.tilted.mT[rows] - other * self.tilted[rows]
        logs = share * self.excess + other * self.excess[rows, None] + self.entries * mixed.log()
        volumes = (1 - a) * self.logs + a * self.logs[rows, None]
        exponent = a * (1 - a) * apart.clamp_min_(0.0) / mixed
        return (volumes - logs - exponent + self.allowance) / 2


@dataclass(frozen=True, eq=False)
class Blocks:
    """The laws of the units' blocks: [units, coordinates], the most telling coordinates first.

    ``columns`` (means and variances, [units, columns, classes]) are compared after forgetting a
    common shift of the classes. ``logs`` and ``lever`` are the largest sums, over the coordinates
    of a unit, of the logarithms' sizes and of squared means in units of the variances: what the
    rounding errors are proportional to. ``alike`` holds the sums over coordinates where they are
    the same for all powers, tensor by tensor; else None.
    """

    means: Tensor
    variances: Tensor
    columns: tuple[Tensor, Tensor] | None
    logs: float
    lever: float
    alike: tuple[_Alike, ...] | None

    @classmethod
    def of(
        cls, tensors: Sequence[tuple[Tensor, Tensor]], columns: tuple[Tensor, Tensor] | None
    ) -> Blocks:
        """Normalize every coordinate by its typical scale and sort by how telling it is.

        ``tensors`` are means and variances, a row for each unit.
        """
        means, variances = (torch.cat(each, 1).cpu() for each in zip(*tensors, strict=True))
        owners = torch.cat([torch.full((t.shape[1],), n) for n, (t, _) in enumerate(tensors)])
        unit = variances.log().mean(0).exp()
        variances = variances / unit
        means = means / unit.sqrt()
        telling = means.var(0, unbiased=False) / variances.mean(0)
        keep = max(_STEP, _BUDGET // len(means) ** 2)
        order = torch.argsort(telling, descending=True)[:keep]
        # Products of eight variances must stay finite; a coordinate of such a range is left out.
        order = order[variances[:, order].amax(0) < 1e30]
        means, variances = means[:, order].contiguous(), variances[:, order].contiguous()
        parts = [(means, variances)]
        if columns is not None:
            columns = (columns[0].cpu(), columns[1].cpu())
            parts.append((columns[0].flatten(1), columns[1].flatten(1)))
        owners = owners[order]
        mine = [owners == number for number in range(len(tensors))]
        alike = [_Alike.of(means[:, own], variances[:, own]) for own in mine if bool(own.any())]
        if columns is not None:
            each = zip(columns[0].unbind(1), columns[1].unbind(1), strict=True)
            alike += [_Alike.of(mean, variance, shifted=True) for mean, variance in each]
        return cls(
            means=means,
            variances=variances,
            columns=columns,
            logs=sum(float(v.log().abs().sum(1).max()) for _, v in parts),
            lever=sum(float((m.square() / v).sum(1).max()) for m, v in parts),
            alike=tuple(each for each in alike if each) if all(alike) else None,
        )

    @property
    def units(self) -> int:
        return len(self.means)

    def error(self, powers: Tensor) -> Tensor:
        """How far the logarithm of an overlap above exp(-100) may be off, at these powers.

        The logarithms add up to at most a few times ``logs``. A difference of means is known to
        the rounding of the means; by Cauchy-Schwarz that moves the exponent by at most the root
        of (exponent x squared means in units of the variances).
        """
        spread = powers * (1 - powers)
        reach = torch.sqrt(200 / spread) * torch.sqrt(2 * self.lever / spread)
        return 1024 * EPSILON * (200 + 4 * self.logs + reach)


def log_one_plus_overlaps(blocks: Blocks, rows: Tensor, powers: Tensor) -> Tensor:
    """ln sum_j E_{q_k} (q_j / q_k)^a over all units j, for the units k in ``rows``, rounded up."""
    result = torch.empty(len(rows), dtype=torch.float64)
    step = max(1, _CHUNK // (blocks.units * (_STEP if blocks.alike is None else 1)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        logs = _log_overlaps(blocks, rows[part], powers[part])
        logs = logs + blocks.error(powers[part])[:, None]
        result[part] = torch.log1p(logs.exp().sum(1))
    return result * (1 + 16 * EPSILON)


def _log_overlaps(blocks: Blocks, rows: Tensor, powers: Tensor) -> Tensor:
    """[rows, units] logarithms, minus infinity for a unit with itself.

    The sums stop, and are upper bounds, once all are far below anything that matters.
    """
    far = -(32.0 + math.log(blocks.units))
    a = powers[:, None, None]
    total = torch.zeros(len(rows), blocks.units, dtype=torch.float64)
    # A unit overlaps with itself completely, at every power: the 1 of "one plus", not computed.
    total[torch.arange(len(rows)), rows] = -math.inf
    for alike in blocks.alike or ():
        total += alike.log_overlaps(rows, a[..., 0])
    for start in range(0, blocks.means.shape[1] if blocks.alike is None else 0, _STEP):
        part = slice(start, start + _STEP)
        means, variances = blocks.means[:, part], blocks.variances[:, part]
        logs = variances.log().sum(1)
        mixed = (1 - a) * variances[None] + a * variances[rows][:, None]
        difference = means[None] - means[rows][:, None]
        total += (1 - a[..., 0]) / 2 * logs[None] + a[..., 0] / 2 * logs[rows][:, None]
        total -= (a * (1 - a) / 2)[..., 0] * difference.square_().div_(mixed).sum(2)
        total -= _sum_of_logs(mixed) / 2
        if bool((total < far).all()):
            return total
    if blocks.columns is not None and blocks.alike is None:
        total += _column_log_overlaps(*blocks.columns, rows, a)
    return total


def _sum_of_logs(values: Tensor) -> Tensor:
    """The sum of logarithms over the last axis: eight factors at a time, a logarithm being dear."""
    width = values.shape[-1] // 8 * 8
    head = values[..., :width].unflatten(-1, (-1, 8)).prod(-1).log().sum(-1)
    total: Tensor = head + values[..., width:].log().sum(-1)
    return total


def _column_log_overlaps(means: Tensor, variances: Tensor, rows: Tensor, a: Tensor) -> Tensor:
    """The same for columns of the last layer after the shift of the classes is forgotten."""
    total = torch.zeros(len(rows), len(means), dtype=torch.float64)
    volumes = log_volume(variances).sum(1)
    total += (1 - a[..., 0]) / 2 * volumes[None] + a[..., 0] / 2 * volumes[rows][:, None]
    for column in range(means.shape[1]):
        mean, variance = means[:, column], variances[:, column]
        mixed = (1 - a) * variance[None] + a * variance[rows][:, None]
        difference = mean[None] - mean[rows][:, None]
        length = squared_length(difference, mixed)
        total -= log_volume(mixed) / 2 + (a * (1 - a) / 2)[..., 0] * length
    return total
