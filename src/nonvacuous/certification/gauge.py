"""Post-hoc certificates that do not depend on the gauge in which the weights were given.

A rescaled posterior is a posterior like any other, and the randomized network that draws from it
computes the same functions with the same probabilities. So the certificate is simply about the
posterior in its best gauge: nothing downstream needs to know how it was found. (The gauge is
chosen after seeing the data; that is free, since the bound holds for all posteriors at once.)

Two moves. First the weights go to the point of their orbit that a prior with next to no noise
prefers: it is the same point in whatever gauge they came. Noise of equal scale is put around that
point, and then posterior and prior scale are improved in turn.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import Prior
from nonvacuous.errors import NotYetSupported, Unsupported
from nonvacuous.networks import ScaleGroups, capture, scale_groups
from nonvacuous.rescaling import push, rescale
from nonvacuous.rescaling.output_layer import invariance_of, output_layer
from nonvacuous.rescaling.output_scale import with_output_scale
from nonvacuous.risk import Loss

#: Noise that marks a point of the orbit, relative to each weight: it moves along with the weight.
_POINT = 1e-3
#: Rounds of improving gauge and prior scale in turn; each lowers the KL, few matter.
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Gauge:
    """The free scales of a network, and the point of its orbit from which everything starts."""

    groups: ScaleGroups
    weights: dict[str, Tensor]
    log_scales: np.ndarray


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A posterior in its best gauge, with the prior chosen for it."""

    posterior: DiagonalGaussian
    prior: DiagonalGaussian
    log_scales: np.ndarray
    kl_nats: float


def find_gauge(module: nn.Module, examples: Examples, prior: Prior, loss: Loss) -> Gauge | str:
    """The network's free scales and its starting point, or the reason why there are none.

    Where the loss sees only the order of the scores, their common scale is free as well.
    """
    device = next(module.parameters()).device
    try:
        graph = capture(module, examples.inputs[:2].to(device))
    except Unsupported as error:
        return str(error)
    groups = scale_groups(graph)
    if groups.size == 0:
        return "no channel of the network can be rescaled: " + "; ".join(
            f"{pinned.what}: {pinned.reason}" for pinned in groups.pinned
        )
    point = {name: p.detach().abs() * _POINT + 1e-12 for name, p in module.named_parameters()}
    marked = DiagonalGaussian.around(module, scale=point)
    middle = prior.grid.scales[len(prior.grid) // 2]
    found = rescale(marked, prior.at(module, middle), groups)
    weights = push(marked, groups, found.log_scales).mean_weights()
    log_scales = found.log_scales
    if invariance_of(loss.name).scale:
        with contextlib.suppress(NotYetSupported):  # the last layer is none that can be scaled
            groups = with_output_scale(groups, output_layer(graph))
            # Only now: without noise, the scores would shrink until any noise drowns them.
            log_scales = np.append(log_scales, 0.0)
    return Gauge(groups=groups, weights=weights, log_scales=log_scales)


def best_in_orbit(gauge: Gauge, module: nn.Module, prior: Prior, scale: float) -> Rescaled:
    """Equal noise around the starting point, then gauge and prior scale in turn."""
    start = DiagonalGaussian.from_means(gauge.weights, scale)
    chosen = prior.choose(module, start).distribution
    best = Rescaled(start, chosen, gauge.log_scales, start.kl_nats(chosen))
    for _ in range(_ROUNDS):
        found = rescale(start, best.prior, gauge.groups)
        posterior = push(start, gauge.groups, found.log_scales)
        chosen = prior.choose(module, posterior).distribution
        kl_nats = posterior.kl_nats(chosen)
        if kl_nats >= best.kl_nats * (1.0 - 1e-9):
            break
        best = Rescaled(posterior, chosen, gauge.log_scales + found.log_scales, kl_nats)
    return best
