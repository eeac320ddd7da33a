"""The rescaling figure for people: the published numbers beside ours, and who earns what."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.papers.rescaling.columns import Column, NetworkResult
from nonvacuous.papers.rescaling.figure import FigureResult
from nonvacuous.papers.rescaling.images import CnnPoint, ImageResult, inferred_weights
from nonvacuous.papers.rescaling.settings import CNNS, RESCALING_PAPER, PublishedCnn
from nonvacuous.report.plots import bars
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash


def tables(result: FigureResult) -> tuple[Table, ...]:
    return (short_table(result), *image_tables(result.images))


def page(result: FigureResult, command: str) -> StudyPage:
    settings = result.settings
    earned = (
        "The same noise around the same weights, accounted for in different ways: complexity in "
        "nats (charge included), then the McAllester bound and the kl-inverse, each with "
        f"confidence {settings.confidence:g} by itself. Columns with different priors may be "
        "compared but not minimized over."
    )
    columns = (_columns_table(result, level) for level in result.networks[0].columns)
    sections = [
        Section.of(
            "Every network beside the published one",
            f"Published: {RESCALING_PAPER}, read off the figure (bounds to 0.02, ratios to 0.05).",
            _training(result),
            *_figures(result.networks),
            networks_table(result),
        ),
        Section.of("Who earns the improvement?", earned, *columns),
    ]
    if result.images:
        sections.append(Section.of("Networks on images", *image_tables(result.images)))
    return StudyPage(
        title="Rescaling, figure 1",
        question="How much smaller is a bound after rescaling?",
        lead=verdict(result),
        badges=(f"{len(result.networks)} networks on {settings.data}", RESCALING_PAPER),
        sections=tuple(sections),
        footer=(command, f"seed {settings.seed}"),
    )


def short_table(result: FigureResult) -> Table:
    rows = []
    for entry in result.networks:
        name, _, ratio, published, _, bounds, printed, *_ = _cells(entry, arrow=">")
        certificate = shown_up(entry.ours.risk_upper)
        rows.append((name, ratio, published, bounds, printed, certificate))
    headings = ("network", "KL ratio", "published", "bounds", "published", "certificate")
    caption = (
        "bounds: the paper's formula, before and after rescaling. certificate: the same weights, "
        f"our recipe, everything paid for.\n{verdict(result)}"
    )
    return Table(headings, tuple(rows), caption)


def networks_table(result: FigureResult) -> Table:
    """The figure's numbers beside ours."""
    settings = result.settings
    scale = f"noise {settings.paper_posterior_scale:g}, prior scale {settings.paper_prior_scale:g}"
    headings = (
        "network", "weights", "KL ratio", "published", "off by", "bound → rescaled", "published",
        "certificate", "of published", "without the shift", "held-out twin", "test error",
    )  # fmt: skip
    caption = (
        f"KL ratio and bound → rescaled: the paper's setting ({scale}, risk + √(KL / 2n), neither "
        "clipped at 1 nor with a stated confidence). certificate: the same weights, a prior at "
        "their initial values, every search and the sampling paid for; the confidence "
        f"{settings.confidence:g} is shared among {settings.attempts:,} certificates, so that "
        "those of the figure hold together and the choice of the settings is covered. without the "
        "shift: the same without forgetting a common shift of the scores."
    )
    return Table(headings, tuple(map(_cells, result.networks)), caption)


def _cells(entry: NetworkResult, arrow: str = "→") -> tuple[str, ...]:
    shown, ours, paper = entry.published, entry.ours, entry.paper
    vacuous = " (vacuous)" if ours.is_vacuous else ""
    status = "" if ours.status == "valid" else f" ({ours.status})"
    return (
        entry.name,
        f"{entry.weights:,}",
        f"{paper.kl_ratio:.2f}",
        or_dash(shown and shown.kl_ratio, ".2f"),
        or_dash(entry.ratio_error, "+.0%"),
        f"{shown_up(paper.bound, 2)} {arrow} {shown_up(paper.rescaled, 2)}",
        "-" if shown is None else f"{shown.bound:.2f} {arrow} {shown.rescaled:.2f}",
        f"{shown_up(ours.risk_upper)}{vacuous}{status}",
        or_dash(entry.bound_fraction, ".0%"),
        shown_up(ours.tensor_risk_upper),
        "-" if ours.held_out_twin is None else shown_up(ours.held_out_twin),
        or_dash(ours.test_error, ".4f"),
    )


def _training(result: FigureResult) -> str:
    settings = result.settings
    initial = {
        "lecun": "weights uniform with variance 1 / (number of inputs), biases zero",
        "pytorch": "torch's own initial weights",
    }[settings.initialization]
    return (
        f"Training: {result.networks[0].examples:,} examples of {settings.data}, {initial}, "
        f"stochastic gradient descent with rate {settings.learning_rate:g}, momentum "
        f"{settings.momentum:g}, batches of {settings.batch_size}, {settings.epochs} epochs, no "
        "weight decay. The paper's own training is not known to us; this one was chosen because "
        "it gives the published ratios."
    )


def verdict(result: FigureResult) -> str:
    counts = result.summary
    better = f"{counts['better_than_guessing']} of {counts['networks']}"
    end = f"Certificates better than guessing: {better}."
    if not counts["published"]:
        return end
    return (
        f"KL ratios within 15 % of the published: {counts['ratios_within_15_percent']} of "
        f"{counts['published']}. Certificates at most 0.75 of the published rescaled bound: "
        f"{counts['bounds_at_most_three_quarters_of_published']} of {counts['published']}. {end}"
    )


def _columns_table(result: FigureResult, level: str) -> Table:
    def said(column: Column) -> str:
        bounds = f"{shown_up(column.mcallester)} / {shown_up(column.kl_inverse)}"
        return f"{column.kl_nats + column.charge_nats:,.0f} ({bounds})"

    columns = zip(*(entry.columns[level] for entry in result.networks), strict=True)
    rows = tuple((same[0].name, *map(said, same)) for same in columns)
    return Table((f"noise {level}", *(entry.name for entry in result.networks)), rows)


def _figures(entries: tuple[NetworkResult, ...]) -> tuple[Figure, Figure]:
    """Bounds and KL ratios, ours and the published ones."""
    bounds = {
        "ours, same setting": [entry.paper.bound for entry in entries],
        "ours, rescaled": [entry.paper.rescaled for entry in entries],
        "our certificate": [entry.ours.risk_upper for entry in entries],
    }
    ratios = {"ours": [entry.paper.kl_ratio for entry in entries]}
    published = [entry.published for entry in entries if entry.published is not None]
    if len(published) == len(entries):
        bounds["published"] = [shown.bound for shown in published]
        bounds["published, rescaled"] = [shown.rescaled for shown in published]
        ratios["published"] = [shown.kl_ratio for shown in published]
    names = [entry.name for entry in entries]
    title, x_label = "Bounds on the error", "bound (logarithmic)"
    level = ("above 1 a bound says nothing", 1.0)
    return (
        Figure(bars(names, bounds, title=title, x_label=x_label, log=True, level=level)),
        Figure(bars(names, ratios, title="Rescaling", x_label="KL before / after rescaling")),
    )


def nearest(results: tuple[ImageResult, ...]) -> ImageResult:
    """The network whose squares come nearest to those that the paper's numbers imply."""
    _, squares = inferred_weights()
    return min(results, key=lambda result: abs(math.log(result.weights_squared / squares)))


def image_tables(results: tuple[ImageResult, ...]) -> list[Table]:
    """The right panel beside the published one, then what every column says."""
    panels = tuple(result for result in results if result.points)
    tables = [_panel(nearest(panels)), _by_squares(panels)] if panels else []
    return tables + [_accounts(result) for result in results if result.columns]


def _panel(result: ImageResult) -> Table:
    tested = "" if result.test_error is None else f", {1 - result.test_error:.1%} on test data"
    weights, squares = inferred_weights()
    caption = (
        f"{result.settings.architecture} on {result.settings.data}, {result.weights:,} weights "
        f"whose squares add up to {result.weights_squared:,.0f}, "
        f"{1 - result.train_error:.1%} right on its training examples{tested}. The paper's network "
        "(86 % on test data) is not described; its printed bounds and ratios suggest "
        f"{weights / 1e6:.1f} million weights whose squares add up to about {squares:,.0f}. That "
        "is an inference. All bounds are vacuous, ours and the published ones."
    )
    headings = (
        "prior scale", "noise", "KL ratio", "published", "bound → rescaled", "published", "risk",
    )  # fmt: skip
    rows = tuple(
        (
            f"{p.prior_scale:g}",
            f"{p.posterior_scale:g}",
            f"{p.kl_ratio:.2f}",
            f"{p.published_kl_ratio:.2f}",
            f"{shown_up(p.bound, 2)} → {shown_up(p.rescaled, 2)}",
            f"{p.published_bound:.2f} → {p.published_rescaled:.2f}",
            f"{p.empirical_risk:.2f}",
        )
        for p in result.points
    )
    return Table(headings, rows, caption, numeric=(True,) * len(headings))


def _by_squares(results: tuple[ImageResult, ...]) -> Table:
    """The six ratios against the squares of the weights: these decide them."""
    pairs = [f"{p.prior_scale:g}, {p.posterior_scale:g}" for p in CNNS]
    ordered = sorted(results, key=lambda result: result.weights_squared)
    known: list[tuple[str, float, Sequence[CnnPoint | PublishedCnn]]] = [
        (f"{r.settings.training.learning_rate:g}", r.weights_squared, r.points) for r in ordered
    ]
    known.append(("published", inferred_weights()[1], CNNS))
    rows = [
        {"learning rate": rate, "squares": f"{squares:,.0f}"}
        | {pair: f"{p.kl_ratio:.2f}" for pair, p in zip(pairs, points, strict=True)}
        for rate, squares, points in known
    ]
    caption = "KL ratio of each pair (prior scale, noise) against the squares of the weights."
    return Table.of(rows, caption, words=())


def _accounts(result: ImageResult) -> Table:
    def said(column: Column) -> str:
        return f"{column.kl_nats + column.charge_nats:,.0f} ({shown_up(column.kl_inverse)})"

    columns = zip(*result.columns.values(), strict=True)
    risks = ", ".join(f"{level}: {risk:.3f}" for level, risk in result.risks.items())
    return Table(
        (result.settings.architecture, *(f"noise {level}" for level in result.columns)),
        tuple((same[0].name, *map(said, same)) for same in columns),
        "Complexity in nats, charge included, and the kl-inverse bound, each with confidence "
        f"{result.settings.confidence:g} by itself. Risk of the randomized network at {risks}.",
    )
