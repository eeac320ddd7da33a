"""The memorization theorem for people: tables, and a page with two pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nonvacuous.bounds.memorization_capacity import memorization_sizes
from nonvacuous.memorization import what_it_does_not_say
from nonvacuous.report.plots import Series, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table

if TYPE_CHECKING:
    from nonvacuous.papers.zhang.theorem import TheoremResult

PAPER = (
    "Zhang, Bengio, Hardt, Recht, Vinyals: Understanding deep learning requires rethinking "
    "generalization (ICLR 2017), Theorem 1, Lemma 1 and Corollary 1"
)
_DEPTHS = ("n", "depth", "width", "weights", "2n + d", "mismatches", "float64 error", "wrong")
_SIZES = ("n", "training labels right", "test labels right", "test, random labels memorized")


def table_text(result: TheoremResult) -> str:
    """Markdown: the claims, every depth, and the true labels."""
    claims = [
        f"- {claim.name}: {claim.statement}. **{'Holds' if claim.holds else 'Fails'}**: "
        f"{claim.found}."
        for claim in result.claims()
    ]
    return "\n".join(
        [
            "# 2n + d weights memorize any labels",
            "",
            f"{PAPER}. Data: {result.settings.data}, seed {result.settings.seed}.",
            "",
            *claims,
            "",
            *_markdown(_DEPTHS, _depth_rows(result)),
            "",
            "*mismatches*: in exact rational arithmetic, random labels. *float64 error*: largest, "
            "every unit evaluated; *wrong*: labels that come out wrong there.",
            "",
            *_markdown(_SIZES, _size_rows(result)),
            "",
        ]
    )


def page(result: TheoremResult, *, command: str) -> StudyPage:
    """The same as a page, with two pictures."""
    claims = result.claims()
    held = sum(claim.holds for claim in claims)
    largest = max(result.depths, key=lambda entry: entry.points)
    sizes = memorization_sizes(examples=largest.points, inputs=largest.dimensions)
    return StudyPage(
        title="zhang-theorem-1",
        question="Do 2n + d weights memorize any labels?",
        lead=(
            f"{'Yes' if held == len(claims) else 'Not shown'}: {held} of {len(claims)} claims hold "
            f"for up to {largest.points:,} points of {result.settings.data} with random labels, in "
            "exact arithmetic."
        ),
        badges=(result.settings.data, "random labels", "exact certificates"),
        sections=(
            Section(
                "What was claimed, and what was found?",
                tables=(
                    Table(
                        ("claim", "statement", "found", "verdict"),
                        tuple(
                            (c.name, c.statement, c.found, "holds" if c.holds else "fails")
                            for c in claims
                        ),
                        numeric=(False,) * 4,
                    ),
                ),
            ),
            Section(
                "At which depth?",
                paragraphs=(
                    "The same points and labels with more and more hidden layers. Exact arithmetic "
                    "does not care; float64 does: in one wide layer steep slopes cancel over long "
                    "distances, in a deep network each layer stands still after its own block.",
                ),
                figures=(Figure(_errors(result)),),
                tables=(Table(_DEPTHS, _depth_rows(result), numeric=(True,) * 8),),
            ),
            Section("How long does it take?", figures=(Figure(_times(result)),)),
            Section(
                "Does it generalize?",
                paragraphs=(
                    "The same construction with the true labels: everything right in training, "
                    "little on test points. Memorizing explains nothing about generalization.",
                ),
                tables=(Table(_SIZES, _size_rows(result), numeric=(True,) * 4),),
            ),
            Section("What does this not say?", paragraphs=what_it_does_not_say(sizes)),
        ),
        footer=(command, PAPER, f"seed {result.settings.seed}"),
    )


def _depth_rows(result: TheoremResult) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            f"{entry.points:,}",
            f"{entry.depth:,}",
            f"{entry.width:,}",
            f"{entry.parameters:,}",
            f"{entry.theorem_parameters:,}",
            f"{entry.mismatches}",
            f"{entry.forward_error:.1e}",
            f"{entry.forward_wrong:,}" if entry.forward_wrong is not None else "-",
        )
        for entry in result.depths
    )


def _size_rows(result: TheoremResult) -> tuple[tuple[str, ...], ...]:
    rows = []
    for entry in result.sizes:
        tested = max(entry.test_examples, 1)
        rows.append(
            (
                f"{entry.points:,}",
                f"{1 - entry.true_train_wrong / entry.points:.1%}",
                f"{entry.true_test_right / tested:.1%}" if entry.test_examples else "-",
                f"{entry.random_test_right / tested:.1%}" if entry.test_examples else "-",
            )
        )
    return tuple(rows)


def _errors(result: TheoremResult) -> str:
    series = []
    for size in dict.fromkeys(entry.points for entry in result.depths):
        entries = [entry for entry in result.depths if entry.points == size]
        x = [float(entry.depth) for entry in entries]
        # A logarithmic scale has no place for zero.
        y = [max(entry.forward_error, 1e-17) for entry in entries]
        series.append(Series(f"n = {size:,}", x, y))
    return lines(
        series,
        title="Largest error of the float64 network",
        x_label="depth",
        y_label="error",
        log_x=True,
        log_y=True,
    )


def _times(result: TheoremResult) -> str:
    shallow = [entry for entry in result.depths if entry.depth == result.settings.depths[0]]
    x = [float(entry.points) for entry in shallow]
    y = [entry.seconds for entry in shallow]
    straight = [y[-1] * size / x[-1] for size in x]
    return lines(
        [Series("measured", x, y), Series("proportional to n", x, straight)],
        title="Time for construction and certificate",
        x_label="points",
        y_label="seconds",
        lowest=0.0,
    )


def _markdown(headings: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> list[str]:
    lines_ = [f"| {' | '.join(headings)} |", "|" + "---:|" * len(headings)]
    return [*lines_, *(f"| {' | '.join(row)} |" for row in rows)]


def short_table(result: TheoremResult) -> Table:
    """What a terminal shows: every depth, then the true labels and the claims in words."""
    rows = tuple((*row[:4], *row[5:]) for row in _depth_rows(result))
    words = ["mismatches: in exact arithmetic. wrong: labels in float64."]
    words += [size.told() for size in result.sizes]
    words += [
        f"{claim.name} {'holds' if claim.holds else 'FAILS'}: {claim.found}"
        for claim in result.claims()
    ]
    return Table((*_DEPTHS[:4], *_DEPTHS[5:]), rows, "\n".join(words), numeric=(True,) * 7)
