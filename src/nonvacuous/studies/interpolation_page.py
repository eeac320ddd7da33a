"""The page of an interpolation: what fits perfectly, and what that says about new examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from nonvacuous.interpolation.plan import describe_bytes
from nonvacuous.progress import describe_seconds
from nonvacuous.report import plots
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.studies.interpolation import InterpolationStudy
from nonvacuous.study.study import Single


def percent(errors: int | None, examples: int) -> str:
    """A share of errors.

    >>> percent(122, 10_000)
    '1.22 %'
    """
    return "-" if errors is None or not examples else f"{100 * errors / examples:.2f} %"


def labelings_table(study: InterpolationStudy) -> Table:
    rows = (
        {
            "labels": entry.labels,
            "labels changed": f"{entry.changed:,}",
            "norm": f"{entry.norm:,.1f}",
            "training errors": f"{entry.train_errors:,}",
            "test error": percent(entry.test_errors, study.test_examples),
        }
        for entry in study.labelings
    )
    caption = f"{study.examples:,} points of {study.data}, {study.features}, {study.kernel}"
    return Table.of(rows, caption)


def lead(study: InterpolationStudy) -> str:
    if study.residual > 1e-3:
        missed = f"{study.residual:.1e}"
        return f"No interpolant was reached: the function misses its values by up to {missed}."
    first, points = study.labelings[0], f"{study.examples:,} points of {study.data}"
    fits = f"One function of smallest norm passes through all {points}"
    if len(study.labelings) > 1:
        fits = f"All {points} can be fitted under every labeling"
    if first.test_errors is None:
        return f"{fits}, to within {study.residual:.0e}."
    worst = study.labelings[-1]
    errs = f"{percent(first.test_errors, study.test_examples)} with {first.labels} labels"
    if worst is not first:
        errs += f" and {percent(worst.test_errors, study.test_examples)} with {worst.labels} labels"
    return f"{fits}, to within {study.residual:.0e}; on new examples it errs on {errs}."


def _study(result: Single) -> InterpolationStudy:
    return InterpolationStudy(**{k: v for k, v in result.record.items() if k != "folder"})


def write_text(result: Single, console: Console) -> None:
    study = _study(result)
    console.print(lead(study), soft_wrap=True)
    table = labelings_table(study)
    replace(table, caption=f"{table.caption}, seed {study.seed}.").print(console)
    steps = " > ".join(f"{value:.1e}" for value in study.refinements)
    method = f"{study.method} in {study.precision}"
    if study.iterations:
        method += f", {study.iterations:,} iterations of conjugate gradients"
    console.print(f"{method}, residual {steps}; no ridge.", soft_wrap=True)
    for warning in study.warnings:
        console.print(f"Note: {warning}.", soft_wrap=True)


def page(result: Single, command: str) -> StudyPage:
    study = _study(result)
    names = [entry.labels for entry in study.labelings]
    norms = {"norm": [entry.norm for entry in study.labelings]}
    caption = (
        "The norm that fitting each labeling takes. It tells noise from signal within one "
        "kernel; across kernels and features the smaller norm need not err less."
    )
    picture = plots.bars(names, norms, title="Norm of the function", x_label="√tr(aᵀ K a)")
    figures = [Figure(picture, caption)]
    if study.test_examples:
        errors = [100 * (entry.test_errors or 0) / study.test_examples for entry in study.labelings]
        title, x_label = "Errors on new examples", "per cent of test examples (true labels)"
        picture = plots.bars(names, {"test error": errors}, title=title, x_label=x_label)
        figures.append(Figure(picture, "Training errors are zero in every row."))
    return StudyPage(
        title="Interpolation",
        question="Can every labeling be fitted exactly, and what does a perfect fit say?",
        lead=lead(study),
        badges=(
            f"{study.examples:,} points",
            study.kernel,
            f"residual {study.residual:.0e}",
            "no ridge",
        ),
        sections=(
            Section.of(
                "Same points, same kernel, other labels",
                "Each row is the function of smallest norm through all training points. Nothing "
                "but the labels differs between rows.",
                *figures,
                labelings_table(study),
            ),
            Section.of("How exact it is", *_exactness(study), *_refinement(study), _facts(study)),
            Section("Worth knowing", study.warnings or ("Nothing unusual was met.",)),
        ),
        footer=(command, f"seed {study.seed}, device {study.device}"),
    )


def _refinement(study: InterpolationStudy) -> Iterator[Figure]:
    if len(study.refinements) < 3:
        return
    steps = list(range(len(study.refinements)))
    picture = plots.lines(
        [plots.Series("largest residual", steps, list(study.refinements))],
        title="Refinement",
        x_label="steps of refinement",
        y_label="max |K a − y|",
        log_y=True,
    )
    caption = (
        "The factor is in float32; every step solves for what is left, with the kernel computed "
        "again in float64."
    )
    yield Figure(picture, caption)


def _exactness(study: InterpolationStudy) -> Iterator[str]:
    yield (
        f"The largest of all differences between the function and its values is "
        f"{study.residual:.1e}, computed afresh in float64 at the end. There is no ridge: λ = 0."
    )
    if study.smallest_pivot is not None:
        yield (
            f"The smallest pivot is {study.smallest_pivot:.1e} of its diagonal entry: the part of "
            "a point that the points before it do not explain, squared."
        )


def _facts(study: InterpolationStudy) -> Table:
    rows = [
        ("method", study.method),
        ("precision of the factor", study.precision),
        ("residual, step by step", " > ".join(f"{value:.1e}" for value in study.refinements)),
        ("kept in", study.place),
        ("size of the factor", describe_bytes(study.factor_bytes)),
        ("memory at the worst moment (estimate)", describe_bytes(study.peak_memory_bytes)),
        ("time", describe_seconds(study.seconds)),
        ("coordinates of a point", f"{study.coordinates:,}"),
        ("constant coordinates", f"{study.constant_coordinates:,}"),
        ("median squared distance", f"{study.median_squared_distance:.4g}"),
    ]
    if study.iterations:
        rows.append(("iterations of conjugate gradients", f"{study.iterations:,}"))
    return Table(("", ""), tuple(rows), numeric=(False, False))
