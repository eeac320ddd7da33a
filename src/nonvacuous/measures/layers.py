"""The weight matrices of a captured network, each [outputs, inputs].

A convolution counts as the matrix [output channels, input channels x kernel positions], not as the
larger operator that slides it over an image: its spectral norm is that of the matrix. Biases and
gains (weights with one axis) are no matrices and are left out, as in the papers on these norms.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from nonvacuous.errors import NotYetSupported
from nonvacuous.networks.layer_graph import LayerGraph, Reference

#: Operator -> the argument that holds its weight, and whether its first axis is the outputs.
_WEIGHTS = {
    "linear": ("weight", True),
    "conv1d": ("weight", True),
    "conv2d": ("weight", True),
    "conv3d": ("weight", True),
    "conv_transpose1d": ("weight", False),
    "conv_transpose2d": ("weight", False),
    "conv_transpose3d": ("weight", False),
    "embedding": ("weight", False),
    "embedding_bag": ("weight", False),
    "matmul": ("other", False),
    "mm": ("mat2", False),
    "addmm": ("mat2", False),
}
#: Operators that exchange the two axes of a matrix before it is used.
_TURNS = frozenset({"t", "transpose", "permute", "numpy_T"})


def layers_of(graph: LayerGraph, weights: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Every weight matrix once, in the order in which the network uses them."""
    matrices = _in_order(graph)
    for name, shape in graph.parameters.items():
        if (
            len(shape) > 1
            and name not in matrices
            and any(name in n.parameters for n in graph.nodes)
        ):
            node = next(n for n in graph.nodes if name in n.parameters)
            raise NotYetSupported(
                f"{name} of shape {tuple(shape)} is used by {node.op}, for which no weight matrix "
                "is defined; norms of matrices need linear, convolutional or embedding layers"
            )
    if not matrices:
        raise NotYetSupported("the network has no weight matrix that an output depends on")
    return tuple(_matrix(weights[name], first) for name, first in matrices.items())


def _matrix(weight: Tensor, outputs_first: bool) -> Tensor:
    turned = weight if outputs_first else weight.transpose(0, 1)
    return turned.reshape(turned.shape[0], -1).double()


def _in_order(graph: LayerGraph) -> dict[str, bool]:
    """The matrices in order of use, and whether their first axis is the outputs."""
    turned: dict[Reference, Reference] = {}
    matrices: dict[str, bool] = {}
    for node in graph.nodes:
        name = node.kind
        if name in _TURNS and len(node.references) == 1 and len(node.shape) == 2:
            source = node.references[0]
            if source.kind == "parameter":
                turned[Reference("node", node.name)] = source
            continue
        if name not in _WEIGHTS:
            continue
        argument, outputs_first = _WEIGHTS[name]
        value = node.arguments.get(argument)
        if isinstance(value, Reference) and value in turned:
            value, outputs_first = turned[value], not outputs_first
        if not isinstance(value, Reference) or value.kind != "parameter":
            continue
        if len(graph.parameters[value.name]) > 1:
            matrices.setdefault(value.name, outputs_first)
    return matrices
