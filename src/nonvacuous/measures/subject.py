"""What a measure is given: a captured network in float64, its data and its beginning."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from nonvacuous.audit.probing import Network, foreign_tensor
from nonvacuous.data.examples import Examples
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.distributions.gaussian import check_same_tensors
from nonvacuous.errors import BadInput, NotYetSupported, Unsupported
from nonvacuous.models.cnn import Blocks
from nonvacuous.networks import LayerGraph, ScaleGroups, capture, fold_batch_norm, scale_groups
from nonvacuous.networks.layer_graph import Argument, Reference
from nonvacuous.risk.losses import class_margins

Weights = Mapping[str, Tensor]
Computed = TypeVar("Computed")
#: Examples in one forward pass: few enough for the activations of a convolutional network, and
#: on an accelerator enough to fill it.
_CHUNK, _CHUNK_ON_ACCELERATOR = 256, 1024


@dataclass(frozen=True, eq=False)
class Subject:
    """One network under measurement. Everything is float64; nothing here is written to.

    Module and examples are where passes over the examples are computed; weights are on the
    processor, where what concerns them alone is faster.

    module    in evaluation mode, batch normalization folded into the layers
    graph     what it computes
    groups    its free scales
    weights   every parameter by name
    example   a few inputs, by which the network was written down
    inputs    the examples, and their labels; None where none were given
    initial   the weights before training; None where they are not known
    seed      for measures that draw noise: the same seed, the same value
    """

    module: nn.Module
    graph: LayerGraph
    groups: ScaleGroups
    weights: Weights
    example: Tensor
    inputs: Tensor | None
    labels: Tensor | None
    initial: Weights | None
    seed: int

    @classmethod
    def of(
        cls,
        model: nn.Module,
        examples: object,
        *,
        initial: nn.Module | Weights | None = None,
        seed: int = 0,
        like: Subject | None = None,
        device: torch.device | str = "cpu",
    ) -> Subject:
        """Capture a network for measurement; neither it nor the data are changed.

        examples   what :meth:`nonvacuous.data.Examples.of` accepts; or inputs alone, as a tensor,
                   which leaves the measures that need labels undefined
        initial    the network before training, or its weights by name
        like       a subject of the same architecture, whose capture is used again: what tells one
                   network of a study from the next is its weights. Layers are compared by name,
                   kind and size; what a module computes beyond its layers must be the same
        device     where passes over the examples are computed
        """
        if isinstance(examples, Tensor):
            inputs, labels = examples, None
        else:
            data = Examples.of(examples)
            inputs, labels = data.inputs.cpu(), data.labels.cpu()
        if len(inputs) < 2:
            raise BadInput(f"measures need at least two inputs, got {len(inputs)}")
        inputs = inputs.detach().cpu()
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        module = _prepared(model, inputs[:2])
        graph, groups = _captured(module, inputs[:2], like)
        start = _initial_weights(initial, module, inputs[:2])
        weights = _weights(module)
        if labels is not None:
            _check_scores(module(inputs[:2]), int(labels.max()))
        return cls(
            module=module.to(device),
            graph=graph,
            groups=groups,
            weights=weights,
            example=inputs[:8].to(device),
            inputs=None if labels is None else inputs.to(device),
            labels=None if labels is None else labels.to(device),
            initial=start,
            seed=seed,
        )

    def once(self, name: str, computed: Callable[[], Computed]) -> Computed:
        """What several measures share: computed when one first asks, and kept with the subject."""
        if name not in self.__dict__:
            self.__dict__[name] = computed()
        kept: Computed = self.__dict__[name]
        return kept

    def moved(self, weights: Weights, *, initial: Weights | None = None) -> Subject:
        """The same network with other weights; the initial ones stay unless others are given."""
        return replace(
            self,
            graph=replace(self.graph, weights={n: w.numpy() for n, w in weights.items()}),
            weights=dict(weights),
            initial=self.initial if initial is None else dict(initial),
        )

    @property
    def examples(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels, for measures that need them."""
        assert self.inputs is not None and self.labels is not None
        return self.inputs, self.labels

    @property
    def started(self) -> Weights:
        """The initial weights, for measures that need them."""
        assert self.initial is not None
        return self.initial

    @property
    def count(self) -> int:
        """The number of weights and biases."""
        return sum(weight.numel() for weight in self.weights.values())

    def outputs(self, inputs: Tensor, weights: Weights | None = None) -> Tensor:
        """The class scores of one batch, with these weights or with the network's own."""
        used = self.ready if weights is None else self.at_examples(weights)
        scores: Tensor = functional_call(self.module, used, (inputs,))
        return scores

    @property
    def device(self) -> torch.device:
        """Where passes over the examples are computed."""
        return self.example.device

    def at_examples(self, weights: Weights) -> dict[str, Tensor]:
        return {name: weight.to(self.device) for name, weight in weights.items()}

    @cached_property
    def ready(self) -> dict[str, Tensor]:
        return self.at_examples(self.weights)

    def batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Inputs and labels, some at a time."""
        size = _CHUNK if self.device.type == "cpu" else _CHUNK_ON_ACCELERATOR
        return zip(*(part.split(size) for part in self.examples), strict=True)

    def all_outputs(self, weights: Weights | None = None) -> Tensor:
        """The class scores of all examples, without gradients."""
        with torch.no_grad():
            return torch.cat([self.outputs(part, weights) for part, _ in self.batches()])

    @cached_property
    def scores(self) -> Tensor:
        scores = self.all_outputs()
        if not bool(scores.isfinite().all()):
            raise Unsupported("the network's scores leave the range of float64 on some example")
        return scores

    @cached_property
    def margins(self) -> Tensor:
        """Score of the right class minus the best other score, for every example."""
        return class_margins(self.scores, self.examples[1])

    @cached_property
    def layers(self) -> tuple[Tensor, ...]:
        """The weight matrices; raises NotYetSupported where one cannot be told."""
        return layers_of(self.graph, self.weights)

    def check_covered(self) -> None:
        """Raise Unsupported where no bound over the weights covers the network.

        Numbers that are no parameters may come from the data, and neither prior nor code pays for
        them: buffers of whatever type, tensors and arrays in plain attributes, and tensors that
        the network finds elsewhere.
        """
        what = _beside_the_weights(self.module, self.example)
        if what is not None:
            raise Unsupported(
                f"{what}: its numbers may come from the data, and a bound over the weights does "
                "not pay for them"
            )


def _check_scores(scores: object, highest: int) -> None:
    if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] <= highest:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise BadInput(
            f"measures need one row of class scores for each example: for two examples with labels "
            f"up to {highest} the network gives {got}"
        )


def _captured(
    module: nn.Module, example: Tensor, like: Subject | None
) -> tuple[LayerGraph, ScaleGroups]:
    """What the network computes, and its free scales; from a network like it where one is given."""
    if like is None:
        graph = capture(module, example)
        return graph, scale_groups(graph)
    if _architecture(module) != _architecture(like.module) or any(
        shape[1:] != tuple(example.shape[1:]) for shape in like.graph.inputs.values()
    ):
        raise BadInput(
            "like: the two networks differ in their layers, or in the shape of their inputs; "
            "give a subject of the same architecture, or none"
        )
    values = {name: weight.detach().numpy() for name, weight in module.named_parameters()}
    return replace(like.graph, weights=values), like.groups


def _architecture(module: nn.Module) -> tuple[object, ...]:
    """Names and kinds of all layers with what they print of themselves, and sizes of tensors.

    Dropout prints its rate, which nobody sees in evaluation mode.
    """
    layers = tuple(
        (name, type(layer), "" if isinstance(layer, _DropoutNd) else layer.extra_repr())
        for name, layer in module.named_modules()
    )
    tensors = (*module.named_parameters(), *module.named_buffers())
    return layers, tuple((name, tuple(tensor.shape)) for name, tensor in tensors)


def _beside_the_weights(module: nn.Module, example: Tensor) -> str | None:
    """The first numbers of a network that are no parameters and may shape what it computes."""
    for name, buffer in module.named_buffers():
        if buffer.numel():
            return f"{name} is a buffer"
    for name, tensor in attribute_tensors(module).items():
        if tensor.numel():
            return f"{name} is an attribute that holds numbers"
    foreign = foreign_tensor(Network.of(module), example)
    return foreign and f"{foreign} belongs to no part of the network"


def _prepared(model: nn.Module, example: Tensor) -> nn.Module:
    """A float64 copy in evaluation mode without batch normalization."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"measures need a torch.nn.Module, not {type(model).__name__}")
    module = copy.deepcopy(model).cpu().double().eval()
    module = fold_batch_norm(module, example).eval().requires_grad_(False)
    for part in module.modules():
        if type(part) is Blocks:  # units are counted in the order in which the network is written
            part.__class__ = nn.Sequential  # type: ignore[assignment]
    for name, weight in module.named_parameters():
        if not bool(weight.isfinite().all()):
            raise BadInput(f"{name} has entries that are not finite; there is nothing to measure")
    return module


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


def _initial_weights(
    initial: nn.Module | Weights | None, module: nn.Module, example: Tensor
) -> Weights | None:
    if initial is None:
        return None
    given = _weights(_prepared(initial, example)) if isinstance(initial, nn.Module) else initial
    own = dict(module.named_parameters())
    known = {name: torch.as_tensor(given[name]) for name in own if name in given}
    check_same_tensors("initial", known, "the network", own)
    return {name: weight.detach().cpu().double() for name, weight in known.items()}


# The weight matrices of a captured network, each [outputs, inputs]. A convolution counts as the
# matrix [output channels, input channels x kernel positions], not as the larger operator that
# slides it over an image: its spectral norm is that of the matrix. Biases and gains (weights with
# one axis) are no matrices and are left out, as in the papers on these norms.

#: Operator -> the argument that holds its weight, and whether its first axis is the outputs.
_WEIGHTS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d"), ("weight", True)),
    **{f"conv_transpose{axes}d": ("weight", False) for axes in (1, 2, 3)},
    **dict.fromkeys(("embedding", "embedding_bag"), ("weight", False)),
    "matmul": ("other", False),
    **dict.fromkeys(("mm", "addmm"), ("mat2", False)),
}
#: Operators that exchange the two axes of a matrix before it is used.
_TURNS = frozenset({"t", "transpose", "permute", "numpy_T"})


def layers_of(graph: LayerGraph, weights: Weights) -> tuple[Tensor, ...]:
    """Every weight matrix once, in the order in which the network uses them."""
    matrices = _in_order(graph)
    for name, shape in graph.parameters.items():
        node = next((n for n in graph.nodes if name in n.parameters), None)
        if len(shape) > 1 and name not in matrices and node is not None:
            raise NotYetSupported(
                f"{name} of shape {tuple(shape)} is used by {node.op}, for which no weight matrix "
                "is defined; norms of matrices need linear, convolutional or embedding layers"
            )
    if not matrices:
        raise NotYetSupported("the network has no weight matrix that an output depends on")
    turned = (weights[n] if first else weights[n].transpose(0, 1) for n, first in matrices.items())
    return tuple(weight.reshape(len(weight), -1).double() for weight in turned)


def _in_order(graph: LayerGraph) -> dict[str, bool]:
    """The matrices in order of use, and whether their first axis is the outputs."""
    turned: dict[Argument, Reference] = {}
    matrices: dict[str, bool] = {}
    for node in graph.nodes:
        if node.kind in _TURNS and len(node.references) == 1 and len(node.shape) == 2:
            turned[Reference("node", node.name)] = node.references[0]
        argument, outputs_first = _WEIGHTS.get(node.kind, ("", True))
        value = node.arguments.get(argument)
        if value in turned:
            value, outputs_first = turned[value], not outputs_first
        if not isinstance(value, Reference) or value.kind != "parameter":
            continue
        if len(graph.parameters[value.name]) > 1:
            matrices.setdefault(value.name, outputs_first)
    return matrices
