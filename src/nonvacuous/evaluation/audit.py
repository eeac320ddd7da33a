"""What a test rests on: asked of the columns before the certificate is sealed."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from nonvacuous.evaluation.tally import Tally
from nonvacuous.records import Assumption
from nonvacuous.rules.attempts import Standing

UNSEEN = "the predictor never saw these examples"
INDEPENDENT = "the examples are independent draws"
FIXED = "predictor, metric and groups were fixed before anybody looked at these examples"
FUNCTION = "each answer depends on its own example alone"
GROUPS = "no group was chosen by its errors"
ORDER = "predictions and labels name their classes alike"
PAID = "every test on these examples is paid for"
#: A column that separates right from wrong this often by chance would be a wonder.
_WONDER = 1e-9


def audit(
    tally: Tally, *, unseen: bool, standing: Standing | None, invariant: str | None
) -> tuple[Assumption, ...]:
    """One assumption for every question. ``invariant`` says how the answers were tried again."""
    return (
        _unseen(unseen),
        _independent(tally),
        Assumption(name=FIXED, status="asserted", detail="stated by whoever ran the test."),
        _function(invariant),
        _groups(tally),
        _order(tally),
        _paid(standing, tally.settings.attempts),
    )


def _unseen(unseen: bool) -> Assumption:
    if unseen:
        return Assumption(name=UNSEEN, status="asserted", detail="declared by the user.")
    return Assumption(
        name=UNSEEN,
        status="violated",
        effect="conditional",
        detail="nobody declared it: if no example was used to train, tune or choose the "
        "predictor, say so (unseen=True, --unseen).",
    )


def _independent(tally: Tally) -> Assumption:
    repeats, likeness = tally.repeated(), tally.likeness
    seen = [] if repeats is None else [f"at least {repeats} of {tally.rows} rows repeat an id"]
    broken = bool(repeats)
    if likeness is not None:
        same, near = likeness.repeated(), likeness.nearly()
        broken = broken or (same > 0 and likeness.rich)
        seen.append(f"{same} of {likeness.rows} inputs are the same as another one")
        if near:
            seen[-1] += f", {near} more hardly differ from one"
    unit = "clusters are the draws" if tally.clustered else "one row is one draw"
    if not broken or tally.clustered:
        detail = "; ".join([unit, *seen])
        return Assumption(name=INDEPENDENT, status="not checkable", detail=f"{detail}.")
    return Assumption(
        name=INDEPENDENT,
        status="violated",
        effect="conditional",
        detail=f"{'; '.join(seen)}. Say what belongs together with clusters, each of which counts "
        "once.",
    )


def _function(invariant: str | None) -> Assumption:
    if invariant is None:
        detail = "predictions were given; how they were computed is not known here."
        return Assumption(name=FUNCTION, status="asserted", detail=detail)
    if invariant.startswith("NOT"):
        return Assumption(
            name=FUNCTION,
            status="violated",
            effect="refused",
            detail=invariant.removeprefix("NOT "),
        )
    return Assumption(name=FUNCTION, status="checked", detail=invariant)


def _groups(tally: Tally) -> Assumption:
    if not tally.groups:
        return Assumption(name=GROUPS, status="checked", detail="there are no groups.")
    for name, (coder, examples, errors) in tally.groups.items():
        split = bool(np.all((errors == 0) | (errors == examples)))
        # Errors that fall without regard to G groups fill some of them exactly with probability at
        # most 2^G over the number of ways in which they can fall.
        n, k = float(tally.counted), tally.errors
        ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
        if split and len(coder.values) * math.log(2.0) - ways < math.log(_WONDER):
            return Assumption(
                name=GROUPS,
                status="violated",
                effect="refused",
                detail=f"column {name!r} separates right from wrong without exception: it was made "
                "from the errors. Groups must be known before the errors are.",
            )
    names = ", ".join(tally.groups)
    detail = f"{names}: declared by the user; no column separates right from wrong."
    return Assumption(name=GROUPS, status="asserted", detail=detail)


def _order(tally: Tally) -> Assumption:
    """Whether other names for the predicted classes would be much more often right."""
    table = tally.confusion
    if table is None or not len(table):
        detail = "there is no table of classes to compare."
        return Assumption(name=ORDER, status="not checkable", detail=detail)
    rows, columns = optimize.linear_sum_assignment(-table)
    right, best = int(np.trace(table)), int(table[rows, columns].sum())
    rate = max(right, 1) / table.sum()
    # Three deviations, and half of all errors gone: chance does not do this.
    if best - right > 0.5 * (table.sum() - right) and best - right > 3 * np.sqrt(
        table.sum() * rate * (1.0 - rate) + 1.0
    ):
        moved = [(r, c) for r, c in zip(rows, columns, strict=True) if r != c and table[r, c]]
        names = tally.classes.values
        said = ", ".join(f"{names[c]!r} for {names[r]!r}" for r, c in moved[:4])
        return Assumption(
            name=ORDER,
            status="violated",
            effect="conditional",
            detail=f"{right} answers are right, but {best} would be if predictions said {said}: "
            "the classes seem to be numbered in another order.",
        )
    return Assumption(name=ORDER, status="checked", detail="no other naming fits much better.")


def _paid(standing: Standing | None, attempts: int) -> Assumption:
    paid = f"the confidence is shared by {attempts}" if attempts > 1 else "one test is paid for"
    if standing is None:
        detail = f"{paid}; no ledger was kept (give a folder)."
        return Assumption(name=PAID, status="asserted", detail=detail)
    shares = standing.shares(attempts)
    if shares > 1:
        before = len(standing.earlier) + len(standing.alike)
        return Assumption(
            name=PAID,
            status="violated",
            effect="conditional",
            detail=f"{before} other test(s) on these examples stand in the ledger, and {paid}: "
            f"together they may fail {float(shares):.3g} times as often. Choosing among K of them "
            "is paid with attempts=K, for all of them, before any result is shown.",
        )
    return Assumption(name=PAID, status="checked", detail=f"{paid}, and the ledger agrees.")
