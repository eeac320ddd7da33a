"""Numbers of older reports that can be false, and are not believed."""

from __future__ import annotations

from nonvacuous.evaluation_records import EvaluationRecord
from nonvacuous.verification.findings import Disagreement

#: What reports said of betting whose numbers rest on the order of the rows.
FORMER_ORDER = "Waudby-Smith and Ramdas (2024): betting, in an order fixed by the seed"


def check_former_order(theorem: str) -> None:
    """Bets in the order of the file were in the order that somebody had chosen."""
    if theorem == FORMER_ORDER:
        raise Disagreement(
            "an earlier version bet on losses in the order of the file, which whoever sorts it "
            "chooses: such a number can be false. Test again.",
            "bound.theorem",
        )


def check_former_groups(record: EvaluationRecord, counted: int) -> None:
    """Beside a metric of classes stood the plain error of groups, which was read as that metric."""
    first = next(iter(record.declared.values()), None)
    if first is None or record.settings.entry.counts != "classes":
        return
    rows = sum(part.examples for part in first.values())
    if record.settings.over_all_classes or rows == record.rows != counted:
        raise Disagreement(
            "an earlier version bounded the plain error of groups, which was read as "
            f"{record.settings.words}: such a number can be false. Test again.",
            "evaluation.groups",
        )
