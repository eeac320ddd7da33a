"""The tables of the sparsity study, for the terminal, for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.papers.sparsity.results import CaseResult, SparsityGain, SparsityResult
from nonvacuous.papers.sparsity.settings import VARIANTS
from nonvacuous.report.study import Table


def promise(value: float | None) -> str:
    """A bound, rounded up: what is printed must be true as printed."""
    return "-" if value is None else shown_up(value)


def certificate_table(result: SparsityResult, cases: Sequence[CaseResult], caption: str) -> Table:
    """One row for each network: test error, twin, every theorem and variant, the prototype."""
    names = [f"{theorem} {variant}" for theorem in result.settings.theorems for variant in VARIANTS]
    rows = []
    for entry in cases:
        known = entry.prototype
        rows.append(
            (
                entry.case.short(),
                "-" if entry.test_error is None else f"{entry.test_error:.4f}",
                promise(entry.twin),
                *(promise(entry.risk(name)) for name in names),
                promise(entry.best),
                "-" if known is None else f"{min(known.certificates.values()):.3f}",
            )
        )
    headings = ("network", "test error", "held-out twin", *names, "best", "prototype")
    numeric = (False,) + (True,) * (len(headings) - 1)
    return Table(headings, tuple(rows), caption=caption, numeric=numeric)


def short_table(cases: Sequence[CaseResult], caption: str) -> Table:
    """The same for a terminal: the best certificate of each network only."""
    rows = []
    for entry in cases:
        known = entry.prototype
        rows.append(
            (
                entry.case.short(),
                "-" if entry.test_error is None else f"{entry.test_error:.4f}",
                promise(entry.twin),
                promise(entry.best),
                entry.best_by,
                "-" if known is None else f"{min(known.certificates.values()):.3f}",
            )
        )
    headings = ("network", "test", "twin", "best", "by", "prototype")
    return Table(headings, tuple(rows), caption, (False, True, True, True, False, True))


def goal_table(result: SparsityResult) -> Table:
    """What was asked for, and what was found."""
    return Table(
        ("network", "goal", "prototype", "found", "by", "held-out twin", "verdict"),
        tuple(
            (
                goal.what,
                f"{goal.goal:g}",
                "-" if goal.prototype is None else f"{goal.prototype:.3f}",
                promise(goal.found),
                goal.by,
                promise(goal.twin),
                "met" if goal.met else "missed",
            )
            for goal in result.goals()
        ),
        numeric=(False, True, True, True, False, True, False),
    )


def gain_table(result: SparsityResult) -> Table:
    """Dense beside sparse, on ordinary and on l1-sparse networks."""
    rows = []
    active = {entry.case.key: entry.active for entry in result.cases}
    for gain in result.gains():
        shares = " / ".join(f"{share:.0%}" for share in active[gain.case.key])
        rows.append(
            (
                gain.case.told(),
                shares,
                gain.theorem,
                promise(gain.dense),
                promise(gain.sparse),
                f"{gain.change:+.1%}",
                verdict(gain),
            )
        )
    headings = ("network", "active units", "theorem", "dense", "sparse", "change", "sparsity")
    return Table(headings, tuple(rows), numeric=(False, False, False, True, True, True, False))


def depth_table(cases: Sequence[CaseResult]) -> Table:
    """Where depth hurts: the product of spectral norms."""
    return Table(
        ("network", "spectral norms multiplied", "moved", "KL, nats", "held-out twin", "best"),
        tuple(
            (
                entry.case.told(),
                f"{entry.spectral_product:.3g}",
                f"{sum(entry.moved):.2g}",
                f"{entry.certificates[entry.best_by]['kl_nats']:,.0f}",
                promise(entry.twin),
                promise(entry.best),
            )
            for entry in cases
        ),
        numeric=(False, True, True, True, True, True),
    )


def verdict(gain: SparsityGain) -> str:
    """Whether sparsity helps, in a word."""
    if gain.dense >= 1.0 and gain.sparse >= 1.0:
        return "vacuous both ways"
    if abs(gain.change) < 0.005:
        return "no difference"
    return "helps" if gain.change < 0 else "hurts"


#: What a network of a recipe is called when sparsity is judged.
_KINDS = {"plain": "ordinary", "sparse": "l1-sparse", "stable": "trained for stability"}


def does_sparsity_help(result: SparsityResult) -> str:
    """The plain answer, from the numbers."""
    gains = [gain for gain in result.gains() if gain.dense < 1.0 or gain.sparse < 1.0]
    if not gains:
        return "Sparsity: no network of this question has a certificate below 1."
    parts = []
    for layers in sorted({gain.case.hidden for gain in gains}):
        for recipe, kind in _KINDS.items():
            some = [
                gain for gain in gains if gain.case.hidden == layers and gain.case.recipe == recipe
            ]
            if some:
                best = min(some, key=lambda gain: min(gain.dense, gain.sparse))
                word = verdict(best) if verdict(best) != "no difference" else "changes nothing"
                parts.append(
                    f"{layers + 1} layers, {kind}: {word} ({best.change:+.1%} in Theorem "
                    f"{best.theorem}, {promise(best.dense)} to {promise(best.sparse)})"
                )
    return "Does sparsity help? " + "; ".join(parts) + "."


def markdown(table: Table) -> list[str]:
    """A table as lines of Markdown."""
    marks = "".join(
        "---:|" if table.is_numeric(column) else "---|" for column in range(len(table.headings))
    )
    lines = [f"| {' | '.join(table.headings)} |", "|" + marks]
    lines += [f"| {' | '.join(row)} |" for row in table.rows]
    return [*lines, "", table.caption] if table.caption else lines
