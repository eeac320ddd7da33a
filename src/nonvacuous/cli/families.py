"""Every bound that follows from the same few numbers, and which of them may be reported.

Bounds are statements about *events*. The PAC-Bayes-kl bound with the exact moment holds on one
event of probability at least 1 - failure; the version with 2 sqrt(n), ``quadratic``, ``thiemann``
(for all trade-offs at once) and ``mcallester`` are read off on that same event and are never
smaller. Comparing them is free, and useless. ``catoni_union``, ``empirical_bernstein`` and
``catoni`` hold on events of their own: whoever reports the smallest of k such numbers must have
all k events happen, so each gets failure / k, and that must be decided before looking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nonvacuous import bounds
from nonvacuous.bounds import pac_bayes, refined
from nonvacuous.bounds.rounding import up

FIRST = "the one to choose beforehand"
SAME_EVENT = "follows from the first row, never smaller"
OWN_EVENT = "holds on an event of its own"


@dataclass(frozen=True)
class Row:
    """One bound: its value, its theorem in a few words, and what became of its free parameter."""

    name: str
    risk_upper: float
    theorem: str
    free_parameter: str
    relation: str
    #: "none": no free parameter; "free": true for all its values at once; "paid": by a union over
    #: a grid fixed beforehand; "asserted": the user says it was fixed before the data.
    charge: str = "none"


@dataclass(frozen=True)
class Comparison:
    """Bounds side by side, each at ``failure``; ``best`` is the one that may be reported."""

    rows: tuple[Row, ...]
    best: str
    #: What each row was given: the whole failure probability, or its share in a paid comparison.
    failure: float
    events: int
    compared: bool

    @property
    def risk_upper(self) -> float:
        return next(row.risk_upper for row in self.rows if row.name == self.best)

    @property
    def cheaper_elsewhere(self) -> tuple[str, ...]:
        """Bounds on other events that came out smaller, but were not chosen beforehand."""
        if self.compared:
            return ()
        return tuple(
            row.name
            for row in self.rows
            if row.relation == OWN_EVENT and row.risk_upper < self.risk_upper
        )


def randomized_predictor(
    *,
    empirical_risk: float,
    kl_nats: float,
    examples: int,
    failure: float,
    temperature: float | None = None,
    second_moment: float | None = None,
    compare_paid: bool = False,
) -> Comparison:
    """All PAC-Bayes bounds for the predictor that draws its weights afresh each time."""
    # Fixed by what was asked for, never by how the numbers came out.
    events = 2 + (temperature is not None) + (second_moment is not None)
    share = failure / events if compare_paid else failure
    call: dict[str, Any] = {
        "empirical_risk": empirical_risk,
        "kl_nats": kl_nats,
        "examples": examples,
        "failure": share,
    }
    trade_off = bounds.best_trade_off(**call)
    rows = [
        Row(
            "seeger_exact",
            bounds.seeger(**call, exact_moment=True),
            "PAC-Bayes-kl, ξ(n)",
            "none",
            FIRST,
        ),
        Row("seeger", bounds.seeger(**call), "PAC-Bayes-kl, 2√n", "none", SAME_EVENT),
        Row("quadratic", bounds.quadratic(**call), "kl(q,p) ≥ (p−q)²/2p", "none", SAME_EVENT),
        Row(
            "thiemann",
            bounds.thiemann(**call, trade_off=trade_off),
            "quadratic, made linear",
            f"best {trade_off:.3g}, free",
            SAME_EVENT,
            "free",
        ),
        Row(
            "thiemann_union",
            bounds.thiemann_union(**call),
            "thiemann on a grid",
            f"grid of {len(pac_bayes.TRADE_OFFS)}, paid",
            SAME_EVENT,
            "paid",
        ),
        Row("mcallester", bounds.mcallester(**call), "Pinsker's inequality", "none", SAME_EVENT),
        Row(
            "catoni_union",
            bounds.catoni_union(**call),
            "Catoni on a grid",
            f"grid of {len(pac_bayes.TEMPERATURES)}, paid",
            OWN_EVENT,
            "paid",
        ),
    ]
    if second_moment is not None:
        rows.append(
            Row(
                "empirical_bernstein",
                bounds.empirical_bernstein(**call, second_moment=second_moment),
                "un-expected Bernstein",
                f"grid of {len(refined.RATES)}, paid",
                OWN_EVENT,
                "paid",
            )
        )
    if temperature is not None:
        rows.append(
            Row(
                "catoni",
                bounds.catoni(**call, temperature=temperature),
                "Catoni, one temperature",
                f"{temperature:g}, fixed beforehand",
                OWN_EVENT,
                "asserted",
            )
        )
    # The first of equals: a tie goes to the bound that is chosen anyway.
    best = min(rows, key=lambda row: row.risk_upper) if compare_paid else rows[0]
    return Comparison(tuple(rows), best.name, share, events, compare_paid)


def drawn_network(
    *, empirical_risk: float, log_density_ratio: float, examples: int, failure: float
) -> Comparison:
    """Bounds for one network drawn once from the posterior."""
    call: dict[str, Any] = {
        "empirical_risk": empirical_risk,
        "log_density_ratio": log_density_ratio,
        "examples": examples,
        "failure": failure,
    }
    rows = (
        Row(
            "disintegrated_exact",
            bounds.disintegrated(**call, exact_moment=True),
            "one draw, ξ(n)",
            "none",
            FIRST,
        ),
        Row(
            "disintegrated",
            bounds.disintegrated(**call),
            "one draw, 2√n",
            "none",
            SAME_EVENT,
        ),
    )
    return Comparison(rows, rows[0].name, failure, events=1, compared=False)


def held_out(*, errors: int, examples: int, failure: float) -> Comparison:
    """Upper bounds for one fixed predictor from its errors on examples that trained nothing."""
    rate = min(1.0, up(errors / examples))
    rows = (
        Row(
            "holdout",
            bounds.holdout(errors=errors, examples=examples, failure=failure),
            "exact binomial tail",
            "none",
            FIRST,
        ),
        Row(
            "chernoff",
            bounds.sampling(errors=errors, trials=examples, failure=failure, identical=False),
            "Chernoff's bound",
            "none",
            SAME_EVENT,
        ),
        Row(
            "seeger_exact",
            bounds.seeger(
                empirical_risk=rate,
                kl_nats=0.0,
                examples=examples,
                failure=failure,
                exact_moment=True,
            ),
            "PAC-Bayes-kl with KL = 0",
            "none",
            SAME_EVENT,
        ),
    )
    return Comparison(rows, rows[0].name, failure, events=1, compared=False)
