"""The page of the linear reproduction: one picture for each thing that is claimed."""

from __future__ import annotations

from nonvacuous.experiments.zhang_kernels_pages import bad_figures, bad_table
from nonvacuous.experiments.zhang_linear import LinearResult
from nonvacuous.report.study import Figure, Section, StudyPage, Table

#: What is drawn for a number too small for a logarithmic axis.
_FLOOR = 1e-18


def fits_table(result: LinearResult) -> Table:
    """What each method found."""
    return Table(
        ("found by", "residual", "norm", "outside the span", "from where theory says",
         "from the minimum norm", "test error"),
        tuple(
            (
                fit.name,
                f"{fit.residual:.0e}",
                f"{fit.norm:.3f}",
                f"{fit.outside:.1e}",
                "-" if fit.expected is None else f"{fit.expected:.1e}",
                f"{fit.to_minimum:.1e}",
                f"{fit.test_error:.3f}",
            )
            for fit in result.fits
        ),
        f"{result.settings.examples} examples, {result.settings.weights} weights; distances are "
        "relative, the test error is a mean square",
        numeric=(False, True, True, True, True, True, True),
    )  # fmt: skip


def lead(result: LinearResult) -> str:
    """The answer in one sentence."""
    near = next(fit for fit in result.fits if fit.name == "SGD from zero")
    adam = next(fit for fit in result.fits if fit.name == "Adam from zero")
    return (
        f"SGD from zero finds the perfect fit of smallest norm (relative distance "
        f"{near.to_minimum:.0e}); Adam fits as perfectly and ends "
        f"{100 * adam.to_minimum:.0f} % away."
    )


def page(result: LinearResult, *, command: str) -> StudyPage:
    """The whole page."""
    from nonvacuous.report import plots

    names = [fit.name for fit in result.fits]
    sizes = [float(fit.name) for fit in result.family]
    trained = [max(fit.residual, _FLOOR) for fit in result.family]
    tested = [fit.test_error for fit in result.family]
    differences = result.hessian_differences
    return StudyPage(
        title="More weights than examples",
        question="Which of infinitely many perfect fits does an optimizer find?",
        lead=lead(result),
        badges=(
            f"{result.settings.examples} examples",
            f"{result.settings.weights} weights",
            f"seed {result.settings.seed}",
        ),
        sections=(
            Section(
                "Who stays in the span of the examples",
                (
                    "A step of SGD is a multiple of an example, so from zero it never leaves the "
                    "span of the examples, where only one perfect fit lies. From elsewhere it "
                    "keeps what it started with outside. Adam and AdaGrad rescale every coordinate "
                    "and leave the span at once.",
                ),
                (
                    Figure(
                        plots.bars(
                            names,
                            {"outside": [max(fit.outside, _FLOOR) for fit in result.fits]},
                            title="Part of the weights outside the span",
                            x_label="share of the norm (logarithmic)",
                            log=True,
                        ),
                        "Rounding errors for the first two; real distances for the others.",
                    ),
                    Figure(
                        plots.bars(
                            names,
                            {"test error": [fit.test_error for fit in result.fits]},
                            title="Error on new examples",
                            x_label="mean squared error",
                        ),
                        "All five fit the training examples to rounding error.",
                    ),
                ),
                (fits_table(result),),
            ),
            Section(
                "A family of perfect fits",
                (
                    "Add more and more of one direction in which no training example has a part: "
                    "the training residual stays at rounding error, the test error does not.",
                ),
                (
                    Figure(
                        plots.lines(
                            [plots.Series("test error", sizes, tested)],
                            title="Test error along the family",
                            x_label="how much of the direction",
                            y_label="mean squared error",
                            lowest=0.0,
                        ),
                        "Every point of this curve is a perfect fit.",
                    ),
                    Figure(
                        plots.lines(
                            [plots.Series("training residual", sizes, trained)],
                            title="Training residual along the family",
                            x_label="how much of the direction",
                            y_label="max |X w − y|",
                            log_y=True,
                            lowest=1e-17,
                            highest=1.0,
                        ),
                        "Rounding error throughout.",
                    ),
                ),
            ),
            Section(
                "The same Hessian at all of them",
                (
                    "The Hessian of the training loss depends on the weights through the training "
                    "predictions only, so that it cannot tell one perfect fit from another: no "
                    "measure of flatness of the training loss can. The control fits nothing.",
                ),
                (
                    Figure(
                        plots.bars(
                            list(differences),
                            {"difference": [max(v, _FLOOR) for v in differences.values()]},
                            title="Distance to the Hessian at the minimum norm",
                            x_label="largest difference of an entry (logarithmic)",
                            log=True,
                        ),
                        f"By automatic differentiation; zero is drawn at {_FLOOR:g}.",
                    ),
                ),
            ),
            Section(
                "Interpolants that fit perfectly and fail",
                ("Kernel functions through the same examples, chosen badly on purpose.",),
                bad_figures(result.bad),
                (bad_table(result.bad),),
            ),
        ),
        footer=(command, f"seed {result.settings.seed}"),
    )
