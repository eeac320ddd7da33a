"""What every method of training many networks offers to the loop, and which one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_material import Material
from nonvacuous.training.many_matrices import MatricesTrainer, linear_stack
from nonvacuous.training.many_measuring import Measured
from nonvacuous.training.many_modules import ModulesTrainer
from nonvacuous.training.many_vmap import VmapTrainer


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

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these networks only; they get the places 0, 1, ... in this order."""

    def tensors(self, place: int) -> dict[str, Tensor]:
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
