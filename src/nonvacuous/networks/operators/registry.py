"""How a positive scale passes each operator: what a rule sees and may demand, and the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nonvacuous.errors import BadInput
from nonvacuous.networks.layer_graph import Argument, Node, Reference, Shape, Support
from nonvacuous.networks.log_scale import LogScale, Term

if TYPE_CHECKING:
    from nonvacuous.networks.propagation import Propagation

Layout = Sequence[tuple[tuple[int, ...], np.ndarray]]
"""How the unknowns of a weight are laid out: per term the axes that it depends on, and an array,
broadcastable to the weight, that numbers its unknowns from 0."""


class Passage:
    """One node while the scales pass it.

    Every method that demands something of the scales keeps the function true by itself: what
    cannot be granted ends up pinned, never wrong.
    """

    def __init__(self, node: Node, propagation: Propagation) -> None:
        self.node = node
        self.support: tuple[Support, ...] = ()
        self._propagation = propagation
        self._constraints = propagation.equations
        #: The scale of a sum of products: ``product([(x, "bi"), (w, "oi")], "bo")`` is linear.
        self.product = propagation.equations.product

    @property
    def shape(self) -> Shape:
        """The shape of the (first) result."""
        return self.node.shape

    def attribute(self, name: str, default: Argument = None) -> Argument:
        """An argument that is no tensor, by its name in the operator's signature."""
        return self.node.arguments.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        """An argument that is a whole number."""
        value = self.attribute(name, default)
        if not isinstance(value, int):
            raise BadInput(f"{self.where}: {name} is {value!r}, not a whole number")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """An argument that is a list of whole numbers; a single one counts as a list."""
        value = self.attribute(name, ())
        items = value if isinstance(value, tuple) else (value,)
        return tuple(item for item in items if isinstance(item, int))

    @property
    def where(self) -> str:
        """The layer and operator, for messages."""
        return f"{self.node.layer or 'the network'} ({self.node.op})"

    def has(self, name: str) -> bool:
        """Whether this argument is a tensor (and not left out, or a number)."""
        return isinstance(self.node.arguments.get(name), Reference)

    def scale(self, name: str, layout: Layout | None = None) -> LogScale:
        """The scale of a tensor argument; a number does not scale.

        layout   for a weight that is used here for the first time: how its unknowns lie
        """
        return self.scale_of(self.node.arguments.get(name), layout)

    def scale_of(self, argument: Argument, layout: Layout | None = None) -> LogScale:
        """The same for an argument in hand, such as one out of a list."""
        if not isinstance(argument, Reference):
            return LogScale(())
        if argument.kind == "parameter":
            return self._propagation.weight(argument.name, layout)
        return self._propagation.value(argument)[0]

    def shape_of(self, argument: Argument) -> Shape:
        """The shape of a tensor argument in hand, without making unknowns for a weight."""
        if isinstance(argument, Reference) and argument.kind == "parameter":
            return self._propagation.graph.parameters[argument.name]
        return self.scale_of(argument).shape

    def scales(self, name: str) -> list[LogScale]:
        """The scales of an argument that is a list of tensors, or a tensor with several parts."""
        value = self.node.arguments.get(name)
        items = value if isinstance(value, tuple) else (value,)
        references = [item for item in items if isinstance(item, Reference)]
        return [scale for item in references for scale in self._propagation.value(item)]

    def fresh(self, shape: Shape, axis: int) -> LogScale:
        """A scale along one axis about which nothing is known, for zeros: 0 times anything is 0."""
        axes, numbers = along(shape, (axis,))
        labels = self._constraints.fresh(shape[axis])[numbers]
        return LogScale(shape, (Term(1, labels, frozenset(axes)),))

    def tie(self, *scales: LogScale) -> LogScale:
        """These tensors are added or compared elementwise: they must scale alike. Returns their
        common scale."""
        shape = np.broadcast_shapes(*(scale.shape for scale in scales))
        still = [scale for scale in scales if not scale.terms]
        reason = f"tied in {self.where} to something that does not scale" if still else ""
        for other in scales[1:]:
            self._constraints.tie(
                scales[0], other, reason=reason or f"cannot agree in {self.where}"
            )
        simplest = min(scales, key=lambda scale: len(scale.terms))
        return LogScale(tuple(shape), simplest.broadcast_to(shape).terms)

    def pin(self, scale: LogScale, reason: str, remedy: str = "") -> LogScale:
        """This tensor must not scale; with a remedy, that is written into graph.support."""
        news = self._constraints.pin(scale, reason=f"{reason}, in {self.where}")
        entry = Support(self.node.layer, self.node.op, reason, remedy)
        if news and remedy and entry not in self.support:
            self.support += (entry,)
        return LogScale(scale.shape)

    def pin_all(self, reason: str, remedy: str) -> None:
        """No scale passes: everything that this node reads is pinned."""
        for reference in self.node.references:
            for scale in self._propagation.value(reference):
                self.pin(scale, reason, remedy)

    def constant(self, scale: LogScale, axes: Sequence[int]) -> LogScale:
        """Positions along these axes are mixed: their scales must be the same."""
        reason = f"mixed with something that does not scale in {self.where}"
        return self._constraints.constant(scale, axes, reason=reason)

    def channels(self, scale: LogScale, spatial: int) -> LogScale:
        """Without so many axes at the end, of height, width and depth, which scale alike."""
        axes = range(scale.dimensions - spatial, scale.dimensions)
        scale = self.constant(scale, axes)
        for _ in axes:
            scale = scale.select(-1, 0)
        return scale

    def spread(self, scale: LogScale) -> LogScale:
        """Of the result, from the scale of its first axes."""
        missing = [None] * (len(self.shape) - scale.dimensions)
        return scale.arranged([*range(scale.dimensions), *missing])


def per_axis(shape: Sequence[int]) -> Layout:
    """One unknown per position along each axis; one in all for a single number."""
    axes = [axis for axis, size in enumerate(shape) if size > 1] or list(range(len(shape)))[:1]
    if not axes:
        return [((), np.zeros((), dtype=np.int64))]
    return [along(shape, (axis,)) for axis in axes]


def along(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], np.ndarray]:
    """One unknown per combination of positions along these axes."""
    sizes = [shape[a] if a in axes else 1 for a in range(len(shape))]
    return tuple(sorted(axes)), np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)


def aten(names: str) -> tuple[str, ...]:
    """Names of PyTorch's own operators, for :func:`register_operator`.

    >>> aten("relu abs")
    ('aten.relu', 'aten.abs')
    """
    return tuple(f"aten.{name}" for name in names.split())


Rule = Callable[[Passage], LogScale | Iterable[LogScale]]
AnyRule = TypeVar("AnyRule", bound=Rule)
_RULES: dict[str, Rule] = {}


def register_operator(*names: str, replace: bool = False) -> Callable[[AnyRule], AnyRule]:
    """Say how scales pass the operators of these names, as a decorator.

    names     as `print(capture(module, example))` shows them: "aten.relu.default",
              "mylibrary.myoperator.default"; "aten.relu" stands for all its overloads
    replace   allow a rule that is there already to be replaced

    The decorated function gets a :class:`Passage` and returns the scale of the result, or one that
    broadcasts to it (several for an operator with several results). It must state a truth: whenever
    the arguments are multiplied by factors with these logarithms, the result is multiplied by the
    returned one. Test it with :func:`nonvacuous.networks.preservation_error`.
    """
    if not names:
        raise BadInput("register_operator: give at least one operator name, as in aten.relu")

    def register(rule: AnyRule) -> AnyRule:
        for name in names:
            if name in _RULES and not replace:
                raise BadInput(
                    f"register_operator: {name} has a rule already; pass replace=True to put "
                    "yours in its place"
                )
            _RULES[name] = rule
        return rule

    return register


def unregister_operator(name: str) -> None:
    """Forget a rule: the operator then pins what it touches."""
    if _RULES.pop(name, None) is None:
        raise BadInput(f"unregister_operator: {name} has no rule")


def lookup(op: str) -> Rule | None:
    """The rule for an operator; one for the exact overload goes first."""
    return _RULES.get(op) or _RULES.get(op.rpartition(".")[0])


def registered_operators() -> tuple[str, ...]:
    """Every name that has a rule."""
    return tuple(sorted(_RULES))
