"""The bounds a certificate may rest on: those of the table of theorems whose entry says so.

A name that is not among them is refused, and so is an input that the theorem does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nonvacuous.bounds.table import THEOREMS, Theorem
from nonvacuous.errors import BadInput
from nonvacuous.records import BoundRecord

#: Every bound that may carry a certificate, by name.
CERTIFYING: Mapping[str, Theorem] = MappingProxyType(
    {name: entry for name, entry in THEOREMS.items() if entry.certifies}
)

#: The ledger line of the confidence that is left to other certificates on the same examples.
OTHERS_LINE = "other certificates"
_ITEM = re.compile(r"^(?P<name>[a-z_]+)\.(?P<position>0|[1-9][0-9]*)$")


def theorem(name: str) -> Theorem:
    """The registered bound of that name; :class:`BadInput` if there is none."""
    if name not in CERTIFYING:
        raise BadInput(
            f"bound.name is {name!r}, which is not a bound that certificates may rest on; known "
            f"are {', '.join(CERTIFYING)}."
        )
    return CERTIFYING[name]


def bound_record(name: str, **inputs: float | int) -> BoundRecord:
    """The record of a bound with its registered source; a list goes item by item (``grid.0``)."""
    source = theorem(name).source
    plain = {key: int(value) if isinstance(value, bool) else value for key, value in inputs.items()}
    return BoundRecord(name=name, theorem=source, inputs=plain)


def recompute_bound(bound: BoundRecord) -> float:
    """The bound's value from its recorded inputs alone, by the function registered for its name."""
    entry = theorem(bound.name)
    arguments = _arguments(bound.inputs)
    allowed = set(entry.parameters)
    unknown = sorted(set(arguments) - allowed)
    missing = sorted(set(entry.required) - set(arguments))
    if unknown or missing:
        raise BadInput(
            f"bound.inputs of {bound.name!r} must be {', '.join(sorted(allowed))}: "
            + "; ".join(
                f"{what} {', '.join(names)}"
                for what, names in (("unknown", unknown), ("missing", missing))
                if names
            )
            + "."
        )
    try:
        return float(entry.function(**arguments))
    except TypeError as error:
        raise BadInput(f"bound.inputs do not fit {bound.name!r}: {error}.") from error
    except ArithmeticError as error:
        raise BadInput(f"bound.inputs are out of range for {bound.name!r}: {error}.") from error


def _arguments(inputs: Mapping[str, float | int]) -> dict[str, Any]:
    """Keyword arguments: the 0/1 switch as a boolean, ``grid.0``, ``grid.1``, ... as a tuple."""
    arguments: dict[str, Any] = {}
    lists: dict[str, dict[int, float | int]] = {}
    for key, value in inputs.items():
        item = _ITEM.match(key)
        if item is not None:
            lists.setdefault(item["name"], {})[int(item["position"])] = value
        elif key == "exact_moment":
            if value not in (0, 1):
                raise BadInput(f"bound.inputs.exact_moment must be 0 or 1, got {value!r}.")
            arguments[key] = bool(value)
        else:
            arguments[key] = value
    for name, items in lists.items():
        if name in arguments or sorted(items) != list(range(len(items))):
            raise BadInput(f"bound.inputs.{name} must be numbered 0, 1, 2, ... without gaps.")
        arguments[name] = tuple(items[position] for position in range(len(items)))
    return arguments
