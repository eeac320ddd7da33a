"""Whether a module predicts as the layers do that were read from it.

The theorems are about the layers, in float64. What is deployed is the module: in its own precision,
in batches, perhaps with a branch that reading it did not take. A promise for the one is none for
the other where they disagree.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.weights import Layers

_BATCH = 1024
#: Examples that are also predicted with gradients switched on.
_FEW = 64
#: Examples whose prediction may hang on rounding: one in so many.
_HANGING = 1000
#: Scores in float64 this near to one another, relative to their size, are equal.
_TIE = 1e-12


def read_faithfully(module: nn.Module, examples: Examples) -> Layers | ConvChain:
    """The layers of a module that predicts these examples as they do; other modules are refused."""
    network = read_network(module, examples.inputs[:2])
    found = misread(module, network, examples)
    if found is not None:
        raise BadInput(f"{type(module).__name__}: {found}")
    return network


def misread(module: nn.Module, network: Layers | ConvChain, examples: Examples) -> str | None:
    """What sets the module apart from its layers, or None if it predicts as they do."""
    hanging = 0
    for piece in examples.inputs.split(_BATCH):
        with torch.no_grad():
            lost, close, broken = _compared(_outputs(module, piece), _scores(network, piece))
        if broken:
            return (
                f"{broken} scores of the module are not finite, those of its layers are; scale "
                "weights or inputs down"
            )
        if lost:
            return _apart(lost, len(piece))
        hanging += close
    if hanging > max(1, len(examples) // _HANGING):
        return (
            f"{hanging} of {len(examples)} predictions of the module hang on rounding: its scores "
            "differ by less than they are precise; take away what they share, such as a large bias"
        )
    few = examples.inputs[:_FEW]
    with torch.enable_grad():
        outputs = _outputs(module, few).detach()
    lost, _, broken = _compared(outputs, _scores(network, few))
    return _apart(lost + broken, len(few)) if lost or broken else None


def _apart(lost: int, among: int) -> str:
    return (
        f"it predicts {lost} of {among} examples otherwise than the layers that were read from it; "
        "remove what its forward does besides them, such as a branch on the batch or on the mode"
    )


def _outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    first = next(module.parameters())
    outputs = module(inputs.to(first.device, first.dtype))
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs):
        raise BadInput(f"the network returned no row of class scores for each of {len(inputs)}")
    return outputs


def _scores(network: Layers | ConvChain, inputs: Tensor) -> Tensor:
    if isinstance(network, ConvChain):
        return network.scores(network.images(inputs))
    values = inputs.to(network.weights[0].device).flatten(1).double()
    last = len(network.weights) - 1
    for k, (matrix, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        values = values @ matrix.T if bias is None else values @ matrix.T + bias
        values = values if k == last else values.clamp(min=0)
    return values


def _compared(outputs: Tensor, scores: Tensor) -> tuple[int, int, int]:
    """Predictions that differ, those that differ by rounding alone, rows that are not finite."""
    broken = int((~outputs.isfinite()).any(1).sum())
    # Rounding adds up over a layer, and some cancels: the root is far above it, and far below what
    # a network means.
    slack = torch.finfo(outputs.dtype).eps ** 0.5 * scores.abs().amax(1)
    chosen = outputs.to(scores.device).argmax(1, keepdim=True)
    short = scores.amax(1) - scores.gather(1, chosen)[:, 0]
    # Not a number is not within the slack.
    lost = ~(short <= slack)
    # What ties in the layers too is an error in both, and no accident of the module's rounding.
    tied = _gap(scores) <= _TIE * scores.abs().amax(1)
    hanging = (short > _TIE * scores.abs().amax(1)) | (_gap(outputs).to(scores.device) <= 0)
    return int(lost.sum()), int((hanging & ~lost & ~tied).sum()), broken


def _gap(scores: Tensor) -> Tensor:
    """How far the best class is ahead of the next."""
    if scores.shape[1] < 2:
        return torch.full((len(scores),), torch.inf, dtype=scores.dtype, device=scores.device)
    best = scores.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]
