"""The layer that writes the class scores, and what a loss cannot see of it.

The error rate depends on the order of the scores only: multiplying all of them by one positive
number changes nothing, nor does adding one number to all of them. The cross-entropy and margin
losses still do not see a common shift. A quotient may use a symmetry only if the loss has it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference
from nonvacuous.networks.scale_groups import AxisScale, Group, ScaleGroups

# Operators after the last layer that keep the order of the scores and do not see a common shift,
# or change nothing at all.
_HARMLESS = frozenset({"alias", "clone", "contiguous", "detach", "softmax", "log_softmax"})


@dataclass(frozen=True)
class OutputLayer:
    """The weight [classes, features] and the bias [classes] of the last linear layer."""

    weight: str
    bias: str | None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor that writes the scores."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def columns(self, tensors: DiagonalGaussian, name: str) -> tuple[Tensor, Tensor]:
        """Means and variances of one of the tensors in float64, classes first: [classes, n]."""
        mean, scale = tensors.means[name].double(), tensors.scales[name].double()
        classes = mean.shape[0]
        return mean.reshape(classes, -1), scale.square().reshape(classes, -1)

    def check_in(self, distribution: DiagonalGaussian) -> None:
        """Refuse a layer that the distribution does not describe, or that has one class."""
        for name in self.tensors:
            if name not in distribution.means:
                raise BadInput(
                    f"the output layer's tensor {name!r} is not among the posterior's tensors; "
                    "take the layer from output_layer(capture(module, example)) of this module"
                )
        shape = tuple(distribution.means[self.weight].shape)
        if len(shape) != 2 or shape[0] < 2:
            raise BadInput(
                f"the output layer's weight {self.weight!r} has shape {shape}; it must be "
                "[classes, features] with at least two classes"
            )
        if self.bias is not None and tuple(distribution.means[self.bias].shape) != shape[:1]:
            raise BadInput(f"the output layer's bias {self.bias!r} must have shape {shape[:1]}")


@dataclass(frozen=True)
class Invariance:
    """What a loss cannot see: a common positive factor, a common shift of all scores."""

    scale: bool
    shift: bool


def invariance_of(loss: str) -> Invariance:
    """What the loss of this name cannot see; nothing is assumed of a loss that is not known.

    >>> invariance_of("zero-one")
    Invariance(scale=True, shift=True)
    >>> invariance_of("margin 0.1")
    Invariance(scale=False, shift=True)
    >>> invariance_of("my own")
    Invariance(scale=False, shift=False)
    """
    order = loss == "zero-one"
    shift = loss.startswith(("margin ", "cross-entropy with probabilities of at least "))
    return Invariance(scale=order, shift=order or shift)


def output_layer(graph: LayerGraph) -> OutputLayer:
    """The linear layer whose result the network returns."""
    uses = Counter(name for node in graph.nodes for name in node.parameters)
    own = {Reference("parameter", name) for name, times in uses.items() if times == 1}
    node = _last(graph)
    if node.op.rpartition(".")[0] != "aten.linear":
        raise NotYetSupported(
            f"the network returns the result of {node.layer or 'the network'} ({node.op}), not of "
            "a linear layer; the quotients by the scale and the shift of the scores are defined "
            "for a last layer torch.nn.Linear. Leave them out, or end the network with one"
        )
    weight, bias = node.arguments["weight"], node.arguments["bias"]
    for argument in (weight,) if bias is None else (weight, bias):
        if argument not in own:
            raise NotYetSupported(
                f"the last layer {node.layer!r} reads a weight that is computed, frozen or used "
                "elsewhere too, so that scaling or shifting it would change more than the scores; "
                "leave out the quotients of the last layer"
            )
    assert isinstance(weight, Reference)
    return OutputLayer(weight.name, bias.name if isinstance(bias, Reference) else None)


def _last(graph: LayerGraph) -> Node:
    if len(graph.outputs) != 1 or graph.outputs[0].kind != "node":
        raise NotYetSupported(
            f"the network returns {len(graph.outputs)} results or its input; the quotients of the "
            "last layer need a network that returns one tensor of class scores"
        )
    node = graph.node(graph.outputs[0].name)
    while node.kind in _HARMLESS and node.references[0].kind == "node":
        if "dim" in node.arguments and node.arguments["dim"] not in (-1, len(node.shape) - 1):
            break
        node = graph.node(node.references[0].name)
    return node


#: The name of the group that holds the scale of the scores.
OUTPUT_SCALE = "scale of the scores"


def with_output_scale(groups: ScaleGroups, output: OutputLayer) -> ScaleGroups:
    """The same groups and, as the last entry of log_scales, one scale for all scores.

    Multiplying every tensor that writes them moves the posterior along one more orbit. Valid for
    losses that see only the order of the scores (0-1); for others the function that matters would
    change. ``rescale`` searches it together with the hidden scales, which is
    better than one after the other. Groups that have it already come back as they are.
    """
    if any(group.name == OUTPUT_SCALE for group in groups.groups):
        return groups
    number = groups.size
    exponents = dict(groups.exponents)
    for name in output.tensors:
        index = np.full(groups.shapes[name][0], number, dtype=np.int64)
        exponents[name] = (*exponents[name], AxisScale((0,), index, 1.0))
    added = Group(
        name=OUTPUT_SCALE,
        start=number,
        size=1,
        tensors=tuple((name, (0,), 1.0) for name in output.tensors),
        layer=output.weight.rpartition(".")[0],
    )
    return dataclasses.replace(
        groups, size=number + 1, groups=(*groups.groups, added), exponents=exponents
    )


def best_output_log_scale(
    Q: DiagonalGaussian, P: DiagonalGaussian, output: OutputLayer, *, translation: bool
) -> float:
    """The natural logarithm of the factor that makes the last layer's KL smallest.

    Exact, for any prior means and scales. With ``translation`` it is the KL after the quotient by
    a common shift of the scores that is made smallest.

    As a function of the factor a, the KL is (A a^2 - 2 C a) / 2 - N ln a and a constant. A is the
    posterior's second moment in units of the prior, C the product of the two means, and N the
    number of weights (of directions that are left, one less per column, with ``translation``).
    """
    output.check_in(Q)
    output.check_in(P)
    moment = product = 0.0
    count = 0
    for name in output.tensors:
        mean, variance = output.columns(Q, name)
        prior_mean, prior_variance = output.columns(P, name)
        moment += float(((variance + mean.square()) / prior_variance).sum())
        product += float((mean * prior_mean / prior_variance).sum())
        count += mean.numel()
        if translation:  # Less what lies along a common shift of a column.
            precision = (1 / prior_variance).sum(0)
            spread = (variance / prior_variance.square()).sum(0) / precision
            center, prior_center = ((m / prior_variance).sum(0) for m in (mean, prior_mean))
            moment -= float((spread + center.square() / precision).sum())
            product -= float((center * prior_center / precision).sum())
            count -= mean.shape[1]
    root = math.hypot(product, 2 * math.sqrt(moment * count))
    # The positive root of A a^2 - C a - N, in the form that does not cancel.
    if product >= 0:
        return math.log((product + root) / (2 * moment))
    return math.log(2 * count / (root - product))
