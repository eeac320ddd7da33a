"""No free scale is missed: the count agrees with what the derivative of the network allows.

A family of factors exp(t·v) on the single weights leaves the function alone, whatever the weights,
only if the derivative of every output in direction v·w is 0 for all weights w and inputs. The
dimension of the space of such v, found numerically and without looking at any layer, is the
largest number of free scales that a network can have.
"""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, jacrev

from tests.networks.architecture import Architecture
from tests.networks.architectures import BY_NAME

QUICK = (
    "mlp", "mlp without biases", "mlp leaky relu", "mlp prelu", "mlp squared relu", "mlp tanh",
    "squeezenet", "conv1d", "residual on the raw input", "upsampling", "adaptive pooling",
    "functional", "glu by chunk", "reglu by chunk", "bag of words", "tied language model",
    "recurrent", "recurrent without bias", "linear attention", "weights with heads",
)  # fmt: skip
SLOW = (
    "lenet", "preactivation resnet", "densenet", "mobilenet relu", "mobilenet relu6", "inception",
    "unet", "grouped convolutions", "conv3d", "zero-padded shortcut",
)  # fmt: skip


def symmetries(architecture: Architecture) -> int:
    """The dimension of the directions v with sum of v·w·(derivative by w) = 0, always."""
    module, _ = architecture.made()
    names = [name for name, _ in module.named_parameters()]
    shapes = [parameter.shape for parameter in module.parameters()]
    sizes = [parameter.numel() for parameter in module.parameters()]
    count = sum(sizes)

    def outputs(flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        parts = zip(names, flat.split(sizes), shapes, strict=True)
        weights = {name: part.view(shape) for name, part, shape in parts}
        return functional_call(module, weights, (x,)).flatten()

    generator = torch.Generator().manual_seed(3)
    gram = torch.zeros(count, count, dtype=torch.float64)
    rows = draws = 0
    while rows < 4 * count or draws < 12:
        weights = 0.7 * torch.randn(count, generator=generator, dtype=torch.float64)
        derivative = jacrev(outputs)(weights, architecture.example()) * weights
        length = derivative.norm(dim=1, keepdim=True)
        derivative = (derivative / length)[length.flatten() > 0]
        gram += derivative.T @ derivative
        rows += len(derivative)
        draws += 1
    eigenvalues = torch.linalg.eigvalsh(gram)
    return int((eigenvalues < 1e-10 * eigenvalues.max()).sum())


@pytest.mark.slow_if("upsampling")
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_as_many_scales_are_found_as_the_derivative_allows(name: str) -> None:
    """The hand count, which the count that the library finds is compared with as well."""
    assert BY_NAME[name].free == symmetries(BY_NAME[name])
