"""Copies of networks that users made, which are never touched; several of them side by side."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from nonvacuous.errors import BadInput


def copied_network(module: nn.Module) -> nn.Module:
    """A deep copy that shares nothing; what was computed with gradients is copied without them.

    Such tensors are a last activation kept in an attribute, or the weights that PyTorch's older
    weight norm and its pruning compute. Without gradients they are plain numbers.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise BadInput(
            "the network is compiled TorchScript, whose parts cannot be replaced one by one; give "
            "the nn.Module that it was made from, with the same weights."
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise BadInput(
                f"{name!r} has no shape yet: lazy layers get theirs in the first call. Call the "
                "network once on a few inputs, then give it again."
            )
    try:
        with _WithoutGraphs():
            return copy.deepcopy(module)
    except Exception as error:  # attributes may be anything
        raise BadInput(
            f"the network cannot be copied ({type(error).__name__}: {error}), and the original is "
            "never touched; keep only parameters, buffers and plain values as attributes."
        ) from error


class _WithoutGraphs(TorchFunctionMode):
    """Lets deepcopy take tensors that torch refuses to copy with the graph they come from."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            result = tensor.detach().clone()
            memo[id(tensor)] = result
            return result
        return func(*args, **(kwargs or {}))


class Checkpoints(nn.Module):
    """The scores of all checkpoints side by side: what is drawn from, without chance."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([network(inputs) for network in self.networks], dim=1)


class CheckpointMixture(Checkpoints):
    """The predictor of a progressive certificate: for each input one checkpoint, drawn afresh.

    A checkpoint is drawn with the share of the examples that it was tested on, from torch's global
    generator; ``tests`` are their numbers. One plain module: ``torch.export`` takes it.
    """

    ends: Tensor

    def __init__(self, networks: Sequence[nn.Module], tests: Sequence[int]) -> None:
        super().__init__(networks)
        self.register_buffer("ends", torch.tensor(tests).cumsum(0))
        self.tests = sum(tests)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        # Whole numbers, so that the shares are exact.
        lots = torch.randint(self.tests, (inputs.shape[0],), device=inputs.device)
        drawn = torch.searchsorted(self.ends, lots, right=True)
        scores = torch.stack([network(inputs) for network in self.networks], dim=1)
        return scores[torch.arange(inputs.shape[0], device=inputs.device), drawn]
