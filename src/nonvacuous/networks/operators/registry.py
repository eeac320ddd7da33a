"""How a positive scale passes each operator: the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.networks.log_scale import LogScale
    from nonvacuous.networks.operators.passage import Passage

    Rule = Callable[[Passage], LogScale | Iterable[LogScale]]

    AnyRule = TypeVar("AnyRule", bound=Rule)

_RULES: dict[str, Rule] = {}


def register_operator(*names: str, replace: bool = False) -> Callable[[AnyRule], AnyRule]:
    """Say how scales pass the operators of these names, as a decorator.

    names     as `print(capture(module, example))` shows them: "aten.relu.default",
              "mylibrary.myoperator.default"; "aten.relu" stands for all its overloads
    replace   allow a rule that is there already to be replaced

    The decorated function gets a :class:`Passage` and returns the scale of the result (several
    for an operator with several results). It must state a truth: whenever the arguments are
    multiplied by factors with these logarithms, the result is multiplied by the returned one. Test
    it with :func:`nonvacuous.networks.preservation_error`.
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
