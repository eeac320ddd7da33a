"""The sparsity study for people: a table in Markdown and a page with pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context

from nonvacuous.kinds import prior_kind
from nonvacuous.papers.sparsity import results
from nonvacuous.papers.sparsity.results import CaseResult, SparsityResult, promise
from nonvacuous.papers.sparsity.settings import VARIANTS
from nonvacuous.report.plots import Series, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash


def certificate_table(result: SparsityResult) -> Table:
    """One row for each network: test error, twin, every theorem and variant, the prototype."""
    names = [f"{theorem} {variant}" for theorem in result.settings.theorems for variant in VARIANTS]
    rows = (
        {
            "network": entry.case.short(),
            "test error": or_dash(entry.test_error, ".4f"),
            "held-out twin": promise(entry.twin),
            **{name: promise(entry.risk(name)) for name in names},
            "best": promise(entry.best),
            "prototype": or_dash(entry.prototype, ".3f"),
        }
        for entry in result.cases
    )
    return Table.of(rows, _CAPTION)


def tables(result: SparsityResult) -> tuple[Table, ...]:
    """For a terminal: the best certificate of each network only, and the goals."""
    rows = (
        {
            "network": entry.case.short(),
            "test": or_dash(entry.test_error, ".4f"),
            "twin": promise(entry.twin),
            "best": promise(entry.best),
            "by": entry.best_by,
            "prototype": or_dash(entry.prototype, ".3f"),
        }
        for entry in result.cases
    )
    return (Table.of(rows, results.does_sparsity_help(result)), *_goal_tables(result))


def _goal_tables(result: SparsityResult) -> tuple[Table, ...]:
    """What was asked for, and what was found, if anything was asked for."""
    rows = [
        {
            "network": goal.what,
            "goal": f"{goal.goal:g}",
            "prototype": or_dash(goal.prototype, ".3f"),
            "found": promise(goal.found),
            "by": goal.by,
            "held-out twin": promise(goal.twin),
            "verdict": "met" if goal.met else "missed",
        }
        for goal in result.goals()
    ]
    return (Table.of(rows),) if rows else ()


def depth_table(cases: Sequence[CaseResult]) -> Table:
    """Where depth hurts: the product of the spectral norms between hidden layers."""
    return Table.of(
        {
            "network": str(entry.case),
            "spectral norms multiplied": f"{math.prod(entry.spectral[1:-1], start=1.0):.3g}",
            "moved": f"{sum(entry.moved):.2g}",
            # Where a layer has died nothing is computed.
            "KL, nats": or_dash(entry.certificates[entry.best_by]["kl_nats"], ",.0f"),
            "held-out twin": promise(entry.twin),
            "best": promise(entry.best),
        }
        for entry in cases
    )


_CAPTION = (
    "Theorem A: the paper's construction with explicit constants. D, E and F: see "
    "docs/theory/sparsity.md. "
    "All certificates and twins here hold at once, at the confidence above. held-out twin: the "
    "learned prior itself, tested on the other examples. prototype: its best number for a network "
    "of this shape; the paper prints none."
)
_HEADINGS = {
    "width": "What does width cost?",
    "size": "What do more examples give?",
    "depth": "What does depth cost?",
}


def page(result: SparsityResult, command: str) -> StudyPage:
    settings = result.settings
    confidence = 1.0 - settings.failure - settings.sampling_failure
    goals = _goal_tables(result)
    beaten = any(case.twin is not None and case.best < case.twin for case in result.cases)
    sections = (
        Section.of("Were the goals met?", results.PROTOTYPE_NOTE, *goals) if goals else None,
        Section.of("Every network, every theorem", certificate_table(result)),
        _sparsity(result),
        _curve(result, "width", lambda entry: entry.case.width, "units in each hidden layer"),
        _curve(result, "size", lambda entry: entry.examples, "examples in the bound"),
        _depth(result),
        _changed(result),
        _norms(result),
        _activity(result),
        Section.of("What does this not say?", "" if beaten else _TWINS, *_LIMITS),
    )
    return StudyPage(
        title=f"sparsity, {settings.data}",
        question="Can the deployed network itself be certified, and does sparsity help?",
        lead=_lead(result),
        badges=(settings.data, f"confidence {confidence:g}", "deterministic predictor"),
        # A section that has nothing to say is left out.
        sections=tuple(filter(None, sections)),
        footer=(command, results.PAPER, f"seed {settings.seed}"),
    )


_TWINS = (
    "No certificate here beats its held-out twin. A learned prior that is simply tested on the "
    "other examples promises less risk than any theorem that lets the network move; the theorems "
    "say something that a test cannot only where every example went into training."
)
_LIMITS = (
    "The weight of the distance to the prior decides most: a network that hardly moves inherits "
    "the prior's risk and little else.",
    "A width, a depth or a prior that is picked because its certificate came out best must be "
    "paid for: the failure probability is shared by the theorems and by as many priors as the "
    "settings name as attempts. The default pays for a list of candidate priors: every combination "
    "of the steps, rates, noises, decays, penalties, limits, starts and shifts that a recipe may "
    "name, for every shape. A prior off that list whose recipe was changed after looking at "
    "certificates on the same examples is not covered by any number of attempts: it needs fresh "
    "examples.",
)


def _lead(result: SparsityResult) -> str:
    best = min(result.cases, key=lambda entry: entry.best)
    goals = result.goals()
    met = f" {sum(goal.met for goal in goals)} of {len(goals)} goals are met." if goals else ""
    twin = "" if best.twin is None else f" (held-out twin {promise(best.twin)})"
    return (
        f"{'Yes' if best.best < result.guessing else 'Not here'}: {promise(best.best)} by Theorem "
        f"{best.best_by}{twin} for {best.case}.{met}"
    )


def _sparsity(result: SparsityResult) -> Section | None:
    """Dense beside sparse, on ordinary and on l1-sparse networks."""
    active = {
        entry.case: " / ".join(f"{share:.0%}" for share in entry.active) for entry in result.cases
    }
    rows = [
        {
            "network": str(gain.case),
            "active units": active[gain.case],
            "theorem": gain.theorem,
            "dense": promise(gain.dense),
            "sparse": promise(gain.sparse),
            "change": f"{gain.change:+.1%}",
            "sparsity": results.verdict(gain),
        }
        for gain in result.gains()
    ]
    if not rows:
        return None
    return Section.of(
        "Does sparsity help?",
        results.does_sparsity_help(result),
        "dense: every unit counts as able to change. sparse: units that the noise cannot switch "
        "are left out. An l1-sparse network was trained with a penalty on activations.",
        Table.of(rows, words=("network", "active units", "theorem", "sparsity")),
    )


def _curve(
    result: SparsityResult, part: str, x: Callable[[CaseResult], float], x_label: str
) -> Section | None:
    groups: dict[str, list[CaseResult]] = {}
    for entry in sorted(result.part(part), key=x):
        kind, fraction = prior_kind(entry.case.prior)
        prior = f"{100 * fraction:g} % prior" if kind == "learned" else kind
        groups.setdefault(f"{entry.case.hidden + 1} layers, {prior}", []).append(entry)
    series = []
    for name, members in groups.items():
        xs = [float(x(entry)) for entry in members]
        series.append(Series(f"{name}: certificate", xs, [entry.best for entry in members]))
        twins = [entry.twin for entry in members if entry.twin is not None]
        if len(twins) == len(members):
            series.append(Series(f"{name}: twin", xs, twins))
    return _risks(result, part, series, x_label) if series else None


def _risks(
    result: SparsityResult, part: str, series: list[Series], x_label: str, *more: str | Table
) -> Section:
    drawn = lines(
        series,
        title=_HEADINGS[part],
        x_label=x_label,
        y_label="risk at most",
        log_x=part == "width",
        lowest=0.0,
        level=("guessing", result.guessing),
    )
    return Section.of(_HEADINGS[part], Figure(drawn), *more)


def _depth(result: SparsityResult) -> Section | None:
    entries = sorted(result.part("depth"), key=lambda entry: entry.case.hidden)
    if not entries:
        return None
    series = []
    for recipe in dict.fromkeys(entry.case.recipe for entry in entries):
        some = [e for e in entries if e.case.recipe == recipe and e.case.pull == 1.0]
        hidden = [float(entry.case.hidden) for entry in some]
        series.append(Series(recipe, hidden, [entry.best for entry in some]))
    text = (
        "The noise that a margin must survive grows with the product of the spectral norms. "
        "spectral: layers between hidden layers start as the identity plus noise and are kept "
        "small in spectral norm while the prior is learned. That costs nothing in the bound, "
        "since the prior has its own examples, and it is what keeps deep networks certifiable. "
        "contracting: with norms of at most 1 thresholds grow like a power of the depth "
        "(docs/theory/sparsity.md, 6e)."
    )
    return _risks(result, "depth", series, "hidden layers", text, depth_table(entries))


def _changed(result: SparsityResult) -> Section | None:
    entries = result.part("sensitivity")
    base = next((e for e in entries if e.case.recipe == "robust" and e.case.pull == 1.0), None)
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.best):
        changed = entry.case.recipe.partition(",")[2] or f"pull={entry.case.pull:g}"
        against = entry.best / base.best - 1 if base else None
        row = {
            "changed": "(nothing)" if entry is base else changed,
            "test error": or_dash(entry.test_error, ".4f"),
            "held-out twin": promise(entry.twin),
            "certificate": promise(entry.best),
            "against nothing changed": or_dash(against, "+.1%"),
        }
        rows.append(row)
    if not rows:
        return None
    return Section.of(
        "What does each setting do?",
        "One number of the recipe changed at a time; toward-: of the training toward the prior, "
        "the others of the prior's own.",
        Table.of(rows),
    )


def _rounded_up(value: float) -> str:
    """Three digits, never below the number itself, however large it is."""
    rounding = Context(prec=3, rounding=ROUND_CEILING)
    return f"{float(rounding.create_decimal_from_float(value)):.3g}"


def _norms(result: SparsityResult) -> Section | None:
    rows = [
        {"network": entry.case.short(), "ours": promise(entry.best)}
        | {name: _rounded_up(value) for name, value in entry.norm_bounds.items()}
        for entry in (*result.part("width"), *result.part("grid"))
        if entry.norm_bounds
    ]
    if not rows:
        return None
    return Section.of(
        "What do bounds from norms say?",
        "On the same examples, not cut at 1: above 1 they say nothing.",
        Table.of(rows),
    )


def _activity(result: SparsityResult) -> Section:
    entries = result.part("sparsity") or result.cases[:4]
    series = [
        Series(str(entry.case), list(map(float, entry.activity)), list(entry.activity.values()))
        for entry in entries
    ]
    drawn = lines(
        series,
        title="Effective activity ratio",
        x_label="relative perturbation of every layer",
        y_label="share of weights that act",
        log_x=True,
        lowest=0.0,
        highest=1.02,
    )
    return Section.of(
        "How much of a network acts on one input?",
        "The share of weights between units that can become active when every layer is perturbed "
        "by so much, averaged over test examples: the figure of the paper.",
        Figure(drawn),
    )
