"""Reading the layers of a module; whatever is not covered is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.networks.capture import capture
from nonvacuous.networks.layer_graph import Node, Reference
from nonvacuous.sparsity.conv_chain import ConvChain, ConvLayer, ImageShape, Pair, Pool
from nonvacuous.sparsity.weights import Layers, Network

#: Operators that hand their input on, number for number.
_PASSES = frozenset({"alias", "clone", "contiguous", "detach", "dropout", "identity"})
_RESHAPES = frozenset({"view", "reshape", "flatten", "_unsafe_view"})
_POOLS = frozenset({"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "mean"})


def read_network(module: nn.Module, example: Tensor) -> Network:
    """The form in which a module is certified: layers of numbers, or a chain of convolutions.

    The module is in evaluation mode; ``example`` is a batch of two or more inputs.
    """
    return _Reader(module, example).network()


def read_parameters(
    module: nn.Module, example: Tensor
) -> tuple[Network, tuple[tuple[str, ...], ...]]:
    """The same, and the names of each layer's parameters: its weights, then its bias, if any."""
    reader = _Reader(module, example)
    used = {name for names in reader.tensors for name in names}
    left = [name for name, _ in module.named_parameters() if name not in used]
    if left:
        raise BadInput(
            f"the network has a parameter {left[0]!r} that no layer uses; remove it, so that the "
            "certificate covers the whole network"
        )
    return reader.network(), tuple(tuple(names) for names in reader.tensors)


def is_convolutional(module: nn.Module) -> bool:
    """Whether the module has convolutions, so that its certificate is the one for chains of them.

    >>> is_convolutional(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 2)))
    True
    """
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return any(isinstance(part, kinds) for part in module.modules())


class _Reader:
    """One walk along the nodes: a layer, then ReLU and at most one pooling, then the next layer.

    tensors   names of each layer's parameters
    """

    def __init__(self, module: nn.Module, example: Tensor) -> None:
        graph = capture(module, example)
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            raise NotYetSupported(
                f"the network has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs; "
                "the sparsity theorems cover one of each. Wrap it in a module with one of each"
            )
        self._graph, self._plain = graph, not is_convolutional(module)
        self.tensors: list[list[str]] = []
        self._first: ImageShape | None = None
        self._image: ImageShape | None = None
        self._parts: list[tuple[ConvLayer, Pool]] = []
        self._rectified, self._pooled = True, False
        current = Reference("input", next(iter(graph.inputs)))
        shape = graph.inputs[current.name]
        for node in graph.nodes:
            if [r for r in node.references if r.kind in ("node", "input")] != [current]:
                raise _refusal(node, "it does not follow the layer before it in one line")
            self._step(node, shape)
            current, shape = Reference("node", node.name), node.shape
        if graph.outputs[0] != current or self._rectified or not self._parts:
            where = self._parts[-1][0].name if self._parts else "the network"
            raise _refused(where, "output", "the network must end in a linear layer")

    def network(self) -> Network:
        assert self._first is not None
        if not self._plain:
            return ConvChain.of(self._first, self._parts)
        layers = [layer for layer, _ in self._parts]
        return Layers(
            tuple(layer.matrix for layer in layers),
            tuple(layer.bias for layer in layers),
            tuple(layer.name for layer in layers),
        )

    def _step(self, node: Node, shape: tuple[int, ...]) -> None:
        kind = node.kind
        if kind == "linear" or (kind == "conv2d" and not self._plain):
            if not self._rectified:
                raise _refusal(node, "there is no ReLU between it and the layer before")
            self._layer(node, kind, shape)
        elif kind == "relu" and self._parts:
            if self._pooled and not self._rectified and self._parts[-1][1].kind == "average":
                raise _refusal(node, "average pooling comes before the ReLU; exchange the two")
            self._rectified = True
        elif kind in _POOLS and self._parts and not self._plain:
            self._pool(node, kind, shape)
        elif kind in _RESHAPES and self._harmless(node, shape):
            return
        elif kind not in _PASSES:
            covered = (
                "only linear layers, convolutions, ReLU, max and average pooling and flattening "
                "are covered"
            )
            folding = (
                "; once the network is trained, fold batch normalization into the layer before "
                "it: nv.fold_batch_norm(network, inputs)"
            )
            raise _refusal(node, covered + (folding if "batch_norm" in node.op else ""))

    def _harmless(self, node: Node, shape: tuple[int, ...]) -> bool:
        """Any reshape keeps numbers in order; after a convolution, only flattening keeps images."""
        keeps = len(node.shape) >= 2 and node.shape[0] == shape[0]
        free = self._plain or not self._parts
        return keeps and (free or len(node.shape) == 2 or node.shape == shape)

    def _layer(self, node: Node, kind: str, shape: tuple[int, ...]) -> None:
        self.tensors.append([])
        weight = self._parameter(node, "weight")
        bias = self._parameter(node, "bias") if node.arguments["bias"] is not None else None
        where = node.layer or node.name
        if kind == "linear":
            if len(shape) != 2:
                raise _refusal(node, f"its input has shape {shape[1:]}; flatten it before")
            image = self._image or (shape[1], 1, 1)
            layer = ConvLayer(where, weight.reshape(len(weight), *image), bias)
        else:
            if len(shape) != 4:
                raise _refusal(node, f"its input has shape {shape}, not a batch of images")
            if node.arguments["groups"] != 1:
                raise _refusal(node, "its channels are in groups")
            image = (shape[1], shape[2], shape[3])
            stride, dilation = _pair(node, "stride"), _pair(node, "dilation")
            padding = _padding(node, weight, dilation)
            layer = ConvLayer(where, weight, bias, stride, padding, dilation)
        if self._first is None:
            self._first = image
        self._parts.append((layer, Pool()))
        self._image = _image(node)
        self._rectified, self._pooled = False, False

    def _pool(self, node: Node, kind: str, shape: tuple[int, ...]) -> None:
        if self._pooled:
            raise _refusal(node, "a second pooling follows the same layer")
        if kind != "max_pool2d" and not self._rectified:
            raise _refusal(node, "average pooling comes before the ReLU; exchange the two")
        if len(shape) != 4:
            raise _refusal(node, f"its input has shape {shape}, not a batch of images")
        if node.arguments.get("ceil_mode"):
            raise _refusal(node, "its windows may leave the image (ceil_mode)")
        if node.arguments.get("divisor_override") is not None:
            raise _refusal(node, "it divides by a number of its own (divisor_override)")
        self._parts[-1] = (self._parts[-1][0], _pooling(node, kind, (shape[2], shape[3])))
        self._image, self._pooled = _image(node), True

    def _parameter(self, node: Node, argument: str) -> Tensor:
        value = node.arguments[argument]
        if not (isinstance(value, Reference) and value.kind == "parameter"):
            raise _refusal(node, f"its {argument} is computed or frozen, not a parameter")
        if sum(value.name in other.parameters for other in self._graph.nodes) != 1:
            raise _refusal(node, f"its {argument} is shared with another layer")
        self.tensors[-1].append(value.name)
        return torch.from_numpy(np.array(self._graph.weights[value.name], dtype=np.float64))


def _image(node: Node) -> ImageShape:
    """What a node gives, as an image: of one pixel where it is flat."""
    _, channels, *sides = node.shape
    high, wide = sides or (1, 1)
    return channels, high, wide


def _pooling(node: Node, kind: str, size: Pair) -> Pool:
    if kind == "mean":
        dims = node.arguments["dim"]
        if not isinstance(dims, tuple) or sorted(int(d) % 4 for d in dims) != [2, 3]:  # type: ignore[arg-type]
            raise _refusal(node, "it is not a mean over height and width")
        return Pool("average", size, size)
    if kind == "adaptive_avg_pool2d":
        target = _pair(node, "output_size")
        if size[0] % target[0] or size[1] % target[1]:
            raise _refusal(node, f"windows of {size} to {target} differ in size")
        kernel = (size[0] // target[0], size[1] // target[1])
        return Pool("average", kernel, kernel)
    kernel, padding = _pair(node, "kernel_size"), _pair(node, "padding")
    stride = kernel if node.arguments["stride"] == () else _pair(node, "stride")
    if kind == "avg_pool2d":
        return Pool("average", kernel, stride, padding, bool(node.arguments["count_include_pad"]))
    if padding != (0, 0) or _pair(node, "dilation") != (1, 1):
        raise _refusal(node, "max pooling with padding or dilation")
    return Pool("max", kernel, stride)


def _padding(node: Node, weight: Tensor, dilation: Pair) -> Pair:
    value = node.arguments["padding"]
    if not isinstance(value, str):
        return _pair(node, "padding")
    if value == "valid":
        return 0, 0
    missing = [(weight.shape[2 + i] - 1) * dilation[i] for i in (0, 1)]
    if any(m % 2 for m in missing):
        raise _refusal(node, "padding='same' with an even kernel is not the same on both sides")
    return missing[0] // 2, missing[1] // 2


def _pair(node: Node, argument: str) -> Pair:
    value: Any = node.arguments[argument]
    numbers = value if isinstance(value, tuple) else (value,)
    return (int(numbers[0]), int(numbers[-1]))


def _refusal(node: Node, reason: str) -> NotYetSupported:
    return _refused(node.layer or node.name, node.op, reason)


def _refused(where: str, op: str, reason: str) -> NotYetSupported:
    return NotYetSupported(
        f"{where} ({op}): {reason}. A sparsity certificate needs a plain chain: linear layers or "
        "convolutions with ReLU between them and pooling after it. Replace the layer, or certify "
        "the network in another mode of nonvacuous certify"
    )


# Whether a module predicts as the layers do that were read from it.
#
# The theorems are about the layers, in float64. What is deployed is the module: in its own
# precision, in batches, perhaps with a branch that reading it did not take. A promise for the one
# is none for the other where they disagree.

_BATCH = 1024
#: Examples that are also predicted with gradients switched on.
_FEW = 64
#: Examples whose prediction may hang on rounding: one in so many.
_HANGING = 1000
#: Scores in float64 this near to one another, relative to their size, are equal.
_TIE = 1e-12


def read_faithfully(module: nn.Module, examples: Examples) -> Network:
    """The layers of a module that predicts these examples as they do; other modules are refused."""
    network = read_network(module, examples.inputs[:2])
    difference = misread(module, network, examples)
    if difference is not None:
        raise BadInput(f"{type(module).__name__}: {difference}")
    return network


def misread(module: nn.Module, network: Network, examples: Examples) -> str | None:
    """What sets the module apart from its layers, or None if it predicts as they do."""
    hanging = 0
    pieces = [(False, piece) for piece in examples.inputs.split(_BATCH)]
    for gradients, piece in [*pieces, (True, examples.inputs[:_FEW])]:
        with torch.set_grad_enabled(gradients):
            outputs = _outputs(module, piece).detach()
        lost, close, broken = _compared(outputs, network.scores(piece))
        if broken:
            return (
                f"{broken} scores of the module are not finite, those of its layers are; scale "
                "weights or inputs down"
            )
        if lost:
            return (
                f"it predicts {lost} of {len(piece)} examples otherwise than the layers that were "
                "read from it; remove what its forward does besides them, such as a branch on the "
                "batch or on the mode"
            )
        hanging += 0 if gradients else close
    if hanging > max(1, len(examples) // _HANGING):
        return (
            f"{hanging} of {len(examples)} predictions of the module hang on rounding: its scores "
            "differ by less than they are precise; take away what they share, such as a large bias"
        )
    return None


def _outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    first = next(module.parameters())
    outputs = module(inputs.to(first.device, first.dtype))
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(inputs):
        raise BadInput(f"the network returned no row of class scores for each of {len(inputs)}")
    return outputs


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
