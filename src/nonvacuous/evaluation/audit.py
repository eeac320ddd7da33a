"""What a test rests on: asked of the columns before the certificate is sealed."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from scipy import optimize

from nonvacuous.bounds.holdout import log_choose
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
#: All of them, in the order of the record.
ASKED = (UNSEEN, INDEPENDENT, FIXED, FUNCTION, GROUPS, ORDER, PAID)
#: What the predictor's answers are found to be when they are tried again.
SAME_ANSWERS = "{} inputs got the same answers in batches of another make-up."
#: A column that separates right from wrong this often by chance would be a wonder.
_WONDER = 1e-9
_ROWS, _CLUSTERS = "one row is one draw", "clusters are the draws"
_NO_LEDGER = "no ledger was kept (give a folder)."
_UNKNOWN = "nothing but labels or ids shows a ledger which examples these are."


def audit(
    tally: Tally, *, unseen: bool, standing: Standing | None, invariant: str | None
) -> tuple[Assumption, ...]:
    """One assumption for every question. ``invariant`` says how the answers were tried again."""
    return (
        _unseen(unseen),
        _independent(tally),
        _answer(FIXED, "asserted", "stated by whoever ran the test."),
        _function(invariant),
        _groups(tally),
        _order(tally),
        _paid(standing, tally),
    )


def sayable(attempts: int, *, named: bool) -> dict[str, dict[str, str]]:
    """Every sentence of the audit that finds nothing wrong, by question and status, as a pattern.

    Those of older versions stand here too: an honest report is never called false for its words.
    ``named`` says that labels or ids tell a ledger which examples these are.
    """
    unpaid = re.escape(_NO_LEDGER) if named else f"({re.escape(_NO_LEDGER)}|{re.escape(_UNKNOWN)})"
    paid = re.escape(_payment(attempts))
    number = r"\d+"
    ids = rf"(at least {number} of {number} rows repeat an id|{number} ids are repeated)"
    near = f"(, {number} more hardly differ from one)?"
    inputs = f"{number} of {number} inputs are the same as another one{near}"
    given = "predictions were given; how they were computed is not known here."
    return {
        UNSEEN: {"asserted": r"declared by the user\."},
        INDEPENDENT: {
            "not checkable": rf"({_ROWS}|{_CLUSTERS})(; {ids})?(; {inputs})?\.",
        },
        FIXED: {"asserted": r"stated by whoever ran the test\."},
        FUNCTION: {
            "asserted": re.escape(given),
            "checked": re.escape(SAME_ANSWERS).replace(re.escape("{}"), number),
        },
        GROUPS: {
            "asserted": r".+: declared by the user; no column separates right from wrong\.",
            "checked": r"there are no groups\.",
        },
        ORDER: {
            "checked": r"(no other naming fits much better|there are no classes)\.",
            "not checkable": r"there is no table of classes to compare\.",
        },
        PAID: {
            "asserted": rf"{paid}; {unpaid}",
            "checked": rf"{paid}, and the ledger agrees\.",
        },
    }


def _answer(name: str, status: Any, detail: str, effect: Any = "none") -> Assumption:
    return Assumption(name=name, status=status, detail=detail, effect=effect)


def _unseen(unseen: bool) -> Assumption:
    if unseen:
        return _answer(UNSEEN, "asserted", "declared by the user.")
    detail = "nobody declared it: if no example was used to train, tune or choose the predictor, "
    return _answer(UNSEEN, "violated", f"{detail}say so (unseen=True, --unseen).", "conditional")


def _independent(tally: Tally) -> Assumption:
    repeats, likeness = tally.ids.repeated() if tally.ids else 0, tally.likeness
    seen = [f"at least {repeats} of {tally.rows} rows repeat an id"] if tally.ids else []
    broken = bool(repeats)
    if likeness is not None:
        same, near = likeness.repeated(), likeness.nearly()
        broken = broken or (same > 0 and likeness.rich)
        broken = broken or (100 * same > likeness.rows and likeness.telling)
        seen.append(f"{same} of {likeness.rows} inputs are the same as another one")
        if near:
            seen[-1] += f", {near} more hardly differ from one"
    if broken and not tally.clustered:
        remedy = "Say what belongs together with clusters, each of which counts once."
        return _answer(INDEPENDENT, "violated", f"{'; '.join(seen)}. {remedy}", "conditional")
    unit = _CLUSTERS if tally.clustered else _ROWS
    return _answer(INDEPENDENT, "not checkable", f"{'; '.join([unit, *seen])}.")


def _function(invariant: str | None) -> Assumption:
    if invariant is None:
        detail = "predictions were given; how they were computed is not known here."
        return _answer(FUNCTION, "asserted", detail)
    if invariant.startswith("NOT"):
        return _answer(FUNCTION, "violated", invariant.removeprefix("NOT "), "refused")
    return _answer(FUNCTION, "checked", invariant)


def _groups(tally: Tally) -> Assumption:
    if not tally.groups:
        return _answer(GROUPS, "checked", "there are no groups.")
    for name, coder in tally.groups.items():
        examples, errors = tally.group_counts(name)
        split = bool(np.all((errors == 0) | (errors == examples)))
        # Errors that fall without regard to G groups fill some of them exactly with probability at
        # most 2^G over the number of ways in which they can fall.
        ways = float(log_choose(tally.counted, tally.errors))
        if split and len(coder.values) * math.log(2.0) - ways < math.log(_WONDER):
            detail = f"column {name!r} separates right from wrong without exception: it was made "
            detail += "from the errors. Groups must be known before the errors are."
            return _answer(GROUPS, "violated", detail, "refused")
    names = ", ".join(tally.groups)
    detail = f"{names}: declared by the user; no column separates right from wrong."
    return _answer(GROUPS, "asserted", detail)


def _order(tally: Tally) -> Assumption:
    """Whether other names for the predicted classes would be much more often right."""
    if not tally.classes.values:
        return _answer(ORDER, "checked", "there are no classes.")
    table = tally.confusion
    if table is None or not len(table):
        return _answer(ORDER, "not checkable", "there is no table of classes to compare.")
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
        detail = f"{right} answers are right, but {best} would be if predictions said {said}: "
        detail += "the classes seem to be numbered in another order."
        return _answer(ORDER, "violated", detail, "conditional")
    return _answer(ORDER, "checked", "no other naming fits much better.")


def _payment(attempts: int) -> str:
    return f"the confidence is shared by {attempts}" if attempts > 1 else "one test is paid for"


def _paid(standing: Standing | None, tally: Tally) -> Assumption:
    attempts = tally.settings.attempts
    paid = _payment(attempts)
    if standing is None:
        return _answer(PAID, "asserted", f"{paid}; {_NO_LEDGER}")
    shares = standing.shares(attempts)
    if shares <= 1 and not {"labels", "ids"} & set(tally.digests):
        return _answer(PAID, "asserted", f"{paid}; {_UNKNOWN}")
    if shares <= 1:
        return _answer(PAID, "checked", f"{paid}, and the ledger agrees.")
    before = len(standing.earlier) + len(standing.alike)
    return _answer(
        PAID,
        "violated",
        f"the ledger has {before} other test{'s' * (before != 1)} on these examples, and {paid}: "
        f"together they may fail {float(shares):.3g} times as often. Choosing among K of them is "
        "paid with attempts=K, for all of them, before any result is shown.",
        "conditional",
    )
