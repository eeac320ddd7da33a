"""What every method of training many networks offers to the loop, and which one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.models.cnn import Mlp
from nonvacuous.training.many_dropout import Chance, dropped, seed_dropout, with_faster_layers
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_material import Material
from nonvacuous.training.many_modules import ModulesTrainer, precision
from nonvacuous.training.many_recording import Measured
from nonvacuous.training.many_stacked import StackedTrainer

# Multilayer perceptrons as batched matrices: one product per layer serves all networks.
#
# Weights are kept as (networks, inputs, outputs), transposed against torch's linear layers, so that
# batched products read them as they lie.


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
        isinstance(layer, nn.ReLU) == (number % 2 == 1) for number, (_, layer) in enumerate(layers)
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
        for number, name in enumerate(self._names):
            layers = [stack[number][1] for stack in stacks]
            weights = [layer.weight.detach().T.to(material.device) for layer in layers]
            biases = [layer.bias.detach().to(material.device) for layer in layers]
            trained[f"{name}.weight"] = torch.stack(weights)
            trained[f"{name}.bias"] = torch.stack(biases)
        self.take(trained, {})

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        values = inputs.flatten(2)
        with precision(self._settings, values.device):
            for number, name in enumerate(self._names):
                if number > 0:
                    values = values.relu()
                    if training and self.drops:
                        values = self._dropped(values, number)
                bias = self.trained[f"{name}.bias"].unsqueeze(1)
                values = torch.baddbmm(bias, values, self.trained[f"{name}.weight"])
        return values

    def _dropped(self, values: Tensor, number: int) -> Tensor:
        rate = self.chance.rate.view(-1, 1, 1)
        return dropped(values, self.chance, -number, rate)

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor.T if name.endswith(".weight") else tensor
            for name, tensor in tensors.items()
        }


# Any networks of one architecture, stacked: one forward pass of `torch.func.vmap` serves all.


class VmapTrainer(StackedTrainer):
    """See `nonvacuous.training.many_trainer.Trainer`. Frozen parameters are kept as buffers."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        jobs: Sequence[Job],
        material: Material,
        settings: ManySettings,
    ) -> None:
        super().__init__(jobs, material, settings)
        if settings.precision == "bfloat16" and any(
            isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in modules[0].modules()
        ):
            raise BadInput(
                'method="vmap" cannot train batch normalization in bfloat16: torch.func.vmap wants '
                'its running statistics in the same precision. Use method="auto".'
            )
        device = material.device
        stacked, buffers = stack_module_state([module.to(device) for module in modules])
        frozen = {name for name, p in modules[0].named_parameters() if not p.requires_grad}
        still = {name: stacked[name].detach() for name in frozen}
        trained = {name: t.detach() for name, t in stacked.items() if name not in frozen}
        self.take(trained, {**buffers, **still})
        # What the layers of dropout read: set to each network's own while vmap runs.
        self._inner = Chance(self.chance.seed[0], self.chance.step, self.chance.rate[0])
        self._module = seed_dropout(
            with_faster_layers(modules[0]), self._inner, everywhere=self.drops
        )

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        self._module.train(training)
        self._inner.step = self.chance.step

        def one(tensors: dict[str, Tensor], seed: Tensor, rate: Tensor, batch: Tensor) -> Tensor:
            self._inner.seed, self._inner.rate = seed, rate
            result: Tensor = functional_call(self._module, tensors, (batch,))
            return result

        both = {**self.trained, **self.buffers}
        try:
            with precision(self._settings, inputs.device):
                outputs: Tensor = vmap(one)(both, self.chance.seed, self.chance.rate, inputs)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            raise Unsupported(
                f'This network cannot be trained by torch.func.vmap: {error}. Use method="auto".'
            ) from error
        return outputs


class Trainer(Protocol):
    """Some networks in training, each at the place it was given in."""

    @property
    def leaving_is_dear(self) -> bool:
        """Whether `keep` costs more than some epochs of networks that nobody needs."""

    def ready(self) -> None:
        """Record what will be replayed; raises `Unsupported` where that cannot be done."""

    def epoch(
        self,
        orders: Sequence[Tensor],
        rates: Sequence[float],
        first_step: int,
        tick: Callable[[], None],
    ) -> None:
        """Visit every example once in each network's order; `tick` after each network's step."""

    def measure(self) -> list[Measured]:
        """All networks in evaluation mode, on the training and the test set."""

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these networks only; they get the places 0, 1, ... in this order."""

    def tensors(self, number: int) -> dict[str, Tensor]:
        """The network as state.NAME and its momentum as momentum.NAME.

        They share the network's memory: writing into them changes the network.
        """


def resolved(method: str, module: nn.Module, device: torch.device) -> str:
    """The method that "auto" stands for, or `method` itself where the network allows it."""
    stack = linear_stack(module)
    if method == "matrices" and stack is None:
        raise BadInput(
            'method="matrices" trains plain stacks of linear layers with ReLU between them, such '
            f'as models.build("mlp:512"), but the network is {type(module).__name__}. Use '
            'method="auto".'
        )
    if method == "streams" and device.type != "cuda":
        raise BadInput(
            f'method="streams" needs a CUDA device, but the device is {device}. Use method="auto".'
        )
    if method != "auto":
        return method
    if stack is not None:
        return "matrices"
    return "streams" if device.type == "cuda" else "one at a time"


def build_trainer(
    method: str,
    modules: Sequence[nn.Module],
    jobs: Sequence[Job],
    material: Material,
    settings: ManySettings,
) -> Trainer:
    """A trainer of these networks by the method named."""
    if method == "matrices":
        return MatricesTrainer(modules, jobs, material, settings)
    if method == "vmap":
        return VmapTrainer(modules, jobs, material, settings)
    return ModulesTrainer(modules, jobs, material, settings, recorded=method == "streams")
