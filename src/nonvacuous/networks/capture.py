"""From a torch module to a LayerGraph, by way of torch.export."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput, NotYetSupported, Unsupported, WrongMode
from nonvacuous.networks.exporting import exported_program, layer_name, named_arguments
from nonvacuous.networks.layer_graph import Argument, LayerGraph, Node, Reference, Shape
from nonvacuous.networks.propagation import propagate

Example = Tensor | tuple[Any, ...]


def capture(module: nn.Module, example: Example, *, strict: bool = False) -> LayerGraph:
    """Write down what a network in evaluation mode computes.

    module    the network; it is not changed
    example   an input such as it will get: a batch of two or more (a tuple where the network takes
              several arguments). Only its shape and dtype matter.
    strict    raise NotYetSupported where an operator is unknown; by default the scales beside it
              stay at 1, which keeps the function, and ``support`` names it

    >>> import torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
    >>> print(capture(network, torch.zeros(2, 3)))
    node    layer  operator             shape  weights
    ------  -----  -------------------  -----  ----------------
    linear  0      aten.linear.default  2x2    0.weight, 0.bias
    relu    1      aten.relu.default    2x2    -
    """
    _check_module(module)
    arguments = example if isinstance(example, tuple) else (example,)
    program = exported_program(module, arguments)
    canonical, ties = _parameter_names(module)
    _check_storage(module, program.constants)
    references = _placeholders(program, canonical)
    nodes: list[Node] = []
    outputs: tuple[Reference, ...] = ()
    shapes: dict[Reference, Shape] = {}
    for fx_node in program.graph.nodes:
        name = fx_node.name
        if fx_node.op == "call_function":
            nodes.append(_node(fx_node, references))
            references[name] = Reference("node", name)
        elif fx_node.op == "output":
            outputs = tuple(references[n.name] for n in fx_node.all_input_nodes)
        elif fx_node.op == "get_attr":
            references[name] = Reference("constant", str(fx_node.target))
        if fx_node.op in ("placeholder", "get_attr") and name in references:
            shapes[references[name]] = _tensor_shapes(fx_node.meta.get("val"))[0][0]
    graph = LayerGraph(
        nodes=tuple(nodes),
        parameters={name: tuple(p.shape) for name, p in module.named_parameters()},
        constants={r.name: shape for r, shape in shapes.items() if r.kind == "constant"},
        inputs={r.name: shape for r, shape in shapes.items() if r.kind == "input"},
        outputs=outputs,
        ties=ties,
        weights={name: _values(p) for name, p in module.named_parameters()},
    )
    propagation = propagate(graph)
    if strict and propagation.unknown:
        raise NotYetSupported(
            "strict capture: " + " ".join(str(entry) for entry in propagation.unknown)
        )
    return dataclasses.replace(graph, support=propagation.support)


def _values(parameter: Tensor) -> np.ndarray:
    """A copy of the numbers; numpy has no bfloat16, and nothing is lost in float32."""
    values = parameter.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy().copy()


def _check_module(module: nn.Module) -> None:
    if not isinstance(module, nn.Module):
        raise BadInput(f"capture needs a torch.nn.Module, not {type(module).__name__}")
    training = [name or "the network itself" for name, m in module.named_modules() if m.training]
    if training:
        shown = ", ".join(training[:3]) + (" and more" if len(training) > 3 else "")
        raise WrongMode(
            f"{type(module).__name__} is in training mode ({shown}): dropout and batch "
            "normalization then make its predictions depend on chance and on the batch, and no "
            "one function is there to rescale; call module.eval() first"
        )
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise BadInput(
                f"{name} of {type(module).__name__} has no shape yet (a lazy layer): call the "
                "network once on an example before capturing it"
            )


def _parameter_names(module: nn.Module) -> tuple[dict[str, str], tuple[tuple[str, ...], ...]]:
    """Every name of a parameter -> its first name, and the names that share one parameter."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    canonical = {name: shared[0] for shared in names.values() for name in shared}
    return canonical, tuple(tuple(shared) for shared in names.values() if len(shared) > 1)


def _check_storage(module: nn.Module, constants: Mapping[str, Any]) -> None:
    """Refuse tensors that are different in name but share memory: scaling one would scale both."""
    parameters = dict(module.named_parameters())
    tensors: dict[str, Any] = parameters | dict(module.named_buffers())
    for name, constant in constants.items():
        if isinstance(constant, Tensor) and not isinstance(constant, nn.Parameter):
            tensors.setdefault(name, constant)
    owners: dict[int, str] = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
        other = owners.setdefault(address, name)
        if address and tensor is not tensors[other] and parameters.keys() & {name, other}:
            raise NotYetSupported(
                f"{other} and {name} of {type(module).__name__} are different tensors in the same "
                "memory, so that rescaling one would change the other unseen; make one of them a "
                "copy (.clone()), or register the same nn.Parameter under both names"
            )


def _placeholders(program: Any, canonical: Mapping[str, str]) -> dict[str, Reference]:
    """What each placeholder of the exported program stands for."""
    kinds: dict[str, Any] = {"PARAMETER": "parameter", "USER_INPUT": "input"}
    references = {}
    for spec in program.graph_signature.input_specs:
        placeholder = getattr(spec.arg, "name", None)
        if placeholder is not None:
            name = canonical.get(spec.target, spec.target) or placeholder
            references[placeholder] = Reference(kinds.get(spec.kind.name, "constant"), name)
    return references


def _node(fx_node: Any, references: Mapping[str, Reference]) -> Node:
    target = fx_node.target
    if isinstance(target, torch._ops.OpOverload):
        op, arguments = str(target), named_arguments(fx_node)
    else:
        op = "getitem" if target is operator.getitem else getattr(target, "__name__", str(target))
        arguments = {str(k): value for k, value in enumerate(fx_node.args)} | dict(fx_node.kwargs)
    try:
        shapes = _tensor_shapes(fx_node.meta.get("val"))
    except Exception as error:
        raise NotYetSupported(
            f"the shape of what {layer_name(fx_node) or 'the network'} ({op}) returns depends on "
            "the values of tensors, so no single graph describes it; pick a fixed number of "
            "positions, or multiply by a mask instead of indexing with it"
        ) from error
    return Node(
        name=fx_node.name,
        op=op,
        layer=layer_name(fx_node),
        arguments={name: _argument(value, references) for name, value in arguments.items()},
        shapes=tuple(shape for shape, _ in shapes),
        floating=tuple(floating for _, floating in shapes),
    )


def _tensor_shapes(value: Any) -> list[tuple[Shape, bool]]:
    values = value if isinstance(value, list | tuple) else [value]
    return [
        (tuple(int(size) for size in v.shape), v.dtype.is_floating_point or v.dtype.is_complex)
        if isinstance(v, Tensor)
        else ((), isinstance(v, float | torch.SymFloat))
        for v in values
    ]


def _argument(value: Any, references: Mapping[str, Reference]) -> Argument:
    if isinstance(value, torch.fx.Node):
        if value.name not in references:
            raise Unsupported(f"{value.name} is used before it is computed")
        return references[value.name]
    if isinstance(value, list | tuple):
        return tuple(_argument(item, references) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
