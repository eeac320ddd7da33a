"""A network trained as an ordinary module, by itself: step by step, or recorded and replayed.

Recorded, the whole step of a network (gathering its batch, augmentation, forward, backward and
update) is one CUDA graph. Each network replays its graphs on its own stream, so that the kernels of
one network fill the gaps of the others; all of them run the same kernels as alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nonvacuous.training.many_dropout import Chance, seed_dropout, with_faster_layers
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_material import Material
from nonvacuous.training.many_stacked import Stack


class Solo(Stack):
    """One module with torch's own optimizer."""

    #: Few enough for a GPU's memory, and a divisor of the usual sizes: no batch is nearly empty.
    measured_at_once = 1000

    def __init__(
        self,
        module: nn.Module,
        job: Job,
        material: Material,
        settings: ManySettings,
        *,
        recorded: bool,
    ) -> None:
        super().__init__([job], material, settings, recorded=recorded)
        device = material.device
        own = Chance(self.chance.seed[0], self.chance.step, self.chance.rate[0])
        module = with_faster_layers(module.to(device))
        module = seed_dropout(module, own, everywhere=self.drops)
        if any(tensor.ndim == 4 for tensor in module.parameters()):
            # torch's annotations leave out this argument of `to`.
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._module = module
        self._rate = torch.tensor(job.learning_rate, device=device)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(
            self._parameters,
            # A tensor on the GPU, which a recorded step reads anew; elsewhere a plain number.
            lr=self._rate if device.type == "cuda" else job.learning_rate,
            momentum=settings.momentum,
            weight_decay=job.weight_decay,
            fused=True if device.type == "cuda" else None,
        )
        if settings.momentum:
            for parameter in self._parameters:
                # Zeros from the start are what torch's SGD makes of a first step.
                buffer = torch.zeros_like(parameter)
                self._optimizer.state[parameter]["momentum_buffer"] = buffer

    def begin_epoch(
        self, orders: Sequence[Tensor], rates: Sequence[float], first_step: int
    ) -> None:
        super().begin_epoch(orders, rates, first_step)
        self._rate.fill_(rates[0])
        if self._material.device.type != "cuda":
            self._optimizer.param_groups[0]["lr"] = rates[0]

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        if self._module.training != training:
            self._module.train(training)
        with precision(self._settings, self._material.device):
            outputs: Tensor = self._module(inputs[0])
        return outputs.unsqueeze(0)

    def _learn(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def changed(self) -> list[Tensor]:
        return list(self.tensors(0).values())

    def tensors(self, number: int) -> dict[str, Tensor]:
        named = {f"state.{name}": tensor for name, tensor in self._module.state_dict().items()}
        for name, parameter in self._module.named_parameters():
            memory = self._optimizer.state.get(parameter, {}).get("momentum_buffer")
            if memory is not None:
                named[f"momentum.{name}"] = memory
        return named


def precision(settings: ManySettings, device: torch.device) -> torch.autocast:
    """The arithmetic of forward passes."""
    return torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=settings.precision == "bfloat16"
    )
