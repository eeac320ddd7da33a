"""The table of theorems: each is entered once, above its function, and everything reads it here.

The calculator, certificates and their verification, pages, the documentation and the conformance
suite take from an entry what they need. To add a bound, write its function in the module of its
family, put ``@theorem(...)`` above it, and write its oracle: ``docs/extending.md``.

Bounds are statements about *events*. Comparing those that are read off on one event is free;
whoever reports the smallest of k numbers on k events must have all of them happen.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class Input:
    """One number that a theorem is given.

    ``push`` is +1 where the bound grows with it, -1 where it shrinks, 0 where neither is said. The
    range is from ``low`` to ``high``, without these two if ``open``; ``at_most`` names another
    input that it must not exceed. What stands ``apart``, such as a sequence, has tests of its own.
    """

    meaning: str
    example: Any
    push: int = 0
    low: float = 0.0
    high: float = math.inf
    open: bool = False
    whole: bool = False
    at_most: str | None = None
    apart: bool = False

    def checked(self, name: str, value: Any) -> float | int:
        """The value as a plain number, if it lies in the range."""
        if self.whole:
            return checks.count(name, value, minimum=int(self.low))
        if name == "failure":
            return checks.failure_probability(value)
        return checks.within(name, value, self.low, self.high, open=self.open)


def _part(meaning: str, example: float, push: int = 1, **rest: Any) -> Input:
    return Input(meaning, example, push, high=1.0, **rest)


#: Inputs that many theorems share. One that only a single theorem has stands in its own entry.
INPUTS: Mapping[str, Input] = {
    "empirical_risk": _part("the error on the bound examples, or an upper end of it", 0.1),
    "second_moment": _part("the mean squared loss", 0.05, at_most="empirical_risk"),
    "kl_nats": Input("KL(posterior || prior)", 10.0, push=1),
    "examples": Input("independent examples", 10_000, push=-1, low=1, whole=True),
    "trials": Input("independent trials", 10_000, push=-1, low=1, whole=True),
    "errors": Input("errors among them", 100, push=1, whole=True, at_most="examples"),
    "failure": _part("probability that the claim is false", 0.05, push=-1, open=True),
    "target": _part("the risk to promise", 0.05),
    "risk": _part("the true risk, as planned", 0.03),
    "chance": _part("how likely the promise shall be", 0.9),
    "margin": Input("by how much the right score leads", 1.0, push=-1, open=True),
    "width": Input("the largest layer", 784, push=1, low=1, whole=True),
}
#: Inputs that pay for the distance to the prior; a theorem has one of them at most.
PRICES = ("kl_nats", "log_density_ratio", "renyi_nats")


FIRST = "the one to choose beforehand"
SAME_EVENT = "follows from the first row, never smaller"
OWN_EVENT = "holds on an event of its own"
_ORDER = (FIRST, SAME_EVENT, OWN_EVENT)


@dataclass(frozen=True)
class Row:
    """One bound with its value: its theorem in a few words, and what became of its parameter."""

    name: str
    risk_upper: float
    theorem: str
    free_parameter: str
    relation: str
    #: "none": no free parameter; "free": true for all its values at once; "paid": by a union over
    #: a grid fixed beforehand; "asserted": the user says it was fixed before the data.
    charge: str = "none"


@dataclass(frozen=True)
class Reading:
    """A theorem as one row among others, in the calculator and on a certificate's page.

    ``short`` are the calculator's words, ``title`` and ``detail`` the page's. ``options`` are
    arguments that this row fixes; ``best`` names a parameter that may be chosen after the data,
    and the function that chooses it; ``grid`` is the grid that is paid for. ``name`` is the
    function's, and ``about`` the first that its theorem speaks about, unless they are given.
    """

    title: str
    detail: str
    short: str
    relation: str = SAME_EVENT
    options: Mapping[str, Any] = field(default_factory=dict)
    best: tuple[str, Callable[..., float]] | None = None
    grid: tuple[float, ...] = ()
    name: str = ""
    about: str = ""


@dataclass(frozen=True)
class Theorem:
    """One bound: the function, its source, and the facts that its inputs must agree with.

    ``about`` are the predictors it speaks about. ``fixed_before`` are inputs that hold only for
    values chosen before the bound examples were seen; ``free`` are inputs for which it holds at all
    values at once.
    """

    function: Callable[..., float]
    inputs: Mapping[str, Input]
    readings: tuple[Reading, ...]
    source: str
    about: tuple[str, ...] = ("stochastic",)
    certifies: bool = False
    fixed_before: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    lower: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def complexity(self) -> str | None:
        """The input that pays for the distance to the prior, if any does."""
        return next((name for name in PRICES if name in self.inputs), None)

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def required(self) -> tuple[str, ...]:
        return tuple(n for n, p in self.parameters.items() if p.default is p.empty)

    @property
    def statement(self) -> str:
        """What it says, in words: the docstring up to its example."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n>>>")[0].strip()

    def row(self, reading: Reading, given: Mapping[str, Any]) -> Row | None:
        """The reading's row, or None where the numbers given are not enough for it."""
        call = {k: v for k, v in {**given, **reading.options}.items() if k in self.parameters}
        words, charge = "none", "none"
        asserted = [name for name in self.fixed_before if name in call]
        if asserted:
            words, charge = f"{call[asserted[0]]:g}, fixed beforehand", "asserted"
        elif reading.grid:
            words, charge = f"grid of {len(reading.grid)}, paid", "paid"
        elif reading.best is not None:
            name, choose = reading.best
            call[name] = choose(**call)
            words, charge = f"best {call[name]:.3g}, free", "free"
        if not set(self.required) <= set(call):
            return None
        value = self.function(**call)
        return Row(reading.name, value, reading.short, words, reading.relation, charge)


#: Every theorem by name, in the order of their modules.
THEOREMS: dict[str, Theorem] = {}
Function = TypeVar("Function", bound=Callable[..., Any])


def named_row(theorem: str, options: Mapping[str, Any]) -> str:
    return f"{theorem}_exact" if options.get("exact_moment") else theorem


def guarded(function: Function, inputs: Mapping[str, Input] = INPUTS) -> Function:
    """The function, called with plain numbers in their ranges or not at all.

    What stands apart, such as a sequence, the function checks itself.
    """
    names = inspect.signature(function).parameters
    numbers = {n: spec for n, spec in inputs.items() if n in names and not spec.apart}
    switches = [name for name, p in names.items() if isinstance(p.default, bool)]
    limits = {n: spec.at_most for n, spec in numbers.items() if spec.at_most is not None}
    # Errors are counted among examples, or among trials.
    limits = {name: other if other in names else "trials" for name, other in limits.items()}

    @wraps(function)
    def called(*given: Any, **arguments: Any) -> Any:
        for name, spec in numbers.items():
            if name in arguments:
                arguments[name] = spec.checked(name, arguments[name])
        for name, other in limits.items():
            if name in arguments and other in arguments:
                checks.at_most(name, arguments[name], other, arguments[other])
        for name in switches:
            if not isinstance(arguments.get(name, True), bool):
                raise BadInput(f"{name} must be True or False, got {arguments[name]!r}.")
        return function(*given, **arguments)

    return cast(Function, called)


def theorem(*readings: Reading, **facts: Any) -> Callable[[Function], Function]:
    """Enter a function, guarded, with the other fields of its :class:`Theorem`.

    Inputs that :data:`INPUTS` does not know are described by keyword too.
    """
    described = {name: fact for name, fact in facts.items() if isinstance(fact, Input)}
    known = {**INPUTS, **described}
    fields = {name: fact for name, fact in facts.items() if name not in described}

    def enter(function: Function) -> Function:
        names = inspect.signature(function).parameters
        inputs = {name: known[name] for name in names if name in known}
        entry = Theorem(guarded(function, inputs), inputs, (), **fields)
        named = tuple(
            replace(
                reading,
                name=reading.name or named_row(entry.name, reading.options),
                about=reading.about or entry.about[0],
            )
            for reading in readings
        )
        THEOREMS[entry.name] = replace(entry, readings=named)
        return cast(Function, entry.function)

    return enter


def readings() -> Iterator[tuple[Theorem, Reading]]:
    for entry in THEOREMS.values():
        for reading in entry.readings:
            yield entry, reading


def rows(about: str, given: Mapping[str, Any]) -> tuple[Row, ...]:
    """Every theorem about this predictor that follows from the numbers given, the first first."""
    entries = [
        (entry, row)
        for entry, reading in readings()
        if reading.about == about and (row := entry.row(reading, given)) is not None
    ]
    # What the user had to assert comes last; what pays for no prior before what does.
    entries.sort(
        key=lambda pair: (
            _ORDER.index(pair[1].relation),
            pair[1].charge == "asserted",
            pair[0].complexity is not None,
        )
    )
    return tuple(row for _, row in entries)


@dataclass(frozen=True)
class Comparison:
    """Bounds side by side, each at ``failure``; ``best`` is the one that may be reported."""

    rows: tuple[Row, ...]
    best: str
    #: What each row was given: the whole failure probability, or its share in a paid comparison.
    failure: float
    events: int
    paid: bool


def compare(
    about: str, given: Mapping[str, Any], failure: float, *, paid: bool = False
) -> Comparison:
    """All rows at this failure probability; the smallest may be reported if that is ``paid`` for.

    The number of events follows from which numbers were given, never from how they came out.
    """
    shown = rows(about, {**given, "failure": failure})
    events, best = 1 + sum(row.relation == OWN_EVENT for row in shown), shown[0]
    if paid:
        failure /= events
        shown = rows(about, {**given, "failure": failure})
        # The first of equals: a tie goes to the bound that is chosen anyway.
        best = min(shown, key=lambda row: row.risk_upper)
    return Comparison(shown, best.name, failure, events, paid)


def title_and_detail(name: str) -> tuple[str, str] | None:
    """A row's words on a page, or None for a name that is not in the table."""
    return next(((r.title, r.detail) for _, r in readings() if r.name == name), None)
