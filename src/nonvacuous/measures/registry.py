"""Measures by name: what each one is, needs and claims not to depend on; and what it gives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from scipy.special import logsumexp

from nonvacuous.errors import BadInput, NonvacuousError, Unsupported, nearest

if TYPE_CHECKING:
    from nonvacuous.measures.subject import Subject

#: exp of more than this leaves the range of float64.
_LARGEST = math.log(1.7e308)


@dataclass(frozen=True)
class Value:
    """A number together with its natural logarithm.

    number   infinite where the value leaves the range of float64; the logarithm never does
    log      None where the number is negative; minus infinity for 0
    """

    number: float
    log: float | None

    @classmethod
    def of(cls, number: float) -> Value:
        if math.isnan(number) or math.isinf(number):
            raise ValueError(f"a measure must not be {number!r}; return Undefined with a reason")
        log = None if number < 0 else (math.log(number) if number > 0 else -math.inf)
        return cls(float(number), log)

    @classmethod
    def of_log(cls, log: float) -> Value:
        """A positive number given by its natural logarithm, however large.

        >>> Value.of_log(2000.0).number, Value.of_log(2000.0).decades
        (inf, 868.5889638065036)
        """
        if math.isnan(log) or log == math.inf:
            raise ValueError(f"the logarithm of a measure must not be {log!r}")
        return cls(math.inf if log > _LARGEST else math.exp(log), log)

    @property
    def decades(self) -> float | None:
        """The logarithm to base ten; None for a negative number."""
        return None if self.log is None else self.log / math.log(10.0)

    def __str__(self) -> str:
        """Four digits for a person.

        >>> print(Value.of(1234567.0), Value.of(0.25), Value.of_log(2000.0), Value.of(12.0))
        1.235e+06 0.25 3.881e+868 12
        """
        if math.isfinite(self.number):
            return f"{self.number:.4g}"
        assert self.log is not None
        exponent = math.floor(self.log / math.log(10.0))
        return f"{math.exp(self.log - exponent * math.log(10.0)):.3f}e+{exponent}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which knows no infinity."""
        own = {"number": self.number, "log10": self.decades}
        return {n: v if v is not None and math.isfinite(v) else None for n, v in own.items()}


@dataclass(frozen=True)
class Undefined:
    """Why a measure says nothing about this network."""

    reason: str

    def __str__(self) -> str:
        return "undefined"

    def to_dict(self) -> dict[str, Any]:
        return {"undefined": self.reason}


Result = Value | Undefined


def relative_difference(one: Result, other: Result) -> float:
    """By which part of themselves two results differ; infinite where only one of them exists.

    >>> relative_difference(Value.of(2.0), Value.of(2.002)) < 1e-3
    True
    >>> relative_difference(Value.of_log(5000.0), Value.of_log(5000.0 + 1e-6)) < 2e-6
    True
    """
    if isinstance(one, Undefined) or isinstance(other, Undefined):
        return 0.0 if isinstance(one, Undefined) and isinstance(other, Undefined) else math.inf
    if one.number == other.number and math.isfinite(one.number):
        return 0.0
    if one.log is not None and other.log is not None:
        if math.isinf(one.log) or math.isinf(other.log):
            return 0.0 if one.log == other.log else math.inf
        return -math.expm1(-abs(one.log - other.log))
    return abs(one.number - other.number) / max(abs(one.number), abs(other.number))


def log_sum(logs: Sequence[float]) -> float:
    """ln of a sum of exponentials.

    >>> round(log_sum([1000.0, 1000.0]) - 1000.0, 12) == round(math.log(2), 12)
    True
    """
    return float(logsumexp(logs))


Invariance = Literal["rescaling", "permutation", "output scale"]
Need = Literal["examples", "initial"]
Higher = Literal["worse", "better"]
Cost = Literal["cheap", "expensive"]
Function = Callable[["Subject"], "float | Result"]

INVARIANCES: tuple[Invariance, ...] = get_args(Invariance)
#: What the subject then lacks, and what to say.
_MISSING = {
    "examples": ("inputs", "it needs labeled examples, and none were given"),
    "initial": ("initial", "it needs the initial weights, and none were given"),
}


@dataclass(frozen=True)
class Measure:
    """One complexity measure.

    name        how it is asked for, in words with hyphens
    family      under which heading it is listed
    formula     what is computed, in one line
    source      where it comes from
    needs       "examples" (inputs with labels), "initial" (the weights before training)
    invariant   what it claims not to depend on. "rescaling": hidden channels times positive
                factors, the same function. "permutation": another order of hidden channels, in the
                trained and the initial weights alike. "output scale": all class scores times one
                positive factor, the same predictions. The conformance suite tests every claim.
    higher      whether a higher value is meant to go with worse or with better generalization
    cost        "cheap": a few passes over the examples; "expensive": tens or hundreds of them
    function    of a :class:`~nonvacuous.measures.subject.Subject`; returns a number, a Value (by
                its logarithm where it may be huge) or Undefined with the reason
    """

    name: str
    family: str
    formula: str
    source: str
    needs: frozenset[Need]
    invariant: frozenset[Invariance]
    higher: Higher
    cost: Cost
    function: Function

    @property
    def is_bound(self) -> bool:
        """Whether its value promises something about new data, so that choosing by it costs."""
        return self.name.endswith(("-certificate", "-bound"))

    @property
    def gauge_free(self) -> bool:
        """Whether it claims to be the same in every gauge of the same function."""
        return "rescaling" in self.invariant

    def to_dict(self) -> dict[str, Any]:
        """What it is, without a network."""
        plain = {n: sorted(v) if isinstance(v, frozenset) else v for n, v in vars(self).items()}
        del plain["function"]
        return plain

    def __call__(self, subject: Subject) -> Result:
        """The value for one network, or why there is none."""
        for need in sorted(self.needs):
            if getattr(subject, _MISSING[need][0]) is None:
                return Undefined(_MISSING[need][1])
        try:
            value = self.function(subject)
            return value if isinstance(value, Value | Undefined) else Value.of(float(value))
        except Unsupported as error:
            return Undefined(str(error))
        except ValueError as error:
            if isinstance(error, NonvacuousError):
                raise
            return Undefined(f"its value is not a finite number here ({error})")


MEASURES: dict[str, Measure] = {}
"""Every measure by name, in the order of the table; filled by :func:`register_measure`."""


def register_measure(
    name: str,
    *,
    family: str,
    formula: str,
    source: str,
    needs: Iterable[Need] = (),
    invariant: Iterable[Invariance] = (),
    higher: Higher = "worse",
    cost: Cost = "cheap",
    replace: bool = False,
) -> Callable[[Function], Function]:
    """Add a measure of your own, as a decorator; see :class:`Measure` for the arguments.

    replace   allow a measure that is there already to be replaced

    Then try its claims: :func:`nonvacuous.measures.claim_findings` lists those that are false.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise BadInput(
            f"register_measure: {name!r} cannot be a name; use small letters, digits and hyphens, "
            "as in path-norm-1"
        )
    if name in MEASURES and not replace:
        raise BadInput(
            f"register_measure: there is a measure {name!r} already; choose another name, or pass "
            "replace=True"
        )
    wanted, claimed = frozenset(needs), frozenset(invariant)
    for what, given, known in (
        ("needs", wanted, frozenset(_MISSING)),
        ("invariant", claimed, frozenset(INVARIANCES)),
    ):
        if given - known:
            raise BadInput(
                f"register_measure: {name}: {what} has {sorted(given - known)[0]!r}; it may have "
                f"{', '.join(map(repr, sorted(known)))}"
            )

    def register(function: Function) -> Function:
        MEASURES[name] = Measure(
            name, family, formula, source, wanted, claimed, higher, cost, function
        )
        return function

    return register


def unregister_measure(name: str) -> None:
    """Take a measure out of the registry, as a test does that put it there."""
    MEASURES.pop(name, None)


def chosen(
    only: Iterable[str] | None = None, without: Iterable[str] | None = None
) -> tuple[Measure, ...]:
    """The measures asked for, in the order of the registry; all where nothing is said.

    only      names or families of measures, or "cheap" or "expensive"
    without   the same: what to leave out of these
    """
    wanted, unwanted = _words("only", only), _words("without", without)
    left = tuple(
        measure
        for measure in MEASURES.values()
        if (only is None or wanted & _known_as(measure)) and not unwanted & _known_as(measure)
    )
    if not left:
        raise BadInput("only and without leave no measure; ask for some, or leave out fewer")
    return left


def _known_as(measure: Measure) -> frozenset[str]:
    """The words by which a measure can be asked for."""
    return frozenset({measure.name, measure.family, measure.cost})


def _words(argument: str, given: Iterable[str] | None) -> frozenset[str]:
    """The words, each of them known; the error for a misspelled one says what it may mean."""
    if isinstance(given, str):
        raise BadInput(f"{argument} must be a list of names, such as [{given!r}], not one word")
    words = frozenset(given or ())
    known = frozenset[str]().union(*map(_known_as, MEASURES.values()))
    for word in sorted(words - known):
        families = sorted({measure.family for measure in MEASURES.values()})
        raise BadInput(
            f"there is no measure or family {word!r}"
            + nearest(word, sorted(known), "; did you mean {!r}?", ".")
            + f" Families: {', '.join(families)}; or cheap, expensive"
        )
    return words
