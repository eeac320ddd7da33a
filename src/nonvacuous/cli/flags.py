"""Types of flags that several commands share, stricter than the parser's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from nonvacuous.bounds import checks
from nonvacuous.cli.exits import UsageError
from nonvacuous.errors import BadInput


def whole_number(_type: Any, tokens: Sequence[Token]) -> int:
    """Digits only, with optional underscores: 10000.7 examples is a mistake, not 10001 examples."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


WholeNumber = Annotated[int, Parameter(converter=whole_number)]
OptionalWholeNumber = Annotated[int | None, Parameter(converter=whole_number)]
#: A flag that is off unless it is given; its help need not say so.
SWITCH = Parameter(negative=(), show_default=False)
#: A flag that may be given several times.
Repeated = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
Ledger = Annotated[
    Path | None,
    Parameter(
        name="--ledger",
        help="The file that remembers all bounds on the same examples; attempts.jsonl beside the "
        "folder of the results, or in runs/, by default.",
    ),
]
Json = Annotated[bool, SWITCH, Parameter(name="--json", help="Print one JSON object, not text.")]


#: Other words for the same priors, accepted wherever one is named.
_PRIORS = {"zero-mean": "zero", "init": "initialization"}


def prior_of(text: str | None) -> str | None:
    """A prior under its one name.

    >>> prior_of("zero-mean"), prior_of("init"), prior_of("learned:0.2")
    ('zero', 'initialization', 'learned:0.2')
    """
    return None if text is None else _PRIORS.get(text, text)


def failure_of(confidence: float) -> float:
    """One minus the confidence, as a decimal: 0.95 leaves 0.05, not 0.050000000000000044.

    >>> failure_of(0.95)
    0.05
    """
    try:
        return checks.failure_of(confidence)
    except BadInput as error:
        raise UsageError(f"--{error}") from error
