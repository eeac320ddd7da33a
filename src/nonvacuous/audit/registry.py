"""Every check of the audit, by name, with the known mistakes it guards against.

The mistakes are the numbered rows of the project's list of ways in which certificates become
false. To add a check, write a function of the :class:`~nonvacuous.audit.evidence.Evidence` that
returns an :class:`Outcome`, and put ``@check(rows=..., since=..., name=...)`` above it; the name is
the proposition that must hold, ``says`` what may become of it where nothing is wrong.

Certificates name the version of the audit that they passed and are held to that one, so a released
version never changes: a new check is ``since`` the next, and makes it the present one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nonvacuous.audit.evidence import Evidence
from nonvacuous.errors import NonvacuousError
from nonvacuous.kinds import ALL_MODES
from nonvacuous.records import Assumption

ALL_PREDICTORS = ("stochastic", "drawn", "deterministic", "mixture")
#: How many ways to a false certificate are known and numbered.
ROWS = 28
#: Versions of the audit, each with the first release whose certificates cannot have passed less.
#: One that checks began after a release is entered with the next one.
RELEASED_WITH = {2: (0, 2)}

Says = Literal["checked", "asserted", "not checkable"]


@dataclass(frozen=True)
class Outcome:
    """What a check found out."""

    status: Literal["checked", "asserted", "not checkable", "violated"]
    detail: str
    effect: Literal["none", "conditional", "refused"] = "none"


#: Verified on the facts.
holds = partial(Outcome, "checked")
#: Stated by the user or by the code, and plausible.
asserted = partial(Outcome, "asserted")
#: A fact about the world that no file can show.
unknowable = partial(Outcome, "not checkable")
#: False in a way that the user may be able to defend.
doubtful = partial(Outcome, "violated", effect="conditional")
#: False: there is no promise.
refuse = partial(Outcome, "violated", effect="refused")


@dataclass(frozen=True)
class Check:
    """One named check, and where it applies."""

    name: str
    rows: tuple[int, ...]
    #: The version of the audit that brought it.
    since: int
    #: What it can find out where nothing is wrong: a certificate that says more was painted.
    says: tuple[Says, ...]
    modes: tuple[str, ...]
    predictors: tuple[str, ...]
    function: Callable[[Evidence], Outcome]

    def on_part(self, evidence: Evidence) -> Outcome | None:
        """What it finds on some of the facts; None where these, or this machine, do not do."""
        try:
            return self._outcome(evidence)
        except Exception:  # a fact that is not there, a device that is not here
            return None

    def _outcome(self, evidence: Evidence) -> Outcome:
        try:
            return self.function(evidence)
        except NonvacuousError as error:
            return refuse(str(error))

    def __call__(self, evidence: Evidence) -> Assumption:
        """Run the check. One that breaks down has shown nothing, so the certificate is refused."""
        try:
            outcome = self._outcome(evidence)
        except Exception as error:
            outcome = refuse(
                f"the check could not be completed ({type(error).__name__}: {error}); what cannot "
                "be checked is not certified."
            )
        if outcome.status not in (*self.says, "violated"):
            raise ValueError(f"{self.name!r} declares {self.says}, and says {outcome.status!r}")
        return Assumption(name=self.name, **vars(outcome))


#: All checks by name, in the order in which they are listed in certificates.
CHECKS: dict[str, Check] = {}


def check(
    *,
    rows: tuple[int, ...],
    since: int,
    name: str,
    says: tuple[Says, ...] = ("checked",),
    modes: tuple[str, ...] = ALL_MODES,
    predictors: tuple[str, ...] = ALL_PREDICTORS,
) -> Callable[[Callable[[Evidence], Outcome]], Callable[[Evidence], Outcome]]:
    """Register a function as a check that guards against these rows."""
    latest = max(RELEASED_WITH) + 1
    if not 1 <= since <= latest:
        raise ValueError(f"check {name!r} is of version {since}; the next one is {latest}")
    if not rows or any(not 1 <= row <= ROWS for row in rows):
        raise ValueError(f"check {name!r} must guard rows between 1 and {ROWS}, got {rows!r}")
    if name in CHECKS:
        raise ValueError(f"there is a check {name!r} already")

    def register(function: Callable[[Evidence], Outcome]) -> Callable[[Evidence], Outcome]:
        CHECKS[name] = Check(name, rows, since, says, modes, predictors, function)
        return function

    return register


def present_version() -> int:
    """That of the newest check; 1 is that of certificates which do not name one."""
    return max((c.since for c in CHECKS.values()), default=1)


def required(*, mode: str, predictor: str, version: int | None = None) -> tuple[Check, ...]:
    """What a certificate of this kind has to pass; with a version, what it had to pass then."""
    return tuple(
        c
        for c in CHECKS.values()
        if (version is None or c.since <= version) and mode in c.modes and predictor in c.predictors
    )


def least_version(library: str) -> int:
    """The version of the audit that every certificate of this release of the library passed.

    >>> least_version("0.1.0"), least_version("0.2.1")
    (1, 2)
    """
    release = release_of(library)
    return max((v for v, first in RELEASED_WITH.items() if release >= first), default=1)


def release_of(version: str) -> tuple[int, ...]:
    """Its numbers, to compare releases by; one that has none comes before all others."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
