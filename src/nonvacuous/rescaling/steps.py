"""One step for every channel of a group at once, each in closed form or never upward.

Around the current point, moving the log-scale of one channel by ``d`` changes the KL by

    sum over powers p of  squares_p * exp(2 p d) / 2 - products_p * exp(p d),  minus counts * d,

where ``squares_p`` and ``products_p`` are the channel's sums *at the current point*. Everything
is multiplicative: mixing sums taken at the current point with sums that leave the channel's own
factor out would not be monotone.

The vectors are short, so this is arithmetic of the processor whatever the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

# The longest step times the largest power: exp(2 * 150) squared still fits float64. A longer way
# is gone in several steps.
_LONGEST = 150.0


@dataclass(frozen=True, eq=False)
class ChannelSums:
    """What the channels of one group need to know, one entry per channel in each array.

    ``squares`` and ``products`` map a power to the sums over the weights that a channel touches
    with that power. ``negative`` is the negative part of the products of terms that hold two
    channels of the group, where signs must be told apart weight by weight.
    """

    squares: Mapping[float, np.ndarray]
    products: Mapping[float, np.ndarray]
    counts: np.ndarray
    reach: float = 1.0
    negative: Mapping[float, np.ndarray] = field(default_factory=dict)

    @property
    def exponentials(self) -> list[tuple[float, np.ndarray]]:
        """The KL as a sum of coefficient * exp(exponent * d): pairs of exponent and coefficient."""
        squares = [(2 * power, values / 2) for power, values in self.squares.items()]
        return squares + [(power, -values) for power, values in self.products.items()]

    def gradient(self) -> np.ndarray:
        """Derivative of the KL by each log-scale: weights in minus weights out, unbalanced."""
        return sum((e * c for e, c in self.exponentials), start=-self.counts)

    def curvature(self) -> np.ndarray:
        """The second derivative by each log-scale, all others standing still."""
        return sum((e * e * c for e, c in self.exponentials), start=np.zeros_like(self.counts))

    def magnitude(self) -> np.ndarray:
        """The size of the parts that must balance, to judge a gradient by."""
        return sum((np.abs(e * c) for e, c in self.exponentials), start=np.zeros_like(self.counts))


@np.errstate(all="ignore")
def positive_root(counts: np.ndarray, incoming: np.ndarray, outgoing: np.ndarray) -> np.ndarray:
    """The positive x with ``incoming * x - outgoing / x = counts``, without cancellation.

    This is the squared scale that balances a channel; 1 where nothing touches the channel.
    """
    half = counts / 2
    width = np.hypot(half, np.sqrt(incoming) * np.sqrt(outgoing))
    root: np.ndarray = np.where(half >= 0, (half + width) / incoming, outgoing / (width - half))
    root[np.isnan(root)] = 1.0
    return root


@np.errstate(all="ignore")
def channel_steps(sums: ChannelSums, *, coupled: bool) -> np.ndarray:
    """How far to move the log-scale of each channel of a group, all at once.

    A majorize-minimize step, which for a zero-mean prior and powers +1 and -1 is the exact minimum.
    Otherwise there is a second one, or a Newton step where that is better; where channels share
    weights (``coupled``) no refinement is possible channel by channel.
    """
    step = majorized_step(sums)
    exact = not sums.products and sums.squares.keys() <= {1.0, -1.0}
    return step if coupled or exact else step + _refinement(moved(sums, step))


def majorized_step(sums: ChannelSums) -> np.ndarray:
    """The minimum of a function that lies above the KL and touches it at the current point.

    A positive product is bounded by its tangent, a negative one and every square by the two
    exponentials of the largest power ``reach`` (weights that hold several channels of the group:
    Jensen's inequality, with shares in proportion to the powers). No step can go up.
    """
    incoming, outgoing = np.zeros((2, len(sums.counts)))
    counts = sums.counts
    for power in sums.squares.keys() | sums.products.keys():
        rising = sums.squares.get(power, 0.0)
        if power in sums.products:
            falling = sums.negative.get(power, np.maximum(-sums.products[power], 0.0))
            rising = rising + falling
            counts = counts + power * (sums.products[power] + falling)
        if power > 0:
            incoming = incoming + (power / sums.reach) * rising
        else:
            outgoing = outgoing + (-power / sums.reach) * rising
    root = positive_root(counts / sums.reach, incoming, outgoing)
    halves: np.ndarray = np.clip(np.log(root) / 2, -_LONGEST, _LONGEST)
    return halves / sums.reach


def moved(sums: ChannelSums, step: np.ndarray) -> ChannelSums:
    """The sums after each channel has moved by ``step`` (channels that share no weight)."""
    return replace(
        sums,
        squares={p: v * np.exp(2 * p * step) for p, v in sums.squares.items()},
        products={p: v * np.exp(p * step) for p, v in sums.products.items()},
    )


def change(sums: ChannelSums, step: np.ndarray) -> np.ndarray:
    """By how much the KL changes when a channel moves by ``step``, for each channel alone."""
    return sum((c * np.expm1(e * step) for e, c in sums.exponentials), start=-sums.counts * step)


def _refinement(sums: ChannelSums) -> np.ndarray:
    """The better of a majorize-minimize step and a Newton step."""
    safe = majorized_step(sums)
    curvature = sums.curvature()
    limit = _LONGEST / sums.reach
    newton = np.clip(-sums.gradient() / curvature, -limit, limit)
    usable = (curvature > 0) & np.isfinite(newton)
    newton = np.where(usable, newton, safe)
    better = usable & (change(sums, newton) < change(sums, safe))
    return np.where(better, newton, safe)
