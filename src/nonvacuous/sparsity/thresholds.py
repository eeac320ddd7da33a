"""Theorems D, E and F: how large a margin must be for the noise not to have hidden an error.

Statements and proofs: docs/theory/sparsity.md, 5, 6 and 6b. The names are those of the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from nonvacuous.bounds import sparsity as bounds
from nonvacuous.sparsity.constants import Constants
from nonvacuous.sparsity.noise import Inputs, NoisyPass
from nonvacuous.sparsity.setting import Tailed

#: Which part of the escape probability goes to the events about pre-activations.
EVENT_SHARE = 0.1
#: Beyond this many scales from its kink a unit counts as stable in the table of sums.
_STABLE = 2.5
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
#: psi(0): how far standard noise lifts the mean of a ReLU at its kink, rounded up.
KINK = 1.0 / _ROOT_TWO_PI * (1.0 + 1e-12)
#: More than rounding can do where a comparison decides which units are counted.
_SAFE = 1.0 + 1e-9


# Theorem D: a margin threshold from the error that noise can have made, layer by layer.


@lru_cache(maxsize=256)
def quantiles(
    widths: tuple[int, ...], escape: float, sparse: bool, device: torch.device
) -> tuple[tuple[float, ...], tuple[Tensor, ...], float]:
    """Share the escape probability among the events of the proof: quantiles, all rounded up.

    T_k of each hidden layer, per hidden layer a table over the number of units, and t(p).
    """
    share = escape / (len(widths) * (2 if sparse else 1))
    coordinates = tuple(bounds.two_sided_quantile(failure=share, events=d) for d in widths)
    # Only layers before the last hidden one need the length of their noise.
    chi = []
    for width in widths[:-1]:
        entries = range(width + 1) if sparse else (width,) * (width + 1)
        table = [bounds.chi_quantile(degrees=n, failure=share) for n in entries]
        chi.append(torch.tensor(table, dtype=torch.float64, device="cpu").to(device))
    return coordinates, tuple(chi), bounds.self_normalized_quantile(share)


def threshold_d(
    noisy: NoisyPass, labels: Tensor, constants: Constants, escape: float, *, sparse: bool
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label."""
    scales, hidden = noisy.scales, len(noisy.before)
    widths = tuple(z.shape[1] for z in noisy.before)
    coordinates, chi, quantile = quantiles(widths, escape, sparse, labels.device)
    error = torch.zeros_like(scales[0])
    before = torch.full_like(labels, 0)
    for k in range(hidden):
        units = torch.full_like(labels, widths[k])
        stretch = torch.full_like(error, constants.spectral[k])
        if sparse:
            rows = constants.rows[k][before]
            reach = scales[k] * coordinates[k] + rows * error
            units = (noisy.before[k] > -2.0 * (reach * _SAFE)[:, None]).sum(1)
            # A block of n rows stretches at most sqrt(n) times as much as its longest row.
            stretch = torch.minimum(stretch, units.double().sqrt() * rows)
        error = stretch * error
        if k < hidden - 1:
            # The last one's noise is dealt with by concentration, not by its length.
            error = error + scales[k] * chi[k][units]
        before = units
    noise = scales[-2][:, None]
    norms, whole = constants.norms(labels, before), constants.sums(labels)
    means = KINK * whole
    if sparse:
        level = coordinates[-1]
        near = (noisy.before[-1].abs() < 2.0 * level * (noise * _SAFE)).sum(1)
        rest = bounds.kink(level)
        means = (KINK - rest) * constants.sums(labels, near) + rest * whole
    spread = (noise.square() * norms.square() + 2.0 * scales[-1][:, None].square()).sqrt()
    return norms * error[:, None] + noise * (means + KINK * norms) + quantile * spread


# Theorem E: noise enters layer by layer, and each layer's share concentrates on its own. The
# network whose first k layers are noisy differs from the one with k - 1 noisy layers by a Lipschitz
# function of the noise of layer k. Its mean is moved only by units that may change sign; its spread
# is a martingale.


def levels(widths: Sequence[int], escape: float, *, sparse: bool) -> tuple[float, float]:
    """What of the escape probability is left for the output, and the quantile of the events.

    Without sparsity there are no events to pay for.
    """
    if not sparse:
        return escape, 0.0
    event = escape * EVENT_SHARE
    count = sum(layer * width for layer, width in enumerate(widths, start=1))
    quantile = bounds.lipschitz_quantile(failure=event, events=count)
    return escape * (1.0 - EVENT_SHARE), quantile


def threshold_e(
    noisy: NoisyPass,
    inputs: Inputs,
    constants: Constants,
    setting: Tailed,
    *,
    sparse: bool,
    anchor: Tensor,
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label.

    anchor   positive parts of the prior's w_y - w_c, (classes, classes, width): the weights that
             the mean shifts of single units meet, up to the drift. Where that is not named, sums
             of the largest weights are used, for as many units as are not stable
    """
    hidden, sigmas = len(noisy.before), setting.sigmas
    widths = [values.shape[1] for values in noisy.before]
    left, deviation = levels(widths, setting.escape_probability, sparse=sparse)
    if sparse:
        carried, last = _shifts(noisy, constants, deviation)
        means = mean_shifts(last, inputs.labels, constants, anchor)
    else:
        carried, means = _dense(noisy, inputs.labels, constants)
    norms = constants.norms(inputs.labels)
    total = means + norms * carried[:, None]
    growth = [math.prod(constants.spectral[k + 1 :]) for k in range(hidden)]
    spread = sum((noisy.scales[k] * growth[k]).square() for k in range(hidden))
    expected = sum((sigmas[k] * inputs.known[:, k] * growth[k]).square() for k in range(hidden))
    assert isinstance(spread, Tensor) and isinstance(expected, Tensor)
    variance = norms.square() * spread[:, None] + 2.0 * noisy.scales[-1][:, None].square()
    guess = norms.square() * expected[:, None]
    guess = guess + 2.0 * (sigmas[-1] * inputs.known[:, -1][:, None]).square()
    return total + tail_threshold(variance, guess.clamp(min=1e-280), left, setting)


def tail_threshold(variance: Tensor, guess: Tensor, failure: float, setting: Tailed) -> Tensor:
    """How far the noise of all layers can carry a margin, up to the failure probability.

    guess   the variance that the reference network has at the same example
    """
    if setting.tail == "cap":
        cap = setting.tail_factor * guess
        reached = bounds.expected_shortfall(failure) * cap.sqrt()
        return torch.where(variance * _SAFE <= cap, reached, torch.inf)
    nats = -math.log(failure)
    rate = setting.tail_factor * (2.0 * nats / guess).sqrt()
    return 0.5 * rate * variance + nats / rate


def _dense(noisy: NoisyPass, labels: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
    """The mean shifts when every unit may change sign: only widths and norms count."""
    hidden = len(noisy.before)
    shifts: list[Tensor] = []
    carried = torch.zeros_like(noisy.scales[0])
    for j in range(hidden):
        root = math.sqrt(noisy.before[j].shape[1])
        shifts = [constants.spectral[j] * shift for shift in shifts]
        if j == hidden - 1:
            carried = sum(shifts, carried)
        shifts.append(torch.zeros_like(carried))
        for k in range(j + 1):
            shifts[k] = shifts[k] + noisy.scales[k] * (KINK * root * _reach(constants, k, j))
    noise = sum(noisy.scales[k] * _reach(constants, k, hidden - 1) for k in range(hidden))
    assert isinstance(noise, Tensor)
    return carried, KINK * noise[:, None] * constants.sums(labels)


#: For each source of noise: how far each unit's mean can move, (examples, width), the scale of the
#: noise there, (examples,), and each unit's least distance from its kink.
Shifts = Sequence[tuple[Tensor, Tensor, Tensor]]


def _shifts(noisy: NoisyPass, constants: Constants, deviation: float) -> tuple[Tensor, Shifts]:
    """Mean shifts of single units, from how far each noisy pre-activation is from its kink.

    What earlier layers carry to the last hidden one, and the shifts of its own units.
    """
    hidden = len(noisy.before)
    last: list[tuple[Tensor, Tensor, Tensor]] = []
    carried = torch.zeros_like(noisy.scales[0])
    lengths: list[Tensor] = []
    for j in range(hidden):
        distance = noisy.before[j].abs()
        grown = [constants.spectral[j] * length for length in lengths]
        if j == hidden - 1:
            carried = sum(grown, carried)
        moved = torch.zeros_like(carried)
        grown.append(moved)
        # From the latest noise to the earliest: each adds to how far the pre-activation can be
        # from the mean of the hybrid network with k noisy layers.
        for k in range(j, -1, -1):
            reach = (noisy.scales[k] * _reach(constants, k, j)).clamp(min=1e-280)
            moved = moved + deviation * reach
            excess = (distance - (moved * _SAFE)[:, None]).clamp(min=0)
            gaps = reach[:, None] * kinks(excess / reach[:, None])
            grown[k] = grown[k] + gaps.square().sum(1).sqrt()
            if k < j:
                moved = moved + constants.longest[j] * lengths[k]
            if j == hidden - 1:
                last.append((gaps, reach, excess))
        lengths = grown
    return carried, last


def mean_shifts(shifts: Shifts, labels: Tensor, constants: Constants, anchor: Tensor) -> Tensor:
    """What the mean shifts of the last hidden layer do to the margin of each pair."""
    if constants.drift is not None:
        gaps = torch.stack([gaps for gaps, _, _ in shifts]).sum(0)
        return anchored_means(gaps, labels, anchor, constants.drift)
    whole, rest = constants.sums(labels), bounds.kink(_STABLE)
    total = torch.zeros_like(shifts[0][1])[:, None]
    for _, reach, excess in shifts:
        near = (excess < _STABLE * reach[:, None]).sum(1)
        some = constants.sums(labels, near)
        total = total + reach[:, None] * ((KINK - rest) * some + rest * whole)
    return total


def anchored_means(values: Tensor, labels: Tensor, anchor: Tensor, drift: float) -> Tensor:
    """Each example's shifts times the prior's weights of its label, up to the drift."""
    result = values.new_zeros(len(labels), anchor.shape[1])
    for label, matrix in enumerate(anchor):
        if values.device.type == "cpu":
            chosen = (labels == label).nonzero()[:, 0]
            result[chosen] = values[chosen] @ matrix.T
        else:
            # An accelerator would have to wait for the number of examples with this label.
            result = torch.where((labels == label)[:, None], values @ matrix.T, result)
    return result * _SAFE + drift * values.square().sum(1).sqrt()[:, None]


def kinks(distance: Tensor) -> Tensor:
    """psi of every entry, rounded up as in bounds.sparsity.kink."""
    density = torch.exp(-0.5 * distance.square()) / _ROOT_TWO_PI
    tail = 0.5 * torch.special.erfc(distance / math.sqrt(2.0))
    rounded: Tensor = (density - distance * tail).clamp(min=0) + 1e-12 * density
    return rounded


def _reach(constants: Constants, k: int, j: int) -> float:
    """Lambda: how much one unit of layer j can move per unit of movement of layer k."""
    return 1.0 if k == j else constants.longest[j] * math.prod(constants.spectral[k + 1 : j])


# Theorem F: all noise at once, for deep networks. Theorem E moves from the network to the noisy one
# layer by layer and adds up what every layer's noise may do to the mean of every later layer. Here
# the noisy network is compared with its own mean: a pre-activation under all noise is dominated by
# one normal variable, whose variance is the sum of the layers' variances. That takes noise scales
# that are known beforehand, so a cap is named: an example whose activations exceed it counts as
# lost.


def joint_levels(widths: Sequence[int], escape: float, *, sparse: bool) -> tuple[float, float]:
    """Likewise; one event for each unit, on both sides."""
    if not sparse:
        return escape, 0.0
    quantile = bounds.expected_shortfall(escape * EVENT_SHARE / (2 * sum(widths)))
    return escape * (1.0 - EVENT_SHARE), quantile


def threshold_f(
    noisy: NoisyPass,
    inputs: Inputs,
    constants: Constants,
    setting: Tailed,
    *,
    sparse: bool,
    anchor: Tensor,
    grams: Sequence[Tensor],
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label.

    anchor   see :func:`threshold_e`
    grams    per hidden layer but the first :func:`positive_gram` of the prior's weights
    """
    hidden, sigmas = len(noisy.before), setting.sigmas
    widths = [values.shape[1] for values in noisy.before]
    left, deviation = joint_levels(widths, setting.escape_probability, sparse=sparse)
    # The input carries no noise, so that its own size needs no room.
    room = [1.0] + [setting.tail_factor] * hidden
    caps = [sigmas[k] * room[k] * inputs.known[:, k] for k in range(hidden + 1)]
    kept = torch.ones_like(inputs.labels, dtype=torch.bool)
    for scale, cap in zip(noisy.scales[1:], caps[1:], strict=True):
        kept &= scale * _SAFE <= cap
    grown = torch.zeros_like(caps[0])
    gaps = torch.zeros_like(noisy.before[0])
    carried = torch.zeros_like(caps[0])
    for j in range(hidden):
        before = noisy.before[j]
        if j:
            # What the mean shifts of the layers before do to this one's pre-activations.
            length = gaps.square().sum(1).sqrt()
            hop = constants.spectral[j] * length
            if constants.moved:
                signed = ((gaps @ grams[j - 1]) * gaps).sum(1).sqrt() * _SAFE
                hop = torch.minimum(hop, signed + constants.moved[j] * length)
            carried = constants.spectral[j] * carried + hop
        # grown: squares of what the noise of earlier layers can do to the input of this one.
        squares = caps[j].square()[:, None].expand_as(before)
        squares = squares + grown[:, None] * constants.rows[j].square()
        spread = squares.sqrt().clamp(min=1e-280)
        if sparse:
            away = deviation * spread * _SAFE
            excess = (before.abs() - away).clamp(min=0)
            gaps = spread * kinks(excess / spread)
        else:
            excess, gaps = torch.zeros_like(before), KINK * spread
        # The square of how much layer j, noise included, stretches a difference on average.
        stretch = constants.spectral[j] ** 2 + before.shape[1] * sigmas[j] ** 2
        grown = caps[j].square() + stretch * grown
    norms = constants.norms(inputs.labels)
    if sparse:
        own = [(gaps, spread.amax(1), excess)]
        means = mean_shifts(own, inputs.labels, constants, anchor)
    else:
        means = KINK * spread.amax(1, keepdim=True) * constants.sums(inputs.labels)
    variance = norms.square() * grown[:, None] + 2.0 * caps[-1][:, None].square()
    total = means + norms * carried[:, None] + bounds.expected_shortfall(left) * variance.sqrt()
    return torch.where(kept[:, None], total, torch.inf)


def positive_gram(matrix: Tensor) -> Tensor:
    """The positive entries of W^T W: shifts of means are never negative, so only these add up."""
    gram = (matrix.T @ matrix).clamp(min=0)
    # More than rounding can have taken from any entry, put where it counts for all.
    room = max(1e-12, len(matrix) * 2.0**-52)
    return gram + room * float(matrix.square().sum()) * torch.eye(len(gram), device="cpu").to(gram)
