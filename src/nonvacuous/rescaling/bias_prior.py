"""Prior scales for biases that grow with depth.

Rescaling moves a bias by the product of all scales up to its layer, while a weight feels only the
ratio of two neighboring ones. With one prior scale for everything, the biases of a deep network
hold the scales back. A prior whose bias scales grow geometrically with depth does not. The growth
is part of the prior: it is fixed before the data, or chosen from a grid and charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import ChosenPrior, ScaleGrid
from nonvacuous.errors import BadInput
from nonvacuous.networks.layer_graph import LayerGraph, Reference

_WITH_BIAS = frozenset(
    f"aten.{kind}"
    for kind in (
        "linear",
        *(f"conv{transposed}{d}d" for transposed in ("", "_transpose") for d in (1, 2, 3)),
    )
)


def bias_depths(graph: LayerGraph) -> dict[str, int]:
    """How many weight layers lie before each bias on the longest way from the input.

    Biases of linear and convolutional layers count; 0 is the first layer. A bias that is used in
    several places takes its deepest one.
    """
    depth: dict[str, int] = {}
    depths: dict[str, int] = {}
    for node in graph.nodes:
        before = max((depth.get(name, 0) for name in node.inputs), default=0)
        has_weight = node.op.rpartition(".")[0] in _WITH_BIAS
        if has_weight:
            bias = node.arguments.get("bias")
            if isinstance(bias, Reference) and bias.kind == "parameter":
                depths[bias.name] = max(depths.get(bias.name, 0), before)
        depth[node.name] = before + int(has_weight)
    return depths


def geometric_bias_prior(
    shapes: Mapping[str, tuple[int, ...]],
    depths: Mapping[str, int],
    *,
    scale: float = 1.0,
    bias_scale: float | None = None,
    growth: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> DiagonalGaussian:
    """A zero-mean prior whose bias scales are ``bias_scale * growth**depth``.

    shapes       of every parameter, such as ``graph.parameters``
    depths       of the biases, from :func:`bias_depths`; every other tensor has the scale ``scale``
    bias_scale   of the first layer's biases; by default ``scale``
    growth       fixed before the data; see :func:`choose_bias_growth` for a choice that is charged

    >>> prior = geometric_bias_prior({"w": (2,), "b": (2,)}, {"b": 3}, scale=0.5, growth=2.0)
    >>> float(prior.scales["w"][0]), float(prior.scales["b"][0])
    (0.5, 4.0)
    """
    first = scale if bias_scale is None else bias_scale
    for label, value in (("scale", scale), ("bias_scale", first), ("growth", growth)):
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{label} must be a finite number above 0, got {value!r}")
    for name in depths.keys() - shapes.keys():
        raise BadInput(f"depths names {name!r}, which is not a parameter of the network")
    scales = {name: first * growth ** depths[name] if name in depths else scale for name in shapes}
    means = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    return DiagonalGaussian.from_means(means, scales)


def choose_bias_growth(
    shapes: Mapping[str, tuple[int, ...]],
    depths: Mapping[str, int],
    *,
    growths: ScaleGrid,
    kl_nats: Callable[[DiagonalGaussian], float],
    scale: float = 1.0,
    bias_scale: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> ChosenPrior:
    """The growth of the grid with the least KL, and what the choice must be charged.

    ``kl_nats`` gives the complexity of the posterior under a candidate, for example
    ``lambda P: rescale(Q, P, groups).kl_after``. The grid must have been fixed before the data.
    """
    candidates = {
        growth: geometric_bias_prior(
            shapes, depths, scale=scale, bias_scale=bias_scale, growth=growth, dtype=dtype
        )
        for growth in growths.scales
    }
    best = min(candidates, key=lambda growth: kl_nats(candidates[growth]))
    return ChosenPrior(
        distribution=candidates[best],
        scales=MappingProxyType({"bias growth": best}),
        charge_nats=growths.charge_nats(),
    )
