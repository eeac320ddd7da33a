"""Theorem E: noise enters layer by layer, and each layer's share concentrates on its own.

Statement and proof: docs/theory/sparsity.md, 6. The names are those of the proof: the network whose
first k layers are noisy differs from the one with k - 1 noisy layers by a Lipschitz function of the
noise of layer k. Its mean is moved only by units that may change sign; its spread is a martingale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.bounds.sparsity import expected_shortfall, kink, lipschitz_quantile
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


@dataclass(frozen=True)
class Levels:
    """What of the escape probability is left for the output, and the quantile of the events."""

    output: float
    deviation: float


def levels(widths: Sequence[int], escape: float, *, sparse: bool) -> Levels:
    """Split the escape probability; without sparsity there are no events to pay for."""
    if not sparse:
        return Levels(escape, 0.0)
    event = escape * EVENT_SHARE
    count = sum(layer * width for layer, width in enumerate(widths, start=1))
    quantile = lipschitz_quantile(failure=event, events=count)
    return Levels(escape * (1.0 - EVENT_SHARE), quantile)


def thresholds(
    noisy: NoisyPass,
    inputs: Inputs,
    constants: Constants,
    setting: Tailed,
    *,
    sparse: bool,
    anchor: Tensor | None = None,
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label.

    anchor   positive parts of the prior's w_y - w_c, (classes, classes, width): the weights that
             the mean shifts of single units meet, up to the drift. Without it, sums of the largest
             weights are used, for as many units as are not stable
    """
    hidden, sigmas = len(noisy.before), setting.sigmas
    widths = [values.shape[1] for values in noisy.before]
    split = levels(widths, setting.escape_probability, sparse=sparse)
    if sparse:
        carried, last = _shifts(noisy, constants, split.deviation)
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
    return total + tail_threshold(variance, guess.clamp(min=1e-280), split.output, setting)


def tail_threshold(variance: Tensor, guess: Tensor, failure: float, setting: Tailed) -> Tensor:
    """How far the noise of all layers can carry a margin, up to the failure probability.

    guess   the variance that the reference network has at the same example
    """
    if setting.tail == "cap":
        cap = setting.tail_factor * guess
        reached = expected_shortfall(failure) * cap.sqrt()
        return torch.where(variance * (1.0 + 1e-9) <= cap, reached, torch.inf)
    nats = -math.log(failure)
    rate = setting.tail_factor * (2.0 * nats / guess).sqrt()
    return 0.5 * rate * variance + nats / rate


def _dense(noisy: NoisyPass, labels: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
    """The mean shifts when every unit may change sign: only widths and norms count."""
    hidden = len(noisy.before)
    shifts: dict[int, Tensor] = {}
    carried = torch.zeros_like(noisy.scales[0])
    for j in range(hidden):
        root = math.sqrt(noisy.before[j].shape[1])
        grown = {k: constants.spectral[j] * shifts[k] for k in shifts}
        if j == hidden - 1:
            carried = carried + sum(grown.values())
        for k in range(j + 1):
            own = noisy.scales[k] * (KINK * root * _reach(constants, k, j))
            shifts[k] = grown[k] + own if k < j else own
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
    lengths: dict[int, Tensor] = {}
    for j in range(hidden):
        distance = noisy.before[j].abs()
        grown = {k: constants.spectral[j] * lengths[k] for k in lengths}
        if j == hidden - 1:
            carried = carried + sum(grown.values())
        moved = torch.zeros_like(carried)
        shifted: dict[int, Tensor] = {}
        # From the latest noise to the earliest: each adds to how far the pre-activation can be
        # from the mean of the hybrid network with k noisy layers.
        for k in range(j, -1, -1):
            reach = (noisy.scales[k] * _reach(constants, k, j)).clamp(min=1e-280)
            moved = moved + deviation * reach
            excess = (distance - (moved * (1.0 + 1e-9))[:, None]).clamp(min=0)
            gaps = reach[:, None] * kinks(excess / reach[:, None])
            own = gaps.square().sum(1).sqrt()
            shifted[k] = grown[k] + own if k < j else own
            if k < j:
                moved = moved + constants.longest[j] * lengths[k]
            if j == hidden - 1:
                last.append((gaps, reach, excess))
        lengths = shifted
    return carried, last


def mean_shifts(
    shifts: Shifts, labels: Tensor, constants: Constants, anchor: Tensor | None
) -> Tensor:
    """What the mean shifts of the last hidden layer do to the margin of each pair."""
    if anchor is not None:
        assert constants.drift is not None
        gaps = torch.stack([gaps for gaps, _, _ in shifts]).sum(0)
        return anchored_means(gaps, labels, anchor, constants.drift)
    whole, rest = constants.sums(labels), kink(_STABLE)
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
    return result * (1.0 + 1e-9) + drift * values.square().sum(1).sqrt()[:, None]


def kinks(distance: Tensor) -> Tensor:
    """psi of every entry, rounded up as in bounds.sparsity.kink."""
    density = torch.exp(-0.5 * distance.square()) / _ROOT_TWO_PI
    tail = 0.5 * torch.special.erfc(distance / math.sqrt(2.0))
    rounded: Tensor = (density - distance * tail).clamp(min=0) + 1e-12 * density
    return rounded


def _reach(constants: Constants, k: int, j: int) -> float:
    """Lambda: how much one unit of layer j can move per unit of movement of layer k."""
    return 1.0 if k == j else constants.longest[j] * math.prod(constants.spectral[k + 1 : j])
