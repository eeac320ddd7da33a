"""``nonvacuous plan``: how many examples does a promise take?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.table import Table

from nonvacuous.bounds.rounding import shown_down, shown_up
from nonvacuous.cli.exits import DONE, UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber, Repeated, check_free, failure_of
from nonvacuous.cli.output import result_console, say, write_json, write_lines


def plan(
    *,
    target: float,
    risk: float,
    chance: float = 0.9,
    confidence: float = 0.95,
    labeled: OptionalWholeNumber = None,
    curve: tuple[float, float, float] | None = None,
    point: Repeated = (),
    page: Path | None = None,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """How many examples promise a risk, before anybody looks at one?

    Args:
        target: The risk to promise.
        risk: The true risk that you expect.
        chance: How likely the test should succeed.
        confidence: Of the promise.
        labeled: How many labeled examples there are for training and testing together.
        curve: With --labeled: limit, scale and power of the risk limit + scale/n^power after n
            examples.
        point: With --labeled, instead: a risk that was measured after so many examples, as
            400:0.12. A curve is fitted to all such points.
        page: Write the table and a picture of the chance.
        force: Overwrite --page if it exists.
    """
    from nonvacuous.evaluation.plan import plan as planned

    failure = failure_of(confidence)
    if labeled is not None and curve is None and not point:
        raise UsageError(
            "--labeled needs a learning curve: add --curve with its limit, scale and power, or "
            "--point 400:0.12 --point 800:0.08.",
            instead={"--point": ("400:0.12", "--point", "800:0.08")},
        )
    if curve is not None and point:
        raise UsageError("--curve is a learning curve, --point fits one: give one of them.")
    if labeled is None and (curve is not None or point):
        raise UsageError(
            "--curve and --point divide labeled examples: say how many with --labeled."
        )
    check_free(page, "--page", force=force)
    result = planned(
        target,
        risk,
        chance=chance,
        confidence=confidence,
        labeled=labeled,
        curve=curve or _points(point),
    )
    rows = [
        {
            "Examples": f"{row.examples:,}",
            "Errors allowed": f"{row.allowed_errors:,}"
            if row.allowed_errors >= 0
            else "none will do",
            "Chance": shown_down(row.chance, 3),
            "Best promise": shown_up(row.smallest),
            "Expected promise": shown_up(row.expected),
        }
        for row in result.rows
    ]
    if page is not None:
        from nonvacuous.bounds import chance_to_promise
        from nonvacuous.report.evaluation import plan_page
        from nonvacuous.report.study import write_study

        sizes = sorted({max(1, result.rows[-1].examples * i // 400) for i in range(1, 401)})
        call = {"target": target, "risk": risk, "failure": failure}
        chances = [chance_to_promise(examples=n, **call) for n in sizes]
        write_study(plan_page(result, rows, sizes, chances), page)
        say(f"The page of this plan: {page}")
    if json:
        write_json(asdict(result))
        return DONE
    compared = ", the interval of compare if they differ by more"
    write_lines(
        f"{result}.",
        f"The first number with this chance is {result.first:,}; {result.told_apart}"
        f"{'' if result.detectable_difference is None else compared}.",
    )
    table = Table(*map(str.lower, rows[0]))
    for row in rows:
        table.add_row(*row.values())
    result_console().print(table)
    if result.division is not None:
        part = result.division
        write_lines(
            f"Of {part.labeled:,} labeled examples hold out {part.held_out:,}: expected promise "
            f"{shown_up(part.test)} (testing while training: {shown_up(part.progressive)}; a "
            f"learned prior: {shown_up(part.learned_prior)} at best); {part.advice}"
        )
    return DONE


def _points(given: tuple[str, ...]) -> list[tuple[int, float]] | None:
    """Points of a learning curve, each as size:risk."""
    try:
        pairs = [text.split(":", 1) for text in given]
        return [(int(size), float(risk)) for size, risk in pairs] or None
    except ValueError:
        raise UsageError(f"--point is written size:risk, as in 400:0.12, got {given!r}.") from None
