"""Capacity numbers of the user's network: what it could do with any labels, whatever they are."""

from __future__ import annotations

import copy
import math

from torch import Tensor, nn

from nonvacuous.bounds.capacity import memorization_sizes, memorization_verdict, vc_lower, vc_upper
from nonvacuous.data import Examples
from nonvacuous.errors import NonvacuousError, NotYetSupported
from nonvacuous.networks import capture, fold_batch_norm
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference
from nonvacuous.randomization.results import Capacity
from nonvacuous.rescaling.structure import score_difference


def capacity_of(module: nn.Module, examples: Examples) -> Capacity:
    """VC dimension and sizes that suffice to memorize, for this network and these examples."""
    count, inputs = len(examples), examples.inputs[0].numel()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    sizes = memorization_sizes(examples=count, inputs=inputs)
    lines = [
        ("weights of this network", f"{parameters:,}", f"{parameters / count:,.1f} per example"),
        (
            "weights that suffice for any labels",
            f"{sizes.projection_weights:,}",
            f"2n + d, in one hidden layer of {sizes.projection_units:,} units: any distinct inputs",
        ),
        (
            "hidden units that suffice",
            f"{sizes.general_position_units:,}",
            "4⌈n/d⌉ in one hidden layer: inputs in general position only",
        ),
        (
            "width of two hidden layers that suffices",
            f"{sizes.two_layer_width:,}",
            "4⌈√n/2⌉ each: any distinct inputs",
        ),
    ]
    fixed, example = copy.deepcopy(module).cpu().eval(), examples.inputs[:2].cpu().clone()
    widths, verdict = _by_theorem(fixed, example, count=count)
    return Capacity((*lines, verdict, _vc(fixed, example, widths, count=count)))


def _by_theorem(
    module: nn.Module, example: Tensor, *, count: int
) -> tuple[tuple[int, ...] | None, tuple[str, str, str]]:
    """The widths of a perceptron and what is known of it; of others nothing, and why."""
    what = "this network, by theorem"
    try:
        widths = perceptron_widths(capture(module, example))
        known = memorization_verdict(examples=count, inputs=example[0].numel(), widths=widths)
    except NonvacuousError as error:
        return None, (what, "no theorem here covers it", str(error).splitlines()[0])
    reason = (known.any_distinct or known.general_position or ("",))[0]
    return widths, (what, known.verdict, reason)


def _vc(
    module: nn.Module, example: Tensor, widths: tuple[int, ...] | None, *, count: int
) -> tuple[str, str, str]:
    """From above, counted on the captured graph; of a perceptron from below as well."""
    try:
        layers = score_difference(capture(fold_batch_norm(module, example), example))
        upper = vc_upper(
            parameters=[own for own, _ in layers], comparisons=[signs for _, signs in layers]
        )
    except NonvacuousError as error:
        return ("VC dimension", "not counted", str(error).splitlines()[0])
    ends = f"at most {upper:,}"
    if widths is not None:
        ends = f"{vc_lower(inputs=example[0].numel(), widths=widths):,} to {upper:,}"
    if upper > count:
        meaning = f"the same for true and random labels; a bound needs far more than n = {count:,}"
    else:
        meaning = f"below n = {count:,}: here it does say something"
    return ("VC dimension", ends, meaning)


#: Operators that hand on the numbers of each example in their order.
_SILENT = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "clone",
    "alias", "detach", "dropout", "feature_dropout",
})  # fmt: skip


def perceptron_widths(graph: LayerGraph) -> tuple[int, ...]:
    """The widths of the hidden layers of a fully connected ReLU network with biases.

    NotYetSupported names what stands in the way where the network is anything else.
    """
    if len(graph.inputs) != 1:
        raise NotYetSupported("not a perceptron: it reads more than one input")
    ((name, shape),) = graph.inputs.items()
    current, bent, seen = Reference("input", name), False, set[str]()
    widths: list[int] = []
    for node in graph.nodes:
        read = tuple(r for r in node.references if r.kind != "parameter")
        if read != (current,):
            raise NotYetSupported(
                f"not a perceptron: {_named(node)} does not read the layer before"
            )
        trained = node.parameters or node.arguments.get("train") is True
        silent = node.kind in _SILENT and not trained
        if node.kind == "linear" and bent == bool(widths):
            _check_linear(node, shape, seen)
            seen.update(node.parameters)
            widths.append(node.shape[1])
            bent = False
        elif node.kind == "relu" and widths and not bent:
            bent = True
        elif not silent or math.prod(node.shape[1:]) != math.prod(shape[1:]):
            raise NotYetSupported(
                f"not a perceptron: linear layers and ReLU must take turns, and {_named(node)} "
                "does not fit in"
            )
        current, shape = Reference("node", node.name), node.shape
    if bent or not widths or graph.outputs != (current,):
        raise NotYetSupported("not a perceptron: it does not return the scores of a linear layer")
    return tuple(widths[:-1])


def _check_linear(node: Node, shape: tuple[int, ...], seen: set[str]) -> None:
    """One matrix and one bias of its own, for all numbers of an example at once."""
    parts = (node.arguments.get("weight"), node.arguments.get("bias"))
    if not all(isinstance(part, Reference) and part.kind == "parameter" for part in parts):
        raise NotYetSupported(
            f"not a perceptron with biases: {_named(node)} has none, or weights that are computed"
        )
    if not seen.isdisjoint(node.parameters):
        raise NotYetSupported(f"not a perceptron: {_named(node)} repeats the weights of another")
    if len(shape) != 2:
        raise NotYetSupported(
            f"not a perceptron: {_named(node)} is applied to parts of an example, one by one"
        )


def _named(node: Node) -> str:
    return f"{node.layer or 'the network'} ({node.op})"
