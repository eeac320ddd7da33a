"""Every check of the audit, by name, with the known mistakes it guards against.

The mistakes are the numbered rows of the project's list of ways in which certificates become
false. To add a check, write a function of the :class:`~nonvacuous.audit.evidence.Evidence` that
returns an :class:`Outcome`, and put ``@check(rows=..., name=...)`` above it; the name is the
proposition that must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nonvacuous.audit.evidence import Evidence
from nonvacuous.errors import NonvacuousError
from nonvacuous.records import Assumption

#: Modes whose promise is about a randomized network, or about one drawn from it.
RANDOM_MODES = ("posterior", "post-hoc")
#: Modes in which a prior and a posterior exist.
PRIOR_MODES = (*RANDOM_MODES, "sparsity")
ALL_MODES = (*PRIOR_MODES, "holdout")
ALL_PREDICTORS = ("stochastic", "drawn", "deterministic")
#: How many ways to a false certificate are known and numbered.
ROWS = 28


@dataclass(frozen=True)
class Outcome:
    """What a check found out."""

    status: Literal["checked", "asserted", "not checkable", "violated"]
    detail: str
    effect: Literal["none", "conditional", "refused"] = "none"


def holds(detail: str) -> Outcome:
    """Verified on the facts."""
    return Outcome("checked", detail)


def asserted(detail: str) -> Outcome:
    """Stated by the user or by the code, and plausible."""
    return Outcome("asserted", detail)


def unknowable(detail: str) -> Outcome:
    """A fact about the world that no file can show."""
    return Outcome("not checkable", detail)


def doubtful(detail: str) -> Outcome:
    """Found false in a way that the user may be able to defend."""
    return Outcome("violated", detail, "conditional")


def refuse(detail: str) -> Outcome:
    """Found false: there is no promise."""
    return Outcome("violated", detail, "refused")


@dataclass(frozen=True)
class Check:
    """One named check, and where it applies."""

    name: str
    rows: tuple[int, ...]
    modes: tuple[str, ...]
    predictors: tuple[str, ...]
    function: Callable[[Evidence], Outcome]

    def applies(self, *, mode: str, predictor: str) -> bool:
        return mode in self.modes and predictor in self.predictors

    def __call__(self, evidence: Evidence) -> Assumption:
        """Run the check. One that breaks down has shown nothing, so the certificate is refused."""
        try:
            outcome = self.function(evidence)
        except NonvacuousError as error:
            outcome = refuse(str(error))
        except Exception as error:
            outcome = refuse(
                f"the check could not be completed ({type(error).__name__}: {error}); what cannot "
                "be checked is not certified."
            )
        return Assumption(
            name=self.name, status=outcome.status, detail=outcome.detail, effect=outcome.effect
        )


_CHECKS: dict[str, Check] = {}


def check(
    *,
    rows: tuple[int, ...],
    name: str,
    modes: tuple[str, ...] = ALL_MODES,
    predictors: tuple[str, ...] = ALL_PREDICTORS,
) -> Callable[[Callable[[Evidence], Outcome]], Callable[[Evidence], Outcome]]:
    """Register a function as a check that guards against these rows."""
    if not rows or any(not 1 <= row <= ROWS for row in rows):
        raise ValueError(f"check {name!r} must guard rows between 1 and {ROWS}, got {rows!r}")
    if name in _CHECKS:
        raise ValueError(f"there is a check {name!r} already")

    def register(function: Callable[[Evidence], Outcome]) -> Callable[[Evidence], Outcome]:
        _CHECKS[name] = Check(name, rows, modes, predictors, function)
        return function

    return register


def registered() -> tuple[Check, ...]:
    """All checks, in the order in which they are listed in certificates."""
    return tuple(_CHECKS.values())


def expected_names(*, mode: str, predictor: str) -> tuple[str, ...]:
    """What the assumptions of a certificate of this kind must list at least."""
    return tuple(c.name for c in _CHECKS.values() if c.applies(mode=mode, predictor=predictor))
