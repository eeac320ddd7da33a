"""The page of a comparison: who errs less, by how much, and for whom."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nonvacuous.bounds import checks, rounding
from nonvacuous.report.plots import intervals
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.report.wording import capital, clean, confidence_percent, odds, shortened, whole

if TYPE_CHECKING:
    from nonvacuous.evaluation.compare import Comparison

#: Lines of a table and of the picture; ``--json`` has them all.
_MOST = 8


def comparison_page(result: Comparison) -> StudyPage:
    """The verdict, its interval, the groups, and the other predictors."""
    first, second = _names(result)
    failure = checks.failure_of(result.confidence)
    badges = [f"{confidence_percent(failure)} confidence", f"{whole(result.examples)} examples"]
    if result.wins is not None and result.losses is not None and result.p_value is not None:
        badges += [
            f"Only “{second}” right: {whole(result.wins)}",
            f"Only “{first}” right: {whole(result.losses)}",
            f"Exact sign test: p at most {rounding.shown_up(result.p_value)}",
        ]
    samples, false = odds(failure)
    low, high = _points(result)
    sections = [
        Section.of(
            "How sure?",
            f"The error of “{first}” minus that of “{second}” lies between {low} and {high} "
            f"percentage points. Of {samples} such comparisons, on average at most {false} "
            "would give a false interval. It is about new examples drawn like these, and "
            "rests on predictors that were fixed before these examples were seen.",
            _picture(result),
        )
    ]
    if result.groups:
        groups = ((name, _closest_first(parts.items())) for name, parts in result.groups.items())
        sections.append(Section.of("For whom?", *(_table(*group) for group in groups)))
    if result.others:
        rows = _closest_first((_names(one)[1], one) for one in result.others)
        said = "All intervals hold at once: the best may be chosen after looking."
        sections.append(Section.of("And the others?", said, _table("predictor", rows)))
    return StudyPage(
        title=f"{shortened(second, 32)} against {shortened(first, 32)}",
        kind="Comparison",
        question=f"Is “{second}” better than “{first}”?",
        lead=f"{capital(clean(result.verdict))}.",
        badges=tuple(badges),
        sections=tuple(sections),
    )


def _names(result: Comparison) -> tuple[str, str]:
    return clean(result.names[0]), clean(result.names[1])


def _points(result: Comparison) -> tuple[str, str]:
    """Both ends in percentage points, rounded outward as in the verdict."""
    low = math.floor(1000 * result.difference_lower) / 10
    return f"{low:g}", f"{math.ceil(1000 * result.difference_upper) / 10:g}"


def _closest_first(parts: Iterable[tuple[str, Comparison]]) -> list[tuple[str, Comparison]]:
    """Where the second does worst comes first."""
    return sorted(parts, key=lambda item: item[1].difference_lower)


def _table(column: str, rows: list[tuple[str, Comparison]]) -> Table:
    more = f" The {_MOST} least in favor of {len(rows)}." if len(rows) > _MOST else ""
    entries = tuple(
        (clean(name), whole(part.examples), *_points(part), clean(part.verdict))
        for name, part in rows[:_MOST]
    )
    return Table(
        (capital(clean(column)), "Examples", "At least", "At most", "Verdict"),
        entries,
        caption=f"Differences in percentage points.{more}",
    )


def _picture(result: Comparison) -> Figure:
    _, second = _names(result)
    rows = [("all examples", result)]
    for column, parts in result.groups.items():
        chosen = _closest_first(parts.items())[:_MOST]
        rows += [(shortened(clean(f"{column} {value}"), 24), part) for value, part in chosen]
    rows += [(shortened(_names(one)[1], 24), one) for one in result.others[:_MOST]]
    svg = intervals(
        [name for name, _ in rows],
        [100 * part.difference_lower for _, part in rows],
        [100 * part.difference_upper for _, part in rows],
        title="The difference, with both ends",
        x_label=f"percentage points by which “{shortened(second, 24)}” errs less",
    )
    said = "An interval that crosses the line shows no difference."
    return Figure(svg, f"{said} Each group's holds alone." if result.groups else said)
