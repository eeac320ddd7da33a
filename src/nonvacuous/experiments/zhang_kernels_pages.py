"""The table and the page of the kernel reproduction."""

from __future__ import annotations

from collections.abc import Sequence

from nonvacuous.experiments.interpolation_pages import percent
from nonvacuous.experiments.zhang_kernels import PAPER, KernelsResult
from nonvacuous.interpolation.bad import Judged
from nonvacuous.report.study import Figure, Section, StudyPage, Table


def cases_table(result: KernelsResult) -> Table:
    """Errors and norms of all cases in one table."""
    rows = []
    for case, study in result.studies:
        shown = "-" if case.published is None else f"{case.published:g} %"
        for number, entry in enumerate(study.labelings):
            rows.append(
                (
                    case.name if not number else "",
                    entry.labels,
                    percent(entry.test_errors, study.test_examples),
                    shown if not number else "",
                    f"{entry.norm:,.1f}",
                    f"{entry.train_errors:,}",
                    f"{study.residual:.0e}" if not number else "",
                )
            )
    headings = ("case", "labels", "test error", "published", "norm", "training errors", "residual")
    return Table(
        headings,
        tuple(rows),
        f"Published: {PAPER}.",
        numeric=(False, False, True, True, True, True, True),
    )


def bad_table(bad: Sequence[Judged]) -> Table:
    """Functions with no training error, and what they are worth."""
    return Table(
        ("function", "norm", "training errors", "test error", "residual"),
        tuple(
            (
                entry.name,
                f"{entry.norm:,.1f}",
                f"{entry.train_errors} of {entry.train_examples:,}",
                percent(entry.test_errors, entry.test_examples),
                f"{entry.residual:.0e}",
            )
            for entry in bad
        ),
        numeric=(False, True, True, True, True),
    )


def bad_figures(bad: Sequence[Judged]) -> tuple[Figure, ...]:
    """Norms and errors of the functions that fit perfectly."""
    from nonvacuous.report import plots

    names = [entry.name for entry in bad]
    errors = [100 * entry.test_errors / entry.test_examples for entry in bad]
    return (
        Figure(
            plots.bars(
                names, {"test error": errors}, title="Errors on new examples", x_label="per cent"
            ),
            "All of these functions make no error on the training examples.",
        ),
        Figure(
            plots.bars(
                names,
                {"norm": [entry.norm for entry in bad]},
                title="Norms of functions that fit",
                x_label="norm (logarithmic)",
                log=True,
            ),
            "Within one kernel, the functions that know nothing have the larger norm.",
        ),
    )


def verdict(result: KernelsResult) -> str:
    """Does the smaller norm err less? Compared between features of the same data."""
    compared = []
    always = True
    for number, (case, study) in enumerate(result.studies):
        for other_case, other in result.studies[number + 1 :]:
            one, two = study.labelings[0], other.labelings[0]
            if case.data != other_case.data or one.test_errors is None or two.test_errors is None:
                continue
            small, large = ((case, study), (other_case, other))
            if one.norm > two.norm:
                small, large = large, small
            first, second = small[1].labelings[0], large[1].labelings[0]
            assert first.test_errors is not None and second.test_errors is not None
            wins = first.test_errors < second.test_errors
            always = always and wins
            compared.append(
                f"{small[0].name} has the smaller norm than {large[0].name} ({first.norm:,.1f} "
                f"against {second.norm:,.1f}) and errs {'less' if wins else 'no less'} "
                f"({percent(first.test_errors, small[1].test_examples)} against "
                f"{percent(second.test_errors, large[1].test_examples)})"
            )
    if not compared:
        return "One set of features for each data set: norms of different features not compared."
    end = (
        "Here the smaller norm errs less throughout"
        if always
        else "The smaller norm does not win: across features it does not say which errs less"
    )
    return "; ".join(compared) + f". {end}."


def page(result: KernelsResult, *, command: str) -> StudyPage:
    """The whole page."""
    from nonvacuous.report import plots

    known = [(case, s) for case, s in result.studies if s.labelings[0].test_errors is not None]
    names = [case.name for case, _ in known]
    ours = [100 * (s.labelings[0].test_errors or 0) / s.test_examples for _, s in known]
    groups = {"ours": ours}
    if all(case.published is not None for case, _ in known):
        groups["published"] = [case.published or 0.0 for case, _ in known]
    norms = {
        label: [next(e.norm for e in s.labelings if e.labels == label) for _, s in known]
        for label in result.settings.labels
    }
    return StudyPage(
        title="Exact kernel interpolation",
        question="How well do functions do that fit every training example exactly?",
        lead=_lead(result),
        badges=("no training error", "no ridge", f"seed {result.settings.seed}"),
        sections=(
            Section(
                "Errors beside the published ones",
                (verdict(result),),
                (
                    Figure(
                        plots.bars(
                            names, groups, title="Test error, true labels", x_label="per cent"
                        ),
                        "No case makes a training error; what a kernel gets to see differs.",
                    ),
                    Figure(
                        plots.bars(
                            names,
                            norms,
                            title="Norm for each labeling",
                            x_label="norm (logarithmic)",
                            log=True,
                        ),
                        "Random labels take a larger norm under the same kernel.",
                    ),
                ),
                (cases_table(result),),
            ),
            Section(
                "Functions that fit perfectly and know nothing",
                (
                    "The same examples, the same kernel, no training error; only which of the "
                    "infinitely many perfect fits is taken differs.",
                ),
                bad_figures(result.bad),
                (bad_table(result.bad),),
            ),
        ),
        footer=(command, f"seed {result.settings.seed}"),
    )


def _lead(result: KernelsResult) -> str:
    told = [
        f"{percent(study.labelings[0].test_errors, study.test_examples)} on {case.name}"
        for case, study in result.studies
    ]
    return f"Fitted exactly, with no ridge, kernels err on {', '.join(told)}."
