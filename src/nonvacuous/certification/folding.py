"""Post-hoc certificates of networks with batch normalization: about the folded network.

The running statistics are neither random nor fixed before the data, so no KL covers them. Folded
into the layers they are weights like any others: those of the trained network belong to the
posterior, those of the network that the prior is centered on to the prior. Both folded networks
predict as the given ones do.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.priors import Prior, at_initialization
from nonvacuous.errors import NonvacuousError, Unsupported
from nonvacuous.networks import fold_batch_norm

FOLDED = ", batch normalization folded into them"


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def folded(model: nn.Module, inputs: Tensor) -> nn.Module:
    """The network in evaluation mode without batch normalization, or a refusal that says how."""
    device = next(model.parameters()).device
    try:
        return fold_batch_norm(copied_network(model).eval(), inputs.to(device))
    except NonvacuousError as error:
        raise Unsupported(
            f"the network has batch normalization that could not be folded ({error}). A post-hoc "
            "certificate needs it gone: certify nv.fold_batch_norm(network, example) with the "
            "initial network folded in the same way, or use group or layer normalization."
        ) from error


def folded_prior(model: nn.Module, prior: Prior, inputs: Tensor) -> Prior:
    """The same family around the folded center; one centered on zero is as it was."""
    if prior.means is None:
        return replace(prior, fixed=None) if prior.fixed is not None else prior
    center = copied_network(model).cpu().eval()
    stored = {**prior.means, **(prior.fixed or {})}
    with torch.no_grad():
        for name, tensor in (*center.named_parameters(), *center.named_buffers()):
            if name in stored:
                tensor.copy_(stored[name])
    twin = at_initialization(folded(center, inputs), grid=prior.grid)
    recipe = prior.recipe
    if recipe is not None:
        made = recipe.make
        recipe = replace(recipe, make=lambda: folded(made(), inputs))
    return replace(prior, means=twin.means, fixed=twin.fixed, recipe=recipe)
