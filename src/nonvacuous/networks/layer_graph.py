"""What a network computes, written down as plain names and numbers: everything about torch ends
here.

`capture` makes a :class:`LayerGraph`; `scale_groups` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of left-aligned text under a header and a rule."""
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reference:
    """A tensor that a node reads.

    kind   "node": what an earlier node computed; "parameter": a weight of the network;
           "constant": a buffer or a tensor written into the code; "input": what the caller gives
    name   the node's or input's name in the graph, or the dotted name of the weight or buffer
    """

    kind: Literal["node", "parameter", "constant", "input"]
    name: str


Argument = Reference | int | float | bool | str | None | tuple["Argument", ...]


@dataclass(frozen=True)
class Node:
    """One operation of the network.

    name        its own name, by which later nodes refer to it
    op          the operator, such as "aten.conv2d.default"
    layer       the dotted name of the layer that called it; "" for the network itself
    arguments   every argument by the name that the operator's signature gives it, defaults
                included; tensors are references
    shapes      the shape of each tensor that it returns (an empty one for what is not a tensor)
    floating    whether each of those tensors holds floating-point numbers
    """

    name: str
    op: str
    layer: str
    arguments: Mapping[str, Argument]
    shapes: tuple[Shape, ...]
    floating: tuple[bool, ...]

    @property
    def kind(self) -> str:
        """The operator without its library and overload, as "conv2d"; a foreign one in full."""
        parts = self.op.split(".")
        return parts[1] if parts[0] == "aten" and len(parts) > 1 else self.op

    @property
    def shape(self) -> Shape:
        """The shape of the first tensor that it returns."""
        return self.shapes[0] if self.shapes else ()

    @property
    def references(self) -> tuple[Reference, ...]:
        """Every tensor that it reads, in the order of the arguments."""
        return tuple(_references(tuple(self.arguments.values())))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the nodes and network inputs that it reads."""
        return tuple(r.name for r in self.references if r.kind in ("node", "input"))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The dotted names of the weights that it reads."""
        return tuple(r.name for r in self.references if r.kind == "parameter")


@dataclass(frozen=True)
class Support:
    """A place where no scale passes: what stands there, why, and what would help."""

    layer: str
    op: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.layer or 'the network'} ({self.op}): {self.reason}. {self.remedy}"


@dataclass(frozen=True)
class LayerGraph:
    """A network as a list of operations in the order in which they run.

    nodes        the operations
    parameters   dotted name -> shape of every weight of the network, used or not; a weight that
                 two layers share appears once, under its first name
    constants    dotted name -> shape of buffers and of tensors written into the code
    inputs       name -> shape of what the caller gives
    outputs      what the network returns
    ties         the groups of dotted names that are one and the same weight
    support      the places where no scale passes, and why; empty means that everything rescales
    weights      the values of the parameters when the network was captured
    """

    nodes: tuple[Node, ...]
    parameters: Mapping[str, Shape]
    constants: Mapping[str, Shape]
    inputs: Mapping[str, Shape]
    outputs: tuple[Reference, ...]
    ties: tuple[tuple[str, ...], ...] = ()
    support: tuple[Support, ...] = ()
    weights: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def node(self, name: str) -> Node:
        """The node of this name."""
        return {node.name: node for node in self.nodes}[name]

    def __str__(self) -> str:
        rows = []
        for n in self.nodes:
            sizes = "x".join(map(str, n.shape)) or "one number"
            rows.append((n.name, n.layer or "-", n.op, sizes, ", ".join(n.parameters) or "-"))
        lines = [table(("node", "layer", "operator", "shape", "weights"), rows)]
        lines += [f"one weight under several names: {', '.join(names)}" for names in self.ties]
        if self.support:
            lines += ["", "no scale passes:", *(f"  {entry}" for entry in self.support)]
        return "\n".join(lines)


def _references(arguments: tuple[Argument, ...]) -> Iterator[Reference]:
    for argument in arguments:
        if isinstance(argument, Reference):
            yield argument
        elif isinstance(argument, tuple):
            yield from _references(argument)
