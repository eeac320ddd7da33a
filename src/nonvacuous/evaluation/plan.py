"""plan: how many examples a test needs, before anybody looks at one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special

from nonvacuous import bounds
from nonvacuous.bounds import checks, rounding
from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class Row:
    """One size of the test: what it can promise."""

    examples: int
    allowed_errors: int
    chance: float
    #: The promise after a flawless test: nothing smaller can be certified.
    smallest: float
    #: The promise to expect at the planned risk.
    expected: float


@dataclass(frozen=True)
class Division:
    """How to divide N labeled examples between training and testing, for a learning curve."""

    labeled: int
    held_out: int
    #: The expected promise of a plain test, and of testing while training (see progressive).
    test: float
    progressive: float
    #: The least that a learned prior could promise: its posterior would have to equal it.
    learned_prior: float
    advice: str


@dataclass(frozen=True)
class Plan:
    """The answer: ``examples`` is enough, and so is every larger number."""

    target: float
    risk: float
    chance: float
    confidence: float
    examples: int
    #: The least number with the chance; a few more can have less of it.
    first: int
    rows: tuple[Row, ...]
    #: The smallest difference of two predictors that so many examples show with this chance; None
    #: where they are too few for any.
    detectable_difference: float | None
    division: Division | None = None

    def __str__(self) -> str:
        return (
            f"{self.examples:,} examples promise a risk of at most {self.target:g} with chance "
            f"{self.chance:g}, if the true risk is {self.risk:g} (confidence "
            f"{rounding.shown_confidence(self.confidence, 6)})"
        )

    @property
    def told_apart(self) -> str:
        """What so many examples show of two models, in words."""
        if self.detectable_difference is None:
            return "so few tell no two models apart by a sign test"
        return (
            f"a sign test tells two models apart whose risks differ by "
            f"{self.detectable_difference:.4f}"
        )


def plan(
    target: float,
    risk: float,
    *,
    chance: float = 0.9,
    confidence: float = 0.95,
    labeled: int | None = None,
    curve: Sequence[float] | Sequence[tuple[int, float]] | None = None,
) -> Plan:
    """How many examples promise ``target`` with the given chance if the true risk is ``risk``.

    With ``labeled`` examples for everything and a learning ``curve``, either declared as
    (limit, scale, power) of limit + scale * size^-power or fitted to points (size, risk), the best
    share to hold out is found too.

    >>> plan(0.05, 0.03, chance=0.8).examples
    694
    """
    failure = checks.failure_of(confidence)

    def row(n: int) -> Row:
        call: dict[str, Any] = {"examples": n, "target": target, "failure": failure}
        return Row(
            examples=n,
            allowed_errors=bounds.allowed_errors(**call),
            chance=bounds.chance_to_promise(risk=risk, **call),
            smallest=bounds.holdout(errors=0, examples=n, failure=failure),
            expected=expected_bound(n, risk, failure),
        )

    first, safe = bounds.examples_needed(target=target, risk=risk, chance=chance, failure=failure)
    sizes = sorted({max(1, round(safe * factor)) for factor in (0.25, 0.5, 0.75, 1, 1.5, 2, 4)})
    division = None
    if labeled is not None:
        if curve is None:
            raise BadInput("dividing the labeled examples needs a learning curve: give curve.")
        division = divided(checks.count("labeled", labeled, minimum=10), _curve(curve), failure)
    return Plan(
        target=target,
        risk=risk,
        chance=chance,
        confidence=confidence,
        examples=safe,
        first=first,
        rows=tuple(map(row, sizes)),
        detectable_difference=detectable(safe, 2 * risk * (1 - risk), chance, failure / 2),
        division=division,
    )


def expected_bound(examples: int, risk: float, failure: float) -> float:
    """The mean promise of a test at a true risk: a sum over the counts that can happen."""
    spread = 6.0 * np.sqrt(examples * risk * (1.0 - risk)) + 6.0
    low = max(0, int(examples * risk - spread))
    counts = np.unique(np.linspace(low, min(examples, examples * risk + spread), 200).astype(int))
    weights = np.diff(special.bdtr(counts, examples, risk), prepend=0.0)
    ends = [bounds.holdout(errors=int(k), examples=examples, failure=failure) for k in counts]
    return float(np.dot(weights, ends) / weights.sum())


def detectable(examples: int, discordance: float, chance: float, failure: float) -> float | None:
    """The smallest difference of risks that the exact sign test shows with the given chance.

    ``discordance`` is how often the two predictors differ if their risks are equal. None where no
    difference is shown so often.
    """
    n, spread = examples, 8.0 * np.sqrt(examples * 0.25) + 10

    def power(difference: float) -> float:
        share = min(1.0, max(discordance, difference))
        lean = 0.5 * (1.0 + difference / share)
        m = np.arange(max(0, int(n * share - spread)), min(n, int(n * share + spread)) + 1)
        weights = np.diff(special.bdtr(m, n, share), prepend=special.bdtr(m[0] - 1.0, n, share))
        # The least number of wins with P(Bin(m, 1/2) >= wins) <= failure.
        wins = np.ceil(np.maximum(0, special.bdtrik(1.0 - failure, m, 0.5)) + 1.0)
        enough = np.where(wins <= m, special.bdtrc(np.minimum(wins, m) - 1.0, m, lean), 0.0)
        return float(np.nansum(weights * enough))

    low, high = 0.0, 1.0
    if not power(high) >= chance:
        return None
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if power(middle) >= chance else (middle, high)
    return high


def divided(labeled: int, curve: tuple[float, float, float], failure: float) -> Division:
    """The share to hold out that makes the expected promise smallest, and the alternatives."""
    limit, scale, power = curve

    def risk_at(size: float) -> float:
        return float(min(0.999, limit + scale * size**-power))

    shares = np.geomspace(0.01, 0.9, 60)
    sizes = np.unique(np.maximum(1, (labeled * shares).astype(int)))
    tests = [expected_bound(int(n), risk_at(labeled - n), failure) for n in sizes]
    best = int(np.argmin(tests))
    promises = {
        "a plain test": tests[best],
        "testing while training (progressive)": min(
            _progressive(labeled, start, risk_at, failure) for start in (0.3, 0.5, 0.7, 0.85)
        ),
        "a learned prior": min(
            bounds.seeger(
                empirical_risk=risk_at(labeled - n), kl_nats=0.0, examples=int(n), failure=failure
            )
            for n in sizes
        ),
    }
    test, rolling, prior = promises.values()
    return Division(
        labeled=labeled,
        held_out=int(sizes[best]),
        test=test,
        progressive=rolling,
        learned_prior=prior,
        advice=f"{min(promises, key=lambda name: promises[name])} gives the smallest promise; a "
        "bound without examples set aside gives a larger one than any of these.",
    )


def _progressive(
    labeled: int, start: float, risk_at: Callable[[float], float], failure: float
) -> float:
    grid = np.linspace(start, 1.0, 20)
    mean = float(np.mean([risk_at(labeled * share) for share in grid]))
    trials = max(1, int(labeled * (1.0 - start)))
    errors = min(trials, round(trials * mean))
    tilt = max(0.05, float(np.sqrt(-2.0 * np.log(failure) / max(1.0, trials * mean))))
    return bounds.progressive(errors=errors, trials=trials, tilt=tilt, failure=failure)


def _curve(given: object) -> tuple[float, float, float]:
    """A declared curve, or the power law with a limit that fits the points best."""
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape == (3,) and (values >= 0).all():
        return float(values[0]), float(values[1]), float(values[2])
    points = values.ndim == 2 and values.shape[1] == 2 and len(values) > 1
    if not points or not np.isfinite(values).all() or not (values[:, 0] > 0).all():
        raise BadInput("curve is (limit, scale, power), or at least two points (size, risk).")
    sizes, risks = values.T
    first = [0.5 * risks.min(), risks.max() * sizes.min() ** 0.5, 0.5]
    fitted = optimize.least_squares(
        lambda p: p[0] + p[1] * sizes ** -p[2] - risks, first, bounds=([0, 0, 0.01], [1, np.inf, 3])
    )
    return tuple(map(float, fitted.x))  # type: ignore[return-value]
