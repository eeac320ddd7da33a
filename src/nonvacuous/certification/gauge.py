"""Post-hoc certificates that do not depend on the gauge in which the weights were given.

A rescaled posterior is a posterior like any other, and the randomized network that draws from it
computes the same functions with the same probabilities. So the certificate is simply about the
posterior in its best gauge: nothing downstream needs to know how it was found. (The gauge is
chosen after seeing the data; that is free, since the bound holds for all posteriors at once.)

Two moves. First the weights go to the point of their orbit that a prior with next to no noise
prefers: it is the same point in whatever gauge they came. Noise of equal scale is put around that
point, and then gauge and prior scale are chosen together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from nonvacuous.audit.symmetries import captured
from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import Prior
from nonvacuous.errors import NotYetSupported, Unsupported
from nonvacuous.networks import LayerGraph, ScaleGroups, scale_groups
from nonvacuous.rescaling import push, rescale, rescale_with_prior_scales
from nonvacuous.rescaling.output_layer import invariance_of, output_layer
from nonvacuous.rescaling.output_scale import with_output_scale
from nonvacuous.rescaling.polish import polished
from nonvacuous.risk import Loss

#: Noise that marks a point of the orbit, relative to each weight: it moves along with the weight.
_POINT = 1e-3


@dataclass(frozen=True, eq=False)
class Gauge:
    """The free scales of a network, and the point of its orbit from which everything starts.

    hidden   the scales of hidden channels, which leave the scores as they are
    groups   the same and, where the loss sees only the order of the scores, their common scale
    """

    graph: LayerGraph
    hidden: ScaleGroups
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


def free_scales(graph: LayerGraph, loss: str) -> tuple[ScaleGroups, ScaleGroups]:
    """The scales of hidden channels alone, and with the scale of the scores where it is free."""
    hidden = scale_groups(graph)
    if not invariance_of(loss).scale:
        return hidden, hidden
    try:
        return hidden, with_output_scale(hidden, output_layer(graph))
    except NotYetSupported:  # the last layer is none that can be scaled
        return hidden, hidden


def find_gauge(module: nn.Module, examples: Examples, prior: Prior, loss: Loss) -> Gauge | str:
    """The network's free scales and its starting point, or the reason why there are none.

    Where the loss sees only the order of the scores, their common scale is free as well.
    """
    try:
        graph = captured(module, examples.inputs)
    except Unsupported as error:
        return str(error)
    hidden, groups = free_scales(graph, loss.name)
    if hidden.size == 0:
        return "no channel of the network can be rescaled: " + "; ".join(
            f"{pinned.what}: {pinned.reason}" for pinned in hidden.pinned
        )
    point = {name: p.detach().abs() * _POINT + 1e-12 for name, p in module.named_parameters()}
    marked = DiagonalGaussian.around(module, scale=point)
    middle = prior.grid.scales[len(prior.grid) // 2]
    # Only hidden scales: without noise, the scores would shrink until any noise drowns them.
    # To the last digits: noise is put around this point, and what follows depends on where it is.
    around = prior.at(module, middle)
    best = polished(marked, around, hidden, rescale(marked, around, hidden).log_scales)
    weights = push(marked, hidden, best).mean_weights()
    log_scales = np.append(best, np.zeros(groups.size - hidden.size))
    return Gauge(graph=graph, hidden=hidden, groups=groups, weights=weights, log_scales=log_scales)


def best_in_orbit(gauge: Gauge, module: nn.Module, prior: Prior, scale: float) -> Rescaled:
    """Equal noise around the starting point, then the best gauge and prior scale together."""
    start = DiagonalGaussian.from_means(gauge.weights, scale)
    means = prior.at(module, prior.grid.scales[0]).means
    found = rescale_with_prior_scales(
        start, means, gauge.groups, grid=prior.grid, per_tensor=prior.per_tensor
    )
    posterior = push(start, gauge.groups, found.log_scales)
    return Rescaled(
        posterior=posterior,
        prior=found.prior,
        log_scales=gauge.log_scales + found.log_scales,
        kl_nats=posterior.kl_nats(found.prior),
    )
