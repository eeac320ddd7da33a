"""Multilayer perceptrons as batched matrices: one product per layer serves all networks.

Weights are kept as (networks, inputs, outputs), transposed against torch's linear layers, so that
batched products read them as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nonvacuous.models.mlp import Mlp
from nonvacuous.training.many_dropout import dropped
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_material import Material
from nonvacuous.training.many_modules import precision
from nonvacuous.training.many_stacked import StackedTrainer


def linear_stack(module: nn.Module) -> list[tuple[str, nn.Linear]] | None:
    """The linear layers of a plain perceptron by name; None for any other network.

    Plain: flattening, then linear layers with biases and one ReLU between each two, in
    `nn.Sequential` or in the package's own `Mlp`, nothing frozen.
    """
    allowed = (nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, Mlp)
    named = list(module.named_modules())
    if not all(type(layer) in allowed for _, layer in named):
        return None
    if type(module) not in (Mlp, nn.Sequential) or _has_hooks(module):
        return None
    layers = [(name, layer) for name, layer in named if isinstance(layer, nn.Linear | nn.ReLU)]
    linear = [(name, layer) for name, layer in layers if isinstance(layer, nn.Linear)]
    alternates = len(layers) == 2 * len(linear) - 1 and all(
        isinstance(layer, nn.ReLU) == (place % 2 == 1) for place, (_, layer) in enumerate(layers)
    )
    whole = all(
        layer.bias is not None and layer.weight.requires_grad and layer.bias.requires_grad
        for _, layer in linear
    )
    return linear if alternates and whole else None


def _has_hooks(module: nn.Module) -> bool:
    return any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


class MatricesTrainer(StackedTrainer):
    """See `nonvacuous.training.many_trainer.Trainer`."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        jobs: Sequence[Job],
        material: Material,
        settings: ManySettings,
    ) -> None:
        super().__init__(jobs, material, settings)
        stacks = [linear_stack(module) or [] for module in modules]
        self._names = [name for name, _ in stacks[0]]
        trained = {}
        for place, name in enumerate(self._names):
            layers = [stack[place][1] for stack in stacks]
            weights = [layer.weight.detach().T.to(material.device) for layer in layers]
            biases = [layer.bias.detach().to(material.device) for layer in layers]
            trained[f"{name}.weight"] = torch.stack(weights)
            trained[f"{name}.bias"] = torch.stack(biases)
        self.take(trained, {})

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        values = inputs.flatten(2)
        with precision(self._settings, values.device):
            for place, name in enumerate(self._names):
                if place > 0:
                    values = values.relu()
                    if training and self.drops:
                        values = self._dropped(values, place)
                bias = self.trained[f"{name}.bias"].unsqueeze(1)
                values = torch.baddbmm(bias, values, self.trained[f"{name}.weight"])
        return values

    def _dropped(self, values: Tensor, place: int) -> Tensor:
        rate = self.chance.rate.view(-1, 1, 1)
        return dropped(values, self.chance, -place, rate)

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor.T if name.endswith(".weight") else tensor
            for name, tensor in tensors.items()
        }
