"""One step for every channel of a group at once, each in closed form or never upward.

Around the current point, moving the log-scale of one channel by ``d`` changes the KL by

    sum over powers p of  squares_p * exp(2 p d) / 2 - products_p * exp(p d),  minus counts * d,

where ``squares_p`` and ``products_p`` are the channel's sums *at the current point*. Everything
is multiplicative: mixing sums taken at the current point with sums that leave the channel's own
factor out would not be monotone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

# The longest step times the largest power: exp(2 * 150) squared still fits float64. A longer way
# is gone in several steps.
_LONGEST = 150.0


@dataclass(frozen=True, eq=False)
class ChannelSums:
    """What the channels of one group need to know, one entry per channel in each tensor.

    ``squares`` and ``products`` map a power to the sums over the weights that a channel touches
    with that power. ``negative`` and ``positive`` split the products of terms that hold two
    channels of the group, where signs must be told apart weight by weight.
    """

    squares: Mapping[float, Tensor]
    products: Mapping[float, Tensor]
    counts: Tensor
    reach: float = 1.0
    negative: Mapping[float, Tensor] | None = None

    def gradient(self) -> Tensor:
        """Derivative of the KL by each log-scale: weights in minus weights out, unbalanced."""
        total = -self.counts
        for power, values in self.squares.items():
            total = total + power * values
        for power, values in self.products.items():
            total = total - power * values
        return total

    def magnitude(self) -> Tensor:
        """The size of the parts that must balance, to judge a gradient by."""
        parts = [abs(power) * values.abs() for power, values in self.squares.items()]
        parts += [abs(power) * values.abs() for power, values in self.products.items()]
        return torch.stack(parts).sum(0) if parts else torch.zeros_like(self.counts)


def positive_root(counts: Tensor, incoming: Tensor, outgoing: Tensor) -> Tensor:
    """The positive x with ``incoming * x - outgoing / x = counts``, without cancellation.

    This is the squared scale that balances a channel; 1 where nothing touches the channel.
    """
    half = counts / 2
    width = torch.hypot(half, incoming.sqrt() * outgoing.sqrt())
    grow = (half + width) / incoming
    shrink = outgoing / (width - half)
    return torch.where(half >= 0, grow, shrink).nan_to_num_(nan=1.0, posinf=math.inf)


def channel_steps(sums: ChannelSums, *, coupled: bool) -> Tensor:
    """How far to move the log-scale of each channel of a group, all at once.

    For a zero-mean prior and powers +1 and -1 this is the exact minimum. Otherwise it is a
    majorize-minimize step and then a second one, or a Newton step where that is better; where
    channels share weights (``coupled``) no refinement is possible channel by channel.
    """
    if not coupled and not sums.products and sums.squares.keys() <= {1.0, -1.0}:
        nothing = torch.zeros_like(sums.counts)
        incoming, outgoing = (sums.squares.get(power, nothing) for power in (1.0, -1.0))
        step = positive_root(sums.counts, incoming, outgoing).log_() / 2
        return step.clamp_(-_LONGEST, _LONGEST)
    step = majorized_step(sums)
    if coupled:
        return step
    return step + _refinement(moved(sums, step))


def majorized_step(sums: ChannelSums) -> Tensor:
    """The minimum of a function that lies above the KL and touches it at the current point.

    A positive product is bounded by its tangent, a negative one and every square by the two
    exponentials of the largest power ``reach`` (weights that hold several channels of the group:
    Jensen's inequality, with shares in proportion to the powers). No step can go up.
    """
    incoming = torch.zeros_like(sums.counts)
    outgoing = torch.zeros_like(sums.counts)
    counts = sums.counts
    for power in sums.squares.keys() | sums.products.keys():
        rising = torch.zeros_like(counts)
        if power in sums.squares:
            rising = rising + sums.squares[power]
        if power in sums.products:
            falling = (-sums.products[power]).clamp_min(0.0)
            if sums.negative is not None:
                falling = sums.negative[power]
            rising = rising + falling
            counts = counts + power * (sums.products[power] + falling)
        if power > 0:
            incoming = incoming + (power / sums.reach) * rising
        else:
            outgoing = outgoing + (-power / sums.reach) * rising
    root = positive_root(counts / sums.reach, incoming, outgoing)
    return (root.log() / 2).clamp(-_LONGEST, _LONGEST) / sums.reach


def moved(sums: ChannelSums, step: Tensor) -> ChannelSums:
    """The sums after each channel has moved by ``step`` (channels that share no weight)."""
    return ChannelSums(
        squares={p: v * torch.exp(2 * p * step) for p, v in sums.squares.items()},
        products={p: v * torch.exp(p * step) for p, v in sums.products.items()},
        counts=sums.counts,
        reach=sums.reach,
    )


def change(sums: ChannelSums, step: Tensor) -> Tensor:
    """By how much the KL changes when a channel moves by ``step``, for each channel alone."""
    total = -sums.counts * step
    for power, values in sums.squares.items():
        total = total + values * torch.expm1(2 * power * step) / 2
    for power, values in sums.products.items():
        total = total - values * torch.expm1(power * step)
    return total


def _refinement(sums: ChannelSums) -> Tensor:
    """The better of a majorize-minimize step and a Newton step."""
    safe = majorized_step(sums)
    curvature = torch.zeros_like(sums.counts)
    for power, values in sums.squares.items():
        curvature = curvature + 2 * power * power * values
    for power, values in sums.products.items():
        curvature = curvature - power * power * values
    limit = _LONGEST / sums.reach
    newton = (-sums.gradient() / curvature).clamp(-limit, limit)
    usable = (curvature > 0) & torch.isfinite(newton)
    newton = newton.where(usable, safe)
    better = usable & (change(sums, newton) < change(sums, safe))
    return newton.where(better, safe)
