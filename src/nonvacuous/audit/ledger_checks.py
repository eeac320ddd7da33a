"""The failure probability: spent once, every search charged, earlier certificates remembered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from nonvacuous.audit.evidence import Evidence, Search
from nonvacuous.audit.probing import Network, networks_of, recount
from nonvacuous.audit.registry import Outcome, asserted, check, doubtful, holds, refuse
from nonvacuous.bounds import ConfidenceBudget
from nonvacuous.records import BOUND_LINE, OTHERS_LINE, SAMPLING_LINE, BudgetRecord
from nonvacuous.risk.losses import zero_one
from nonvacuous.rules import arithmetic, attempts
from nonvacuous.rules.drawing import set_aside, temperature, tilt_of

SEARCHED = "every search was paid for"
#: The charge of a search that the bound pays for in nats, as one of its inputs.
GRID = "grid"
#: Searches that cost nothing where the theorem holds for all posteriors at once: those whose name
#: begins with one of these words concern the posterior alone.
FREE = ("posterior", "training", "checkpoint", "epochs", "objective", "rescaling", "trade_off")


def rebuilt(budget: BudgetRecord) -> ConfidenceBudget:
    """The ledger, with its rules checked again; overspending raises."""
    return ConfidenceBudget.from_dict(budget.model_dump())


@check(rows=(10,), since=1, name="the failure probability is spent once")
def spent_once(evidence: Evidence) -> Outcome:
    # Raises with the account in the message when more is spent than there is.
    ledger = rebuilt(evidence.budget)
    entry = evidence.budget.bound
    used = evidence.bound.inputs.get("failure")
    if used != entry.share:
        return refuse(
            f"the bound was computed with failure = {used!r}, but its line in the ledger allows "
            f"{entry.share!r} ({entry.failure!r} shared by {entry.choices}). Use the share that "
            "the budget returned."
        )
    if evidence.risk.scheme != arithmetic.ONCE:
        evidence.budget.line(SAMPLING_LINE)
    spends = " + ".join(f"{e.failure:.3g} ({e.name})" for e in evidence.budget.entries)
    return holds(f"{spends} is at most {ledger.failure:g}.")


@check(rows=(7, 8, 24), since=1, name=SEARCHED)
def searches_paid(evidence: Evidence) -> Outcome:
    charged: dict[str, int] = {}
    for search in evidence.searches:
        if search.choices < 1:
            return refuse(f"the search {search.name!r} records {search.choices} choices.")
        if search.choices == 1:
            continue
        if search.charge is None:
            return refuse(
                f"{search.name!r} was chosen among {search.choices} by looking at the bound "
                "examples, and nobody paid: the best of many is not one. Charge it to the ledger "
                "with budget.union, or fix it before the data."
            )
        if search.charge == "free":
            if wrong := _not_free(evidence, search):
                return wrong
            continue
        if search.charge == GRID and "grid_nats" in evidence.bound.inputs:
            continue  # in nats, item by item: see the checks of mode sparsity
        charged[search.charge] = charged.get(search.charge, 1) * search.choices
    for name, choices in charged.items():
        if name not in (BOUND_LINE, SAMPLING_LINE):
            return refuse(
                f"a search is charged to {name!r}, which is not a line that the bound draws on; "
                f"charge it to {BOUND_LINE!r}."
            )
        entry = evidence.budget.line(name)
        if entry.choices < choices:
            return refuse(
                f"the line {name!r} of the ledger pays for {entry.choices} choices, but "
                f"{choices} were searched. Divide its failure probability by {choices}."
            )
    return holds(accounted_for(s.name for s in evidence.searches if s.choices > 1))


def accounted_for(searched: Iterable[str]) -> str:
    """What a certificate says of everything that was searched."""
    return "searched and accounted for: " + (", ".join(searched) or "nothing") + "."


@check(
    rows=(8,),
    since=1,
    name="what the theorem wants fixed was fixed before the data",
    says=("checked", "asserted"),
)
def fixed_before_data(evidence: Evidence) -> Outcome:
    named = arithmetic.theorem(evidence.bound.name)
    given = {key.partition(".")[0] for key in evidence.bound.inputs}  # lists go item by item
    present = [name for name in named.fixed_before if name in given]
    if not present:
        return holds(f"{named.name} holds for all values of its other inputs at once.")
    if present == ["tilt"] or (evidence.tilt is not None and present == ["temperature"]):
        return _tilted(evidence, present[0])
    own = str(evidence.bound.inputs.get("threshold"))
    standing = evidence.standing if "threshold" in present else None
    others = [] if standing is None else [each for each in standing.thresholds if each != own]
    if others:
        return doubtful(
            f"the threshold is {own}, and certificates by checkpoints that were computed before on "
            f"these examples declared {' and '.join(others)}: one that is read off what they "
            "counted opens the gate, however many certificates share the confidence. The promise "
            "holds if it was decided on before looking at any of them."
        )
    return asserted(
        f"{', '.join(present)} of {named.name} was fixed before the bound examples were seen, as "
        "stated by the one who chose it."
    )


def _tilted(evidence: Evidence, name: str) -> Outcome:
    """Counts on prior examples, counted again, must give the very temperature of the bound."""
    tilt, (_, aside) = evidence.tilt, set_aside(evidence.split.prior, evidence.seed)
    errors, trials = (0, 0) if tilt is None else (tilt.errors, tilt.trials)
    n, failure = evidence.bound_examples, evidence.budget.bound.share
    # The network as it was when the choice was made: the first checkpoint, or the prior's.
    if evidence.kind.steps:
        network = Network.of(networks_of(evidence.module)[0])
        suits = tilt_of(tilt, examples=n, failure=failure)
    else:
        assert evidence.prior is not None
        network = Network.of(evidence.module, evidence.prior.means)
        suits = temperature(errors=errors, trials=trials, examples=n, failure=failure)
    again = recount(network, evidence.examples.subset(aside), zero_one)
    if trials != len(aside) or not again.agrees_with(errors=errors, total=None):
        return refuse(
            f"the {name} is said to follow from {errors} errors among {trials} examples of the "
            f"prior part; counted again they are {again.total:g} of {len(aside)}."
        )
    if evidence.bound.inputs[name] != suits:
        return refuse(
            f"the {name} is {evidence.bound.inputs[name]!r}, but the examples of the "
            f"prior part that were set aside give {suits!r}: one that was chosen by looking at the "
            "bound examples would have to be paid for."
        )
    if not len(aside):
        return holds(f"the {name} of {evidence.bound.name} is the one for an error of one in ten.")
    return holds(
        f"the {name} of {evidence.bound.name} follows from {errors} errors among {trials} "
        "examples of the prior part, none of which the bound counts."
    )


@check(
    rows=(7, 24),
    since=1,
    name="earlier certificates on these examples are paid for",
    says=("checked", "asserted"),
)
def attempts_paid(evidence: Evidence) -> Outcome:
    paid, standing = evidence.attempts_paid, evidence.standing or attempts.Standing()
    if min((paid, *standing.earlier, *standing.alike)) < 1:
        return refuse(f"{paid} and {standing} are not numbers of certificates to pay for.")
    if paid > 1:
        own = sum(Fraction(e.failure) for e in evidence.budget.entries if e.name != OTHERS_LINE)
        # A hair of slack: the shares were divided in floating point.
        if own * paid > Fraction(evidence.budget.failure) * (1 + Fraction(1, 10**12)):
            return refuse(
                f"{paid} certificates are said to share the failure probability, but this one "
                f"spends {float(own):.6g} of {evidence.budget.failure:.6g} alone. Reserve the "
                f"rest on a line {OTHERS_LINE!r}."
            )
    others = len(standing.earlier) + len(standing.alike)
    # Each may fail with its share of the failure probability, and together they get one.
    if standing.shares(paid) > 1:
        return doubtful(_unpaid(standing, paid))
    quoted = "".join(f" Declared different data: {words!r}." for words in standing.declared)
    if others:
        return holds(f"{others} earlier certificates, {paid} paid for by this one.{quoted}")
    if evidence.standing is None:
        return asserted("no ledger was kept: that there is no other certificate is stated.")
    return asserted(f"no other certificate on these examples is on record.{quoted}")


def _unpaid(standing: attempts.Standing, paid: int) -> str:
    alike = again = ""
    if standing.alike:
        alike = (
            f"{len(standing.alike)} of them on examples with the same labels up to their names and "
            "1 %, which may be these in other clothes (if they are other data, say so with "
            "different_data); "
        )
    if standing.issued is not None and standing.issued < paid:
        again = f"this very one was issued before for {standing.issued}, which stays spent; "
    return (
        f"certificates computed before on these examples: "
        f"{len(standing.earlier) + len(standing.alike)}; {alike}certificates paid for, this one "
        f"included: {paid}; {again}together they may fail {float(standing.shares(paid)):.3g} times "
        "as often as one. Choosing the best of them, be it the best seed, is a search. The promise "
        "holds if this one was decided on without looking at the others; otherwise plan with "
        "attempts= before the first one, on fresh examples."
    )


@check(
    rows=(7, 24),
    since=1,
    name="architecture and settings were chosen before looking",
    says=("asserted",),
)
def chosen_before(evidence: Evidence) -> Outcome:
    what = "prior, architecture and settings" if evidence.kind.prior else "network"
    return asserted(
        f"that the {what} were chosen without looking at the bound examples is stated by the user; "
        "a spread over several seeds is no substitute for it."
    )


def _not_free(evidence: Evidence, search: Search) -> Outcome | None:
    word = search.name.strip().partition(" ")[0]
    if not evidence.kind.prior:
        return refuse(
            f"{search.name!r} was chosen among {search.choices} by looking at the examples, and a "
            "plain test holds for one network only. Charge it to the ledger."
        )
    if word not in FREE or word in arithmetic.theorem(evidence.bound.name).fixed_before:
        return refuse(
            f"{search.name!r} was chosen among {search.choices} by looking at the bound examples "
            "and declared free, but only a choice of the posterior is: the theorem does not hold "
            f"for all {search.name!r} at once. Charge ln({search.choices}) = "
            f"{math.log(search.choices):.2g} nats with budget.union."
        )
    if not search.reason.strip():
        return refuse(f"the search {search.name!r} is declared free without a reason.")
    return None
