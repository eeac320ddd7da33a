"""Any networks of one architecture, stacked: one forward pass of `torch.func.vmap` serves all."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.training.many_dropout import Chance, seed_dropout
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_layers import with_faster_layers
from nonvacuous.training.many_material import Material
from nonvacuous.training.many_modules import precision
from nonvacuous.training.many_stacked import StackedTrainer


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
