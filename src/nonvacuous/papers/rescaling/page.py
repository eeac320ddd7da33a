"""The rescaling figure for people: tables in Markdown, a picture in SVG."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.papers.rescaling.images import ImageResult, inferred_weights
from nonvacuous.papers.rescaling.results import FigureResult, NetworkResult
from nonvacuous.papers.rescaling.settings import CNNS, RESCALING_PAPER
from nonvacuous.report.study import Table
from nonvacuous.study.study import markdown

_MISSING = "–"


def page(_result: FigureResult, _command: str) -> None:
    """There is none: the figure stands beside its table."""


def tables(result: FigureResult) -> tuple[Table, ...]:
    return (short_table(result), *image_tables(result.images))


def files(result: FigureResult, _page: None) -> dict[str, str]:
    return {"table.md": table(result), "figure.svg": figure(result)}


def short_table(result: FigureResult) -> Table:
    rows = []
    for entry in result.networks:
        shown = entry.published
        rows.append(
            (
                entry.name,
                f"{entry.paper.kl_ratio:.2f}",
                "-" if shown is None else f"{shown.kl_ratio:.2f}",
                f"{shown_up(entry.paper.bound, 2)} > {shown_up(entry.paper.rescaled, 2)}",
                "-" if shown is None else f"{shown.bound:.2f} > {shown.rescaled:.2f}",
                shown_up(entry.ours.risk_upper),
            )
        )
    headings = ("network", "KL ratio", "published", "bounds", "published", "certificate")
    caption = (
        "bounds: the paper's formula, before and after rescaling. certificate: the same weights, "
        f"our recipe, everything paid for.\n{verdict(result)}"
    )
    return Table(headings, tuple(rows), caption, numeric=(False, True, True, True, True, True))


def table(result: FigureResult) -> str:
    """Markdown: the figure's numbers beside ours, what was done, and every column per network."""
    settings = result.settings
    scale = f"noise {settings.paper_posterior_scale:g}, prior scale {settings.paper_prior_scale:g}"
    head = (
        "network", "weights", "KL ratio", "published", "off by", "bound → rescaled", "published",
        "certificate", "of published", "without the shift", "held-out twin", "test error",
    )  # fmt: skip
    lines = [
        "# Rescaling, figure 1",
        "",
        f"Published: {RESCALING_PAPER}, read off the figure (bounds to 0.02, ratios to 0.05).",
        "",
        _row(head),
        _row(["---"] + ["---:"] * (len(head) - 1)),
        *(_row(_cells(entry)) for entry in result.networks),
        "",
        f"*KL ratio* and *bound → rescaled*: the paper's setting ({scale}, risk + √(KL / 2n), "
        "neither clipped at 1 nor with a stated confidence). *certificate*: the same "
        "weights, a prior at their initial values, every search and the sampling paid for; the "
        f"confidence {settings.confidence:g} is shared among {settings.attempts:,} certificates, "
        "so that those of the figure hold together and the choice of the settings is covered. "
        "*without the shift*: the same without forgetting a common shift of the scores.",
        "",
        _training(result),
        "",
        verdict(result),
        "",
        "## Who earns the improvement?",
        "",
        "The same noise around the same weights, accounted for in different ways: complexity in "
        "nats (charge included), then the McAllester bound and the kl-inverse, each with "
        f"confidence {settings.confidence:g} by itself. Columns with different priors may be "
        "compared but not minimized over.",
    ]
    for level in result.networks[0].columns:
        lines += ["", f"### Noise {level}", "", *_columns_table(result, level)]
    for number, shown in enumerate(image_tables(result.images)):
        lines += ["", *(["## Networks on images", ""] if not number else []), markdown(shown)]
    return "\n".join(lines) + "\n"


def _cells(entry: NetworkResult) -> list[str]:
    shown, ours, paper = entry.published, entry.ours, entry.paper
    vacuous = " (vacuous)" if ours.is_vacuous else ""
    status = "" if ours.status == "valid" else f" ({ours.status})"
    return [
        entry.name,
        f"{entry.weights:,}",
        f"{paper.kl_ratio:.2f}",
        _MISSING if shown is None else f"{shown.kl_ratio:.2f}",
        _MISSING if entry.ratio_error is None else f"{entry.ratio_error:+.0%}",
        f"{shown_up(paper.bound, 2)} → {shown_up(paper.rescaled, 2)}",
        _MISSING if shown is None else f"{shown.bound:.2f} → {shown.rescaled:.2f}",
        f"{shown_up(ours.risk_upper)}{vacuous}{status}",
        _MISSING if entry.bound_fraction is None else f"{entry.bound_fraction:.0%}",
        shown_up(ours.tensor_risk_upper),
        _MISSING if ours.held_out_twin is None else shown_up(ours.held_out_twin),
        _MISSING if ours.test_error is None else f"{ours.test_error:.4f}",
    ]


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


def _columns_table(result: FigureResult, level: str) -> list[str]:
    lines = [_row(["", *(entry.name for entry in result.networks)])]
    lines.append(_row(["---"] + ["---:"] * len(result.networks)))
    for same in zip(*(entry.columns[level] for entry in result.networks), strict=True):
        cells = (
            f"{column.kl_nats + column.charge_nats:,.0f} "
            f"({shown_up(column.mcallester)} / {shown_up(column.kl_inverse)})"
            for column in same
        )
        lines.append(_row([same[0].name, *cells]))
    return lines


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


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
    headings = (
        "learning rate",
        "squares",
        *(f"{p.prior_scale:g}, {p.posterior_scale:g}" for p in CNNS),
    )
    rows = tuple(
        (
            f"{result.settings.training.learning_rate:g}",
            f"{result.weights_squared:,.0f}",
            *(f"{point.kl_ratio:.2f}" for point in result.points),
        )
        for result in sorted(results, key=lambda result: result.weights_squared)
    )
    published = ("published", f"{inferred_weights()[1]:,.0f}", *(f"{p.kl_ratio:.2f}" for p in CNNS))
    return Table(
        headings,
        (*rows, published),
        "KL ratio of each pair (prior scale, noise) against the squares of the weights.",
        numeric=(True,) * len(headings),
    )


def _accounts(result: ImageResult) -> Table:
    rows = []
    for same in zip(*result.columns.values(), strict=True):
        cells = (f"{c.kl_nats + c.charge_nats:,.0f} ({shown_up(c.kl_inverse)})" for c in same)
        rows.append((same[0].name, *cells))
    risks = ", ".join(f"{level}: {risk:.3f}" for level, risk in result.risks.items())
    return Table(
        (result.settings.architecture, *(f"noise {level}" for level in result.columns)),
        tuple(rows),
        "Complexity in nats, charge included, and the kl-inverse bound, each with confidence "
        f"{result.settings.confidence:g} by itself. Risk of the randomized network at {risks}.",
        numeric=(False,) + (True,) * len(result.columns),
    )


def figure(result: FigureResult) -> str:
    """Bounds (published and ours) and KL ratios, one column per network, as SVG text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    entries = result.networks
    # Text stays text, and the same numbers give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rescaling figure"}):
        drawing = Figure(figsize=(max(7.5, 3.4 + 0.95 * len(entries)), 8.4), layout="constrained")
        FigureCanvasSVG(drawing)
        bounds, ratios = drawing.subplots(2, 1, height_ratios=(3, 2), sharex=True)
        _draw_bounds(bounds, entries)
        _draw_ratios(ratios, entries)
        names = [entry.name for entry in entries]
        ratios.set_xticks(range(len(names)), names, rotation=35, ha="right")
        stream = io.StringIO()
        drawing.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _draw_bounds(axes: Any, entries: tuple[NetworkResult, ...]) -> None:
    """Circles before rescaling, diamonds after, squares for certificates; hollow: published."""
    shift = 0.14
    series: list[tuple[float, str, str, str, Callable[[Any], float | None]]] = [
        (-shift, "o", "none", "published", lambda e: getattr(e.published, "bound", None)),
        (
            -shift,
            "D",
            "none",
            "published, rescaled",
            lambda e: e.published and e.published.rescaled,
        ),
        (shift, "o", "#0b66a8", "ours, same setting", lambda e: e.paper.bound),
        (shift, "D", "#0b66a8", "ours, rescaled", lambda e: e.paper.rescaled),
        (0.0, "s", "#b4500a", "our certificate", lambda e: e.ours.risk_upper),
    ]
    for offset, marker, face, label, value in series:
        points = [(column + offset, value(entry)) for column, entry in enumerate(entries)]
        shown = [(x, y) for x, y in points if y is not None]
        if shown:
            axes.plot(
                *zip(*shown, strict=True), marker, markerfacecolor=face, markersize=8,
                markeredgecolor="#555555" if face == "none" else face, markeredgewidth=1.6,
                label=label,
            )  # fmt: skip

    axes.axhline(1.0, color="#b00020", linestyle="--", linewidth=1)
    axes.text(
        0.99, 1.03, "above 1 a bound says nothing", color="#b00020", ha="right", va="bottom",
        fontsize=9, transform=axes.get_yaxis_transform(), in_layout=False,
    )  # fmt: skip
    axes.set_xlim(-0.6, len(entries) - 0.4)
    axes.set_yscale("log")
    ticks = (0.25, 0.5, 1, 2, 4, 8)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0.2, 8)
    axes.set_ylabel("bound on the error")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=2, fontsize=9, frameon=False, loc="upper right")


def _draw_ratios(axes: Any, entries: tuple[NetworkResult, ...]) -> None:
    """Our KL ratio beside the published one with a band of 15 %."""
    ours = [entry.paper.kl_ratio for entry in entries]
    shown = [
        (column - 0.1, entry.published.kl_ratio)
        for column, entry in enumerate(entries)
        if entry.published is not None
    ]
    if shown:
        x, y = zip(*shown, strict=True)
        axes.errorbar(
            x, y, yerr=[0.15 * value for value in y], fmt="D", markerfacecolor="none",
            color="#555555", markersize=7, capsize=4, label="published, ± 15 %",
        )  # fmt: skip
    columns = [column + 0.1 for column in range(len(entries))]
    axes.plot(columns, ours, "D", color="#0b66a8", markersize=7, label="ours")
    axes.set_ylabel("KL before / after rescaling")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=2, fontsize=9, frameon=False, loc="lower right")
