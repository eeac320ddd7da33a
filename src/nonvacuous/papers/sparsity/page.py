"""The sparsity study for people: a table in Markdown and a page with pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nonvacuous.kinds import prior_kind
from nonvacuous.papers.sparsity.results import (
    PAPER,
    PROTOTYPE_NOTE,
    CaseResult,
    SparsityResult,
    does_sparsity_help,
    promise,
    verdict,
)
from nonvacuous.papers.sparsity.settings import VARIANTS
from nonvacuous.report.plots import Series, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.study.study import markdown


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


def _whole(nats: float | None) -> str:
    """Where a layer has died nothing is computed."""
    return "-" if nats is None else f"{nats:,.0f}"


def depth_table(cases: Sequence[CaseResult]) -> Table:
    """Where depth hurts: the product of spectral norms."""
    return Table(
        ("network", "spectral norms multiplied", "moved", "KL, nats", "held-out twin", "best"),
        tuple(
            (
                entry.case.told(),
                f"{entry.spectral_product:.3g}",
                f"{sum(entry.moved):.2g}",
                _whole(entry.certificates[entry.best_by]["kl_nats"]),
                promise(entry.twin),
                promise(entry.best),
            )
            for entry in cases
        ),
        numeric=(False, True, True, True, True, True),
    )


_CAPTION = (
    "Theorem A: the paper's construction with explicit constants. D, E and F: see "
    "docs/theory/sparsity.md. "
    "All certificates and twins here hold at once, at the confidence above. held-out twin: the "
    "learned prior itself, tested on the other examples. prototype: its best number for a network "
    "of this shape; the paper prints none."
)
_LEVEL = ("guessing", 0.9)


def tables(result: SparsityResult) -> tuple[Table, ...]:
    """What the terminal shows."""
    shown = [short_table(result.cases, does_sparsity_help(result))]
    if result.goals():
        shown.append(goal_table(result))
    return tuple(shown)


def page(result: SparsityResult, *, command: str) -> StudyPage:
    """The same as a page, with pictures."""
    settings = result.settings
    confidence = 1.0 - settings.failure - settings.sampling_failure
    sections = (
        _goals(result),
        Section(
            "Every network, every theorem",
            tables=(certificate_table(result, result.cases, _CAPTION),),
        ),
        _sparsity(result),
        _curve(
            result,
            part="width",
            heading="What does width cost?",
            x=lambda entry: float(entry.case.width),
            x_label="units in each hidden layer",
            log_x=True,
        ),
        _curve(
            result,
            part="size",
            heading="What do more examples give?",
            x=lambda entry: float(entry.examples),
            x_label="examples in the bound",
            log_x=False,
        ),
        _depth(result),
        _changed(result),
        _norms(result),
        _activity(result),
        Section("What does this not say?", paragraphs=_LIMITS),
    )
    return StudyPage(
        title=f"sparsity, {settings.data}",
        question="Can the deployed network itself be certified, and does sparsity help?",
        lead=_lead(result),
        badges=(settings.data, f"confidence {confidence:g}", "deterministic predictor"),
        sections=tuple(section for section in sections if section is not None),
        footer=(command, PAPER, f"seed {settings.seed}"),
    )


_LIMITS = (
    "No certificate here beats its held-out twin. A learned prior that is simply tested on the "
    "other examples promises less risk than any theorem that lets the network move; the theorems "
    "say something that a test cannot only where every example went into training.",
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
        f"{'Yes' if best.best < 0.9 else 'Not here'}: {promise(best.best)} by Theorem "
        f"{best.best_by}{twin} for {best.case.told()}.{met}"
    )


def _goals(result: SparsityResult) -> Section | None:
    if not result.goals():
        return None
    return Section(
        "Were the goals met?", paragraphs=(PROTOTYPE_NOTE,), tables=(goal_table(result),)
    )


def _sparsity(result: SparsityResult) -> Section | None:
    if not result.gains():
        return None
    return Section(
        "Does sparsity help?",
        paragraphs=(
            does_sparsity_help(result),
            "dense: every unit counts as able to change. sparse: units that the noise cannot "
            "switch are left out. An l1-sparse network was trained with a penalty on activations.",
        ),
        tables=(gain_table(result),),
    )


def _curve(
    result: SparsityResult,
    *,
    part: str,
    heading: str,
    x: Callable[[CaseResult], float],
    x_label: str,
    log_x: bool,
) -> Section | None:
    entries = sorted(result.part(part), key=x)
    if not entries:
        return None
    groups: dict[str, list[CaseResult]] = {}
    for entry in entries:
        case = entry.case
        kind, fraction = prior_kind(case.prior)
        prior = f"{100 * fraction:g} % prior" if kind == "learned" else kind
        groups.setdefault(f"{case.hidden + 1} layers, {prior}", []).append(entry)
    series = []
    for name, members in groups.items():
        places = [x(entry) for entry in members]
        series.append(Series(f"{name}: certificate", places, [entry.best for entry in members]))
        twins = [entry.twin for entry in members]
        if None not in twins:
            series.append(Series(f"{name}: twin", places, [float(t or 0.0) for t in twins]))
    svg = lines(
        series,
        title=heading,
        x_label=x_label,
        y_label="risk at most",
        log_x=log_x,
        lowest=0.0,
        level=_LEVEL,
    )
    return Section(heading, figures=(Figure(svg),))


def _depth(result: SparsityResult) -> Section | None:
    entries = sorted(result.part("depth"), key=lambda entry: entry.case.hidden)
    if not entries:
        return None
    series = []
    for recipe in dict.fromkeys(entry.case.recipe for entry in entries):
        some = [
            entry for entry in entries if entry.case.recipe == recipe and entry.case.pull == 1.0
        ]
        places = [float(entry.case.hidden) for entry in some]
        series.append(Series(recipe, places, [entry.best for entry in some]))
    svg = lines(
        series,
        title="What does depth cost?",
        x_label="hidden layers",
        y_label="risk at most",
        lowest=0.0,
        level=_LEVEL,
    )
    return Section(
        "What does depth cost?",
        paragraphs=(
            "The noise that a margin must survive grows with the product of the spectral norms. "
            "spectral: layers between hidden layers start as the identity plus noise and are kept "
            "small in spectral norm while the prior is learned. That costs nothing in the bound, "
            "since the prior has its own examples, and it is what keeps deep networks certifiable. "
            "contracting: with norms of at most 1 thresholds grow like a power of the depth "
            "(docs/theory/sparsity.md, 6e).",
        ),
        figures=(Figure(svg),),
        tables=(depth_table(entries),),
    )


def _changed(result: SparsityResult) -> Section | None:
    entries = result.part("sensitivity")
    if not entries:
        return None
    base = next((e for e in entries if e.case.recipe == "robust" and e.case.pull == 1.0), None)
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.best):
        changed = entry.case.recipe.partition(",")[2] or f"pull={entry.case.pull:g}"
        change = "-" if base is None else f"{entry.best / base.best - 1:+.1%}"
        test = "-" if entry.test_error is None else f"{entry.test_error:.4f}"
        name = "(nothing)" if entry is base else changed
        rows.append((name, test, promise(entry.twin), promise(entry.best), change))
    headings = ("changed", "test error", "held-out twin", "certificate", "against nothing changed")
    return Section(
        "What does each setting do?",
        paragraphs=(
            "One number of the recipe changed at a time; toward-: of the training toward the "
            "prior, the others of the prior's own.",
        ),
        tables=(Table(headings, tuple(rows), numeric=(False, True, True, True, True)),),
    )


def _norms(result: SparsityResult) -> Section | None:
    shown = (*result.part("width"), *result.part("grid"))
    entries = [entry for entry in shown if entry.norm_bounds]
    if not entries:
        return None
    names = list(entries[0].norm_bounds)
    rows = tuple(
        (entry.case.short(), promise(entry.best), *(f"{entry.norm_bounds[n]:.3g}" for n in names))
        for entry in entries
    )
    return Section(
        "What do bounds from norms say?",
        paragraphs=("On the same examples, not cut at 1: above 1 they say nothing.",),
        tables=(Table(("network", "ours", *names), rows, numeric=(False,) + (True,) * 4),),
    )


def _activity(result: SparsityResult) -> Section | None:
    entries = result.part("sparsity") or result.cases[:4]
    if not entries:
        return None
    series = [
        Series(
            entry.case.told(),
            [float(level) for level in entry.activity],
            list(entry.activity.values()),
        )
        for entry in entries
    ]
    svg = lines(
        series,
        title="Effective activity ratio",
        x_label="relative perturbation of every layer",
        y_label="share of weights that act",
        log_x=True,
        lowest=0.0,
        highest=1.02,
    )
    return Section(
        "How much of a network acts on one input?",
        paragraphs=(
            "The share of weights between units that can become active when every layer is "
            "perturbed by so much, averaged over test examples: the figure of the paper.",
        ),
        figures=(Figure(svg),),
    )


def table_text(result: SparsityResult) -> str:
    """Markdown: every certificate, the goals and the gains."""
    parts = [
        "# Certificates for deterministic networks through sparsity",
        "",
        f"{PAPER}. Data: {result.settings.data}, seed {result.settings.seed}.",
        "",
        does_sparsity_help(result),
        "",
        markdown(certificate_table(result, result.cases, _CAPTION)),
        "",
    ]
    if result.goals():
        parts += [markdown(goal_table(result)), ""]
    if result.gains():
        parts += [markdown(gain_table(result)), ""]
    return "\n".join(parts)
