"""A ledger for the failure probability: every claim that may fail is written down and paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.rounding import down
from nonvacuous.errors import BadInput, Overspent

__all__ = ["ConfidenceBudget", "Spend"]


def _exactly(value: float) -> Fraction:
    """The decimal that the float prints as: 0.04 and 0.01 then add up to 0.05, not a hair more."""
    return Fraction(repr(float(value)))


@dataclass(frozen=True)
class Spend:
    """One line of the ledger. ``choices`` counts the alternatives that share the line."""

    name: str
    failure: float
    reason: str
    choices: int = 1


class ConfidenceBudget:
    """How much failure probability there is, and on what it was spent.

    >>> budget = ConfidenceBudget(failure=0.05)
    >>> budget.spend("sampling", 0.01, reason="Monte-Carlo estimate of the posterior's risk")
    0.01
    >>> budget.spend_rest("bound", reason="PAC-Bayes-kl")
    0.04
    >>> budget.remaining
    0.0
    """

    def __init__(self, failure: float) -> None:
        self._failure = checks.failure_probability(failure)
        self._entries: list[Spend] = []

    @property
    def failure(self) -> float:
        """The whole budget: one minus the confidence."""
        return self._failure

    @property
    def entries(self) -> tuple[Spend, ...]:
        return tuple(self._entries)

    @property
    def spent(self) -> float:
        return float(self._spent())

    @property
    def remaining(self) -> float:
        """What can still be spent: rounded down, so that spending it never overdraws."""
        exact = _exactly(self._failure) - self._spent()
        rest = float(exact)
        return rest if _exactly(rest) <= exact else down(rest)

    def spend(self, name: str, failure: float, reason: str) -> float:
        """Write one line and return ``failure``; raise :class:`Overspent` if it is not there."""
        return self.choose(name, failure, choices=1, reason=reason)

    def spend_rest(self, name: str, reason: str) -> float:
        """Spend everything that is left."""
        rest = self.remaining
        if rest <= 0.0:
            raise Overspent(f"Nothing is left for {name!r}: {self}")
        return self.spend(name, rest, reason)

    def choose(self, name: str, failure: float, *, choices: int, reason: str) -> float:
        """Spend ``failure`` once on ``choices`` equally likely alternatives; return one's share.

        The alternatives are fixed before the data; any one of them may then be reported.
        """
        total = checks.failure_probability(failure)
        if isinstance(choices, bool) or not isinstance(choices, int) or choices < 1:
            raise BadInput(f"choices must be a whole number from 1 up, got choices = {choices!r}.")
        share = float(Fraction(total) / choices)
        if share < checks.SMALLEST_FAILURE:
            raise Overspent(
                f"{name!r} shares failure = {failure!r} among {choices} choices: nothing is left "
                "for each. Search a smaller grid."
            )
        self._write(Spend(name, total, reason, choices))
        return share

    def union(
        self,
        name: str,
        failure: float,
        *,
        reason: str,
        choices: int | None = None,
        weights: Sequence[float] | None = None,
    ) -> tuple[float, ...]:
        """Spend ``failure`` once on a whole grid fixed before the data; return each point's share.

        Give either the number of equally likely ``choices`` or prior ``weights`` that sum to at
        most one. Any one of the grid's claims may then be reported, each at its own share. For a
        grid too large to list, :meth:`choose` gives the one share that all points have.
        """
        total = checks.failure_probability(failure)
        if (choices is None) == (weights is None):
            raise BadInput(
                "union takes either choices or weights, "
                f"got choices = {choices!r} and weights = {weights!r}."
            )
        if choices is not None:
            number = checks.count("choices", choices, minimum=1)
            return (self.choose(name, total, choices=number, reason=reason),) * number
        assert weights is not None
        parts = [checks.positive("weights", weight) for weight in weights]
        if not parts or sum(map(_exactly, parts)) > 1:
            raise BadInput(
                f"weights must be positive and sum to at most 1, got weights = {weights!r}."
            )
        self._write(Spend(name, total, reason, len(parts)))
        return tuple(total * part for part in parts)

    def to_dict(self) -> dict[str, Any]:
        return {"failure": self._failure, "entries": tuple(map(asdict, self._entries))}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ConfidenceBudget:
        """Rebuild a ledger, with every rule checked again."""
        try:
            budget = cls(record["failure"])
            for entry in record["entries"]:
                failure, choices = entry["failure"], entry["choices"]
                budget.choose(entry["name"], failure, choices=choices, reason=entry["reason"])
        except (KeyError, TypeError) as error:
            raise BadInput(f"This is not a confidence budget: {record!r} ({error!r}).") from error
        return budget

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfidenceBudget) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # a ledger grows

    def __repr__(self) -> str:
        return f"ConfidenceBudget(failure={self._failure!r}, spent={self.spent!r})"

    def __str__(self) -> str:
        lines = ", ".join(f"{entry.name} {entry.failure:g}" for entry in self._entries) or "nothing"
        return f"of {self._failure:g}, spent {self.spent:g} ({lines}), left {self.remaining:g}."

    def _spent(self) -> Fraction:
        return sum((_exactly(entry.failure) for entry in self._entries), Fraction(0))

    def _write(self, entry: Spend) -> None:
        for field in ("name", "reason"):
            text = getattr(entry, field)
            if not isinstance(text, str) or not text.strip():
                raise BadInput(f"{field} must say what the spending is for, got {text!r}.")
        if any(entry.name == earlier.name for earlier in self._entries):
            raise BadInput(f"name {entry.name!r} is in the ledger already: each spend is its own.")
        if self._spent() + _exactly(entry.failure) > _exactly(self._failure):
            raise Overspent(
                f"{entry.name!r} asks for failure = {entry.failure!r}, more than is left: "
                f"{self} Raise the total failure or spend less elsewhere."
            )
        self._entries.append(entry)
