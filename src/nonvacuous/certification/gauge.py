"""Noise around a network's weights, in several gauges, each moved to where its KL is smallest.

A rescaled posterior is a posterior like any other, and the randomized network that draws from it
computes the same functions with the same probabilities. So a posterior is moved along its orbit
exactly, mean and noise together, and its risk stays what it was. That can only help.

Equal noise put around other weights of the same orbit is *another* posterior, with a risk of its
own: much better or much worse. So it is tried in several gauges, and the bound decides:

given      the weights as they came; what a certificate without rescaling would use
balanced   every hidden channel has equal norms in and out: one point of the orbit, whatever the
           gauge in which the weights came
nearest    as near to the prior's center as possible, where that is not zero
cheapest   where the best balanced one went when it was moved: the point that the prior prefers

All choices are about the posterior, so they are free: the bound holds for all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import Prior
from nonvacuous.errors import NotYetSupported, Unsupported
from nonvacuous.networks import LayerGraph, ScaleGroups, scale_groups
from nonvacuous.rescaling import prior_scales, solver
from nonvacuous.rescaling.output_layer import invariance_of, output_layer, with_output_scale
from nonvacuous.risk.losses import Loss
from nonvacuous.rules.symmetries import captured

Where = Literal["given", "balanced", "nearest", "cheapest"]

#: Noise that marks a point of the orbit, relative to each weight: it moves along with the weight.
_POINT = 1e-3
#: Under a prior this narrow only distances count, not numbers of weights.
_NARROW = 1e-8


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A posterior with the prior chosen for it, and how far it was moved from the given gauge.

    noise   the posterior before it was moved
    """

    noise: DiagonalGaussian
    posterior: DiagonalGaussian
    prior: DiagonalGaussian
    log_scales: np.ndarray

    @cached_property
    def kl_nats(self) -> float:
        return self.posterior.kl_nats(self.prior)


def free_scales(graph: LayerGraph, loss: str) -> tuple[ScaleGroups, ScaleGroups]:
    """The scales of hidden channels alone, and with the scale of the scores where it is free."""
    hidden = scale_groups(graph)
    if not invariance_of(loss).scale:
        return hidden, hidden
    try:
        return hidden, with_output_scale(hidden, output_layer(graph))
    except NotYetSupported:  # the last layer is none that can be scaled
        return hidden, hidden


class Gauge:
    """The free scales of a network, and noise around its weights in every gauge.

    hidden   the scales of hidden channels, which leave the scores as they are
    groups   the same and, where the loss sees only the order of the scores, their common scale
    """

    def __init__(self, graph: LayerGraph, loss: Loss, module: nn.Module, prior: Prior) -> None:
        self.graph = graph
        self.hidden, self.groups = free_scales(graph, loss.name)
        self._module = module
        self._family: dict[str, Any] = {"grid": prior.grid, "per_tensor": prior.per_tensor}
        self._center = prior.at(module, prior.grid.scales[0]).means
        #: Where noise is put.
        self.wheres: tuple[Where, ...] = ("given", "balanced", "cheapest")
        if prior.means is not None:
            self.wheres += ("nearest",)
        #: Where the balanced noise that was moved last ended: the gauge of the cheapest.
        self._end: np.ndarray | None = None
        #: The balanced point of the orbit, and the one nearest to the prior's center.
        self._points: dict[Where, np.ndarray] = {}
        #: The weights in each gauge.
        self._weights: dict[Where, Mapping[str, Tensor]] = {}
        #: Where the noise of a gauge that was looked at last wants to go.
        self._near: dict[Where, np.ndarray] = {}

    def rough_nats(self, where: Where, noise: DiagonalGaussian) -> float:
        """About the KL of ``rescaled``, in a fraction of its time."""
        start = self._near.get(where)
        nats, self._near[where] = prior_scales.rough_rescaling(
            noise, self._center, self.groups, **self._family, start=start
        )
        return nats

    def rescaled(self, where: Where, scale: float) -> Rescaled:
        """Equal noise in one of the gauges, then the best gauge and prior scale together."""
        moves = self._log_scales(where, scale)
        noise, start = self.noise(where, scale), self._near.get(where)
        best = prior_scales.rescale_with_prior_scales(
            noise, self._center, self.groups, **self._family, start=start
        )
        total, self._near[where] = moves + best.log_scales, best.log_scales
        if where == "balanced":
            self._end = total
            self._weights.pop("cheapest", None)
        return Rescaled(noise, solver.push(noise, self.groups, best.log_scales), best.prior, total)

    def noise(self, where: Where, scale: float) -> DiagonalGaussian:
        """Equal noise in one of the gauges, not moved yet."""
        if where not in self._weights:
            moves = self._log_scales(where, scale)
            self._weights[where] = (
                solver.push(self._marked, self.groups, moves).mean_weights()
                if moves.any()
                else {name: p.detach() for name, p in self._module.named_parameters()}
            )
        return DiagonalGaussian.from_means(self._weights[where], scale)

    def _log_scales(self, where: Where, scale: float) -> np.ndarray:
        """Where the noise is put, seen from the given weights."""
        moves = np.zeros(self.groups.size)
        if where == "cheapest":
            # Only hidden scales: the scores would shrink until any noise drowns them.
            if self._end is None:
                self._end = self.rescaled("balanced", scale).log_scales
            moves[: self.hidden.size] = self._end[: self.hidden.size]
        elif where != "given":
            if where not in self._points:
                zero = DiagonalGaussian.centered(self._module, scale=_NARROW)
                nearest = DiagonalGaussian.from_means(self._center, _NARROW)
                narrow = zero if where == "balanced" else nearest
                start = solver.rescale(self._marked, narrow, self.hidden).log_scales
                # To the last digits: noise is put around this point, and all else depends on it.
                self._points[where] = solver.polished(self._marked, narrow, self.hidden, start)
            moves[: self.hidden.size] = self._points[where]
        return moves

    @cached_property
    def _marked(self) -> DiagonalGaussian:
        named = self._module.named_parameters()
        point = {name: p.detach().abs() * _POINT + 1e-12 for name, p in named}
        return DiagonalGaussian.around(self._module, scale=point)


def find_gauge(module: nn.Module, examples: Examples, prior: Prior, loss: Loss) -> Gauge | None:
    """The network's free scales; None where no channel of it is known to have one."""
    try:
        gauge = Gauge(captured(module, examples.inputs), loss, module, prior)
    except Unsupported:
        return None
    return gauge if gauge.hidden.size else None
