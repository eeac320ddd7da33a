"""The bounds a certificate may rest on: by name, with what goes in and whom they speak about.

A name that is not here is refused, and so is an input that the theorem does not have. A new bound
of :mod:`nonvacuous.bounds` can carry certificates once it is registered here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nonvacuous import bounds
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.errors import BadInput
from nonvacuous.records import BoundRecord


@dataclass(frozen=True)
class Theorem:
    """One bound: the function, its source, and the facts that its inputs must agree with.

    ``complexity`` names the input that pays for the distance to the prior. ``fixed_before`` are
    inputs that hold only for values chosen before the bound examples were seen; ``free`` are
    inputs for which the theorem holds at all values at once.
    """

    name: str
    function: Callable[..., float]
    source: str
    predictors: tuple[str, ...]
    inputs: tuple[str, ...]
    complexity: str | None
    fixed_before: tuple[str, ...] = ()
    free: tuple[str, ...] = ()


_COMMON = ("empirical_risk", "kl_nats", "examples", "failure")
_RANDOMIZED = ("stochastic",)
_DRAWN = ("drawn",)


def _pac_bayes(name: str, function: Callable[..., float], source: str, **rest: Any) -> Theorem:
    return Theorem(name, function, source, _RANDOMIZED, _COMMON, "kl_nats", **rest)


_ALL = (
    _pac_bayes(
        "seeger",
        bounds.seeger,
        "PAC-Bayes-kl bound: Seeger (2002), Langford (2005), with the constant of Maurer (2004)",
        free=("exact_moment",),
    ),
    _pac_bayes(
        "mcallester",
        bounds.mcallester,
        "PAC-Bayes bound of McAllester (1999), with the constant of Maurer (2004)",
    ),
    _pac_bayes(
        "quadratic",
        bounds.quadratic,
        "PAC-Bayes-quadratic bound: Rivasplata et al. (2019), Perez-Ortiz et al. (2021)",
    ),
    _pac_bayes(
        "thiemann",
        bounds.thiemann,
        "PAC-Bayes-lambda bound: Thiemann, Igel, Wintenberger and Seldin (2017), Theorem 3",
        free=("trade_off",),
    ),
    _pac_bayes(
        "thiemann_union",
        bounds.thiemann_union,
        "PAC-Bayes-lambda bound: Thiemann et al. (2017), with a union bound over a fixed grid",
        fixed_before=("grid",),
    ),
    _pac_bayes(
        "catoni",
        bounds.catoni,
        "PAC-Bayes bound of Catoni (2007), Theorem 1.2.6, at a temperature fixed before the data",
        fixed_before=("temperature",),
    ),
    _pac_bayes(
        "catoni_union",
        bounds.catoni_union,
        "PAC-Bayes bound of Catoni (2007), Theorem 1.2.6, with a union bound over a fixed grid",
        fixed_before=("grid",),
    ),
    Theorem(
        "disintegrated",
        bounds.disintegrated,
        "Bound for one drawn network: Rivasplata, Kuzborskij, Szepesvari and Shawe-Taylor (2020), "
        "Theorem 1 (i)",
        _DRAWN,
        ("empirical_risk", "log_density_ratio", "examples", "failure"),
        "log_density_ratio",
        free=("exact_moment",),
    ),
    Theorem(
        "disintegrated_renyi",
        bounds.disintegrated_renyi,
        "Bound for one drawn network: Viallard, Germain, Habrard and Morvant (2024), Theorem 2",
        _DRAWN,
        ("empirical_risk", "renyi_nats", "order", "examples", "failure"),
        "renyi_nats",
        fixed_before=("order",),
    ),
    Theorem(
        "derandomized",
        derandomized,
        "Derandomized PAC-Bayes-kl bound for one fixed network, after Nagarajan and Kolter (2019) "
        "and Muthukumar and Sulam (2023): docs/theory/sparsity.md, section 1",
        ("deterministic",),
        ("loss_upper", "escape", "kl_nats", "grid_nats", "examples", "failure"),
        "kl_nats",
    ),
    Theorem(
        "holdout",
        bounds.holdout,
        "Exact binomial tail: Clopper and Pearson (1934), Langford (2005), Theorem 3.3",
        ("deterministic", "drawn"),
        ("errors", "examples", "failure"),
        None,
    ),
)

#: Every bound that may carry a certificate, by name.
THEOREMS: Mapping[str, Theorem] = MappingProxyType({theorem.name: theorem for theorem in _ALL})

_ITEM = re.compile(r"^(?P<name>[a-z_]+)\.(?P<position>0|[1-9][0-9]*)$")


def theorem(name: str) -> Theorem:
    """The registered bound of that name; :class:`BadInput` if there is none."""
    if name not in THEOREMS:
        raise BadInput(
            f"bound.name is {name!r}, which is not a bound that certificates may rest on; known "
            f"are {', '.join(THEOREMS)}."
        )
    return THEOREMS[name]


def bound_record(name: str, **inputs: float | int) -> BoundRecord:
    """The record of a bound with its registered source; a list goes item by item (``grid.0``)."""
    found = theorem(name)
    plain = {key: int(value) if isinstance(value, bool) else value for key, value in inputs.items()}
    return BoundRecord(name=name, theorem=found.source, inputs=plain)


def recompute_bound(bound: BoundRecord) -> float:
    """The bound's value from its recorded inputs alone, by the function registered for its name."""
    found = theorem(bound.name)
    arguments = _arguments(bound.inputs)
    allowed = {*found.inputs, *found.fixed_before, *found.free}
    unknown = sorted(set(arguments) - allowed)
    missing = sorted(set(found.inputs) - set(arguments))
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
        return float(found.function(**arguments))
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
