"""What a verification found: one finding for every question asked, with the field it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from nonvacuous.bounds.holdout import log_choose
from nonvacuous.bounds.rounding import same_upper_end
from nonvacuous.errors import InvalidCertificate, NonvacuousError

_T = TypeVar("_T")
_MARKS = {True: "ok", False: "FAILED", None: "not checked"}


@dataclass(frozen=True)
class Finding:
    """One question. ``passed`` is None where it was not asked, and ``detail`` then says why."""

    name: str
    passed: bool | None
    detail: str
    #: Where in the certificate (or which file) the answer lies, such as ``complexity.kl_nats``.
    field: str
    #: Not asked, although the promise hangs on the answer.
    needed: bool = False

    def __str__(self) -> str:
        return f"{_MARKS[self.passed]:>11}  {self.name}: {self.detail}"


@dataclass(frozen=True)
class Verification:
    """All findings about one certificate."""

    source: str
    findings: tuple[Finding, ...]
    #: What the certificate says of itself: a refused one can be genuine, and promises nothing.
    status: str | None = None
    #: Where today's audit asks more than the certificate had to answer: under which version it was.
    audited: str = ""

    @property
    def passed(self) -> bool:
        """True when nothing that was checked is wrong; see ``verified``."""
        return not self.failures

    @property
    def verified(self) -> bool:
        """True when nothing is wrong and nothing is missing that ties the number to its evidence.

        A certificate can be consistent in itself, and false: files, network and data decide.
        """
        return self.passed and not any(finding.needed for finding in self.findings)

    @property
    def wanted(self) -> tuple[str, ...]:
        """What to give for the questions that were not asked although the promise hangs on them."""
        fields = {finding.field for finding in self.findings if finding.needed}
        things = {"artifacts": "the run folder", "data": "the data", "model": "the network"}
        return tuple(thing for field, thing in things.items() if field in fields)

    @property
    def failures(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.passed is False)

    @property
    def unchecked(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.passed is None)

    def raise_if_failed(self) -> None:
        """Raise :class:`InvalidCertificate` naming the first field at fault."""
        if self.failures:
            first = self.failures[0]
            others = len(self.failures) - 1
            more = f" ({others} more finding(s) failed.)" if others else ""
            raise InvalidCertificate(
                f"{self.source} does not verify: {first.field}: {first.detail}{more}"
            )

    @property
    def verdict(self) -> str:
        """What came of it, in a sentence."""
        checked = len(self.findings) - len(self.unchecked)
        some = "s" * (checked != 1)
        if self.failures:
            verdict = f"NOT VERIFIED: {len(self.failures)} of {checked} check{some} failed"
        else:
            word = "VERIFIED" if self.verified else "CONSISTENT, not verified"
            verdict = f"{word}: {checked} check{some} passed"
        if self.unchecked:
            verdict += f", {len(self.unchecked)} could not be made"
        if self.passed and self.wanted:
            verdict += f"; give {' and '.join(self.wanted)}"
        return verdict

    def __str__(self) -> str:
        verdict = self.verdict
        if self.status not in (None, "valid"):
            verdict += f"; the certificate calls itself {self.status}"
        first = f"{self.source}: {verdict}. {self.audited}".rstrip()
        return "\n".join([first, *map(str, self.findings)])


class Disagreement(Exception):
    """Raised inside a check: the certificate and the recomputed value are not the same."""

    def __init__(self, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.field = field


class NotAsked(Exception):
    """Raised inside a check that cannot be made, and says why; the promise may hang on it."""

    def __init__(self, why: str, *, needed: bool = True) -> None:
        super().__init__(why)
        self.needed = needed


@dataclass
class Collector:
    """Gathers findings; whatever goes wrong inside a check becomes a finding, not a traceback."""

    findings: list[Finding] = field(default_factory=list, kw_only=True)

    def expect(self, name: str, field: str, work: Callable[[], str]) -> bool:
        """Ask one question: ``work`` returns the answer in words, or raises."""
        return self.learn(name, field, lambda: (work(), True)) is not None

    def learn(self, name: str, field: str, work: Callable[[], tuple[str, _T]]) -> _T | None:
        """The same where the answer comes with something that later questions build on."""
        try:
            detail, learned = work()
        except NotAsked as error:
            self.skip(name, field, str(error), needed=error.needed)
        except Disagreement as error:
            self.findings.append(Finding(name, False, str(error), error.field or field))
        except Exception as error:
            # Damaged files break readers in many ways; every one of them means: not verified.
            kind = "" if isinstance(error, NonvacuousError) else f" ({type(error).__name__})"
            self.findings.append(Finding(name, False, f"{error}{kind}", field))
        else:
            self.findings.append(Finding(name, True, detail, field))
            return learned
        return None

    def skip(self, name: str, field: str, why: str, *, needed: bool = True) -> None:
        """Note that a question was not asked; it was ``needed`` unless the caller knows better."""
        self.findings.append(Finding(name, None, why, field, needed))


def upper_end(claimed: float, recomputed: float, field: str) -> None:
    """Raise unless the certificate's value is the recomputed one, or was rounded up further."""
    if not same_upper_end(claimed, recomputed):
        equal(claimed, recomputed, field)


def equal(claimed: object, recomputed: object, field: str) -> None:
    """Raise unless the certificate's value is the recomputed one, exactly."""
    if claimed != recomputed or type(claimed) is not type(recomputed):
        raise Disagreement(f"it says {claimed!r}, recomputed {recomputed!r}.", field)


#: A sound certificate is called false with at most this probability.
FALSE_ALARM = 1e-6


def same_rate(errors: int, trials: int, fresh_errors: int, fresh_trials: int) -> float:
    """Fisher's exact test: how likely counts this far apart are when both have one rate."""
    wrong, total = errors + fresh_errors, trials + fresh_trials
    # scipy.stats has the law too, and takes a second to import.
    counts = np.arange(max(0, fresh_trials - total + wrong), min(wrong, fresh_trials) + 1)
    chances = np.exp(
        log_choose(wrong, counts)
        + log_choose(total - wrong, fresh_trials - counts)
        - log_choose(total, fresh_trials)
    )
    tails = chances[counts <= fresh_errors].sum(), chances[counts >= fresh_errors].sum()
    return min(1.0, 2.0 * float(min(tails)))
