"""The memorization theorem for people: tables, and a page with two pictures."""

from __future__ import annotations

from nonvacuous.bounds.capacity import memorization_sizes
from nonvacuous.memorization import what_it_does_not_say
from nonvacuous.papers.zhang.theorem import TheoremResult
from nonvacuous.report.plots import Series, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash
from nonvacuous.studies.memorization import picture_of_times

PAPER = (
    "Zhang, Bengio, Hardt, Recht, Vinyals: Understanding deep learning requires rethinking "
    "generalization (ICLR 2017), Theorem 1, Lemma 1 and Corollary 1"
)


def page(result: TheoremResult, command: str) -> StudyPage:
    claims, settings = result.claims(), result.settings
    held = sum(claim.holds for claim in claims)
    largest = max(result.depths, key=lambda entry: entry.points)
    sizes = memorization_sizes(examples=largest.points, inputs=largest.dimensions)
    shallow = [entry for entry in result.depths if entry.depth == settings.depths[0]]
    times = [float(entry.points) for entry in shallow], [entry.seconds for entry in shallow]
    rows = tuple((c.name, c.statement, c.found, "holds" if c.holds else "fails") for c in claims)
    stated = Table(("claim", "statement", "found", "verdict"), rows, numeric=(False,) * 4)
    return StudyPage(
        title="zhang-theorem-1",
        question="Do 2n + d weights memorize any labels?",
        lead=(
            f"{'Yes' if held == len(claims) else 'Not shown'}: {held} of {len(claims)} claims hold "
            f"for up to {largest.points:,} points of {settings.data} with random labels, in exact "
            "arithmetic."
        ),
        badges=(settings.data, "random labels", "exact certificates"),
        sections=(
            Section.of("What was claimed, and what was found?", stated),
            Section.of(
                "At which depth?",
                "The same points and labels with more and more hidden layers. Exact arithmetic "
                "does not care; float64 does: in one wide layer steep slopes cancel over long "
                "distances, in a deep network each layer stands still after its own block.",
                Figure(_errors(result)),
                _depths(result),
            ),
            Section.of("How long does it take?", picture_of_times(*times)),
            Section.of(
                "Does it generalize?",
                "The same construction with the true labels: everything right in training, little "
                "on test points. Memorizing explains nothing about generalization.",
                _sizes(result),
            ),
            Section("What does this not say?", what_it_does_not_say(sizes)),
        ),
        footer=(command, PAPER, f"seed {settings.seed}"),
    )


def _depths(result: TheoremResult) -> Table:
    rows = (
        {
            "n": f"{entry.points:,}",
            "depth": f"{entry.depth:,}",
            "width": f"{entry.width:,}",
            "weights": f"{entry.parameters:,}",
            "2n + d": f"{entry.theorem_parameters:,}",
            "mismatches": f"{entry.mismatches}",
            "float64 error": f"{entry.forward_error:.1e}",
            "wrong": or_dash(entry.forward_wrong, ","),
        }
        for entry in result.depths
    )
    caption = (
        "mismatches: in exact rational arithmetic, random labels. float64 error: largest, every "
        "unit evaluated; wrong: labels that come out wrong there."
    )
    return Table.of(rows, caption, words=())


def _sizes(result: TheoremResult) -> Table:
    rows = (
        {
            "n": f"{entry.points:,}",
            "training labels right": f"{1 - entry.true_train_wrong / entry.points:.1%}",
            "test labels right": or_dash(entry.test_share("true"), ".1%"),
            "test, random labels memorized": or_dash(entry.test_share("random"), ".1%"),
        }
        for entry in result.sizes
    )
    return Table.of(rows, words=())


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


def tables(result: TheoremResult) -> tuple[Table]:
    """What a terminal shows: every depth, then the true labels and the claims in words."""
    whole = _depths(result)
    headings, *rows = ((*row[:4], *row[5:]) for row in (whole.headings, *whole.rows))
    words = ["mismatches: in exact arithmetic. wrong: labels in float64."]
    words += [line for size in result.sizes for line in size.lines()]
    words += [
        f"{claim.name} {'holds' if claim.holds else 'FAILS'}: {claim.found}"
        for claim in result.claims()
    ]
    return (Table(headings, tuple(rows), "\n".join(words), numeric=(True,) * 7),)
