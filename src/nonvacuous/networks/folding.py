"""Batch normalization in evaluation mode, folded into the layer before it: the same function."""

from __future__ import annotations

import copy
from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from nonvacuous.errors import BadInput, NotYetSupported, WrongMode
from nonvacuous.networks.capture import Example, capture
from nonvacuous.networks.layer_graph import LayerGraph, Node


class ChannelAffine(nn.Module):
    """Each channel times its own factor plus its own shift: a depthwise 1 x 1 convolution.

    What a batch normalization becomes when no layer stands directly before it.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs of shape (n, c) or (n, c, ...)."""
        shape = (-1, *([1] * (inputs.dim() - 2)))
        return inputs * self.weight.view(shape) + self.bias.view(shape)


#: Where classes of batch normalization come from that do nothing besides.
_PLAIN = ("torch.nn.", "nonvacuous.models.")


def fold_batch_norm(module: nn.Module, example: Example) -> nn.Module:
    """A copy of a network in evaluation mode without batch normalization: the same function.

    Where a convolution or a linear layer stands directly before it, and nothing else reads that
    layer's output, the normalization disappears into the layer's weight and bias. Elsewhere (after
    a sum, a concatenation, an activation) it becomes a factor and a shift per channel.

    Do this before training a posterior or stating a prior: both must live on the folded weights.

    module    the network; it is not changed
    example   an input such as it will get, as for capture
    """
    if not isinstance(module, nn.Module):
        raise BadInput(f"fold_batch_norm needs a torch.nn.Module, not {type(module).__name__}")
    names = [name for name, m in module.named_modules() if isinstance(m, _BatchNorm)]
    if not names:
        return copy.deepcopy(module)
    for name in sorted(names):
        norm = module.get_submodule(name)
        hooks = {**norm._forward_hooks, **norm._forward_pre_hooks}
        if not type(norm).__module__.startswith(_PLAIN) or "forward" in vars(norm) or hooks:
            raise NotYetSupported(
                f"{name or 'the network'} is a {type(norm).__name__} that does more than batch "
                "normalization (a class of its own, a hook or another forward), which folding "
                "would drop; write that as a layer after a plain torch.nn.BatchNorm"
            )
        if norm.running_mean is None:
            raise WrongMode(
                f"{name or 'the network'} keeps no running statistics (track_running_stats="
                "False): its predictions depend on the batch, and there is nothing to fold"
            )
    layers = _layers_before(module, capture(module, example), names)
    result = copy.deepcopy(module)
    for name, layer in layers.items():
        normalization = result.get_submodule(name)
        assert isinstance(normalization, _BatchNorm)
        replacement: nn.Module = _affine(normalization)
        if layer:
            _fold_into(result.get_submodule(layer), *replacement.parameters())
            replacement = nn.Identity()
        replacement.to(normalization.running_var).eval()
        if not name:
            return replacement
        result.set_submodule(name, replacement)
    return result


def _layers_before(module: nn.Module, graph: LayerGraph, names: list[str]) -> dict[str, str]:
    """The layer into which each batch normalization folds; "" where there is none."""
    nodes = {node.name: node for node in graph.nodes}
    references = [*(r for node in graph.nodes for r in node.references), *graph.outputs]
    uses = Counter(reference.name for reference in references)
    calls: dict[str, list[Node]] = {name: [] for name in names}
    for node in graph.nodes:
        if node.op.startswith(("aten.batch_norm", "aten._native_batch_norm_legit")):
            statistics = node.arguments["running_mean"]
            owner = getattr(statistics, "name", "").rpartition(".")[0]
            calls.setdefault(owner, []).append(node)
    layers = dict.fromkeys(names, "")
    for name in names:
        inputs = calls[name][0].inputs if len(calls[name]) == 1 else ()
        before = nodes.get(inputs[0]) if inputs else None
        if before is not None and uses[before.name] == 1 and before.parameters:
            owner = before.parameters[0].rpartition(".")[0]
            if before.layer == owner and _foldable(module.get_submodule(owner), before, uses):
                layers[name] = owner
    return layers


def _foldable(layer: nn.Module, node: Node, uses: Counter[str]) -> bool:
    """Whether the node is the one call of a plain layer whose weights nobody else uses.

    All of the layer's weights: a function that is called with some of them would miss the bias.
    """
    plain = type(layer) in (
        nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
        nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    )  # fmt: skip
    # A linear layer on (n, length, c) would need its channels moved: only (n, c) folds.
    flat = not isinstance(layer, nn.Linear) or len(node.shape) == 2
    whole = len(node.parameters) == len(list(layer.parameters()))
    return plain and flat and whole and all(uses[name] == 1 for name in node.parameters)


def _affine(normalization: _BatchNorm) -> ChannelAffine:
    """The same in float64 as a factor and a shift per channel."""
    mean, variance = normalization.running_mean, normalization.running_var
    assert mean is not None and variance is not None
    factor = torch.rsqrt(variance.double() + normalization.eps)
    if normalization.weight is not None:
        factor = factor * normalization.weight.detach().double()
    shift = -mean.double() * factor
    if normalization.bias is not None:
        shift = shift + normalization.bias.detach().double()
    return ChannelAffine(factor, shift)


@torch.no_grad()
def _fold_into(layer: nn.Module, factor: Tensor, shift: Tensor) -> None:
    assert isinstance(layer, nn.Linear | _ConvNd)
    weight = layer.weight.detach().double()
    if isinstance(layer, _ConvTransposeNd):
        # [in, out per group, ...]: the inputs run through the groups, and so do the outputs.
        grouped = weight.view(layer.groups, -1, *weight.shape[1:])
        spread = factor.view(layer.groups, 1, -1, *([1] * (weight.dim() - 2)))
        folded = (grouped * spread).view_as(weight)
    else:
        folded = weight * factor.view(-1, *([1] * (weight.dim() - 1)))
    bias = shift if layer.bias is None else layer.bias.detach().double() * factor + shift
    layer.weight = nn.Parameter(folded.to(layer.weight.dtype))
    layer.bias = nn.Parameter(bias.to(layer.weight.dtype))
