"""Move a network along its scales: other weights, the same function."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.networks.capture import Example, capture
from nonvacuous.networks.scale_groups import ScaleGroups, scale_groups


def rescaled(module: nn.Module, groups: ScaleGroups, log_scales: ArrayLike) -> nn.Module:
    """A copy of the network with every weight multiplied by its factors: the same function.

    The products are formed in float64 and rounded once, to the weights' own type, so in float32
    the outputs agree to rounding only.

    module       the network from which the groups were made; it is not changed
    log_scales   one natural logarithm per free scale, such as nv.rescale(...).log_scales
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if shapes != dict(groups.shapes):
        differing = sorted(
            name
            for name in shapes.keys() | groups.shapes.keys()
            if shapes.get(name) != groups.shapes.get(name)
        )
        raise BadInput(
            f"the groups belong to another network than this {type(module).__name__}: they "
            f"differ in {', '.join(differing[:5])}; capture this network and make its own groups"
        )
    factors = groups.factors(log_scales)
    result = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            factor = torch.from_numpy(factors[name]).to(parameter.device)
            wide = torch.complex128 if parameter.is_complex() else torch.float64
            parameter.copy_((parameter.to(wide) * factor).to(parameter.dtype))
    return result


def preservation_error(
    module: nn.Module,
    example: Example,
    *,
    groups: ScaleGroups | None = None,
    spread: float = 1.0,
    draws: int = 3,
    seed: int = 0,
) -> float:
    """How far random scales change the outputs, relative to the largest output, in float64.

    A correct set of rules gives a few times 1e-15; a wrong one gives something like 1. Every rule
    for an operator must pass this test.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    if groups is None:
        groups = scale_groups(capture(module, arguments))
    arguments = tuple(_double(argument) for argument in arguments)
    module = copy.deepcopy(module).double()
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        expected = _outputs(module(*arguments))
        worst = 0.0
        for _ in range(draws):
            log_scales = generator.normal(scale=spread, size=groups.size)
            found = _outputs(rescaled(module, groups, log_scales)(*arguments))
            for one, other in zip(expected, found, strict=True):
                largest = float(one.abs().max()) or 1.0
                worst = max(worst, float((one - other).abs().max()) / largest)
    return worst


def _double(argument: object) -> object:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.double()
    return argument


def _outputs(value: object) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf.double() for leaf in leaves if isinstance(leaf, Tensor)]
