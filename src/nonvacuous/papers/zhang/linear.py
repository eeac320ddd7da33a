"""The linear section of Zhang et al.: which of infinitely many perfect fits does SGD find?

Beside it, here and with kernels: functions that fit the first training examples perfectly, good and
bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from nonvacuous.errors import BadInput
from nonvacuous.interpolation import kernels, perfect_fits
from nonvacuous.report import plots
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash
from nonvacuous.studies.interpolate import InterpolateSettings
from nonvacuous.studies.interpolation import chosen_kernel, distinct_examples
from nonvacuous.studies.interpolation_page import percent
from nonvacuous.study.settings import CellRecord, Frozen, StudySettings, at_most
from nonvacuous.study.study import Context, Finished, Study


class Bad(Frozen):
    """Where such functions are shown: with how many examples, and with which kernel."""

    data: str
    examples: int
    test: int
    gamma: str

    def judged(self, at: Context, seed: int) -> BadResult:
        dataset, _ = distinct_examples(at.dataset(self.data))
        if dataset.test is None:
            raise BadInput(f"{dataset.train.name} has no test set, which this comparison needs")
        train, test = at_most(dataset.train, self.examples), at_most(dataset.test, self.test)
        settings = InterpolateSettings.of({"data": self.data, "gamma": self.gamma})
        judged = perfect_fits.compare_interpolants(
            train.inputs,
            train.labels.numpy(),
            test.inputs,
            test.labels.numpy(),
            kernel=chosen_kernel(settings, kernels.median_squared_distance(train.inputs)),
            classes=train.classes,
            seed=seed,
        )
        return BadResult(bad=judged)


class BadSettings(StudySettings):
    """The same as settings, and what --quick takes instead."""

    quick_bad: ClassVar[Mapping[str, Any]] = {
        "bad_data": "digits",
        "bad_examples": 600,
        "bad_test": 200,
        "bad_gamma": "median:2",
    }

    bad_data: str = "mnist"
    """Where functions that fit and fail are shown."""
    bad_examples: int = Field(default=3000, ge=1, description="How many examples they fit.")
    bad_test: int = Field(default=3000, ge=1, description="How many examples they are tested on.")
    bad_gamma: str = Field(default="0.02", description="The width of their kernel.")

    @property
    def bad(self) -> Bad:
        """Those of them that decide one cell."""
        return Bad(**{name: getattr(self, f"bad_{name}") for name in Bad.model_fields})


class BadResult(CellRecord):
    """Functions with no training error, and what they are worth."""

    bad: tuple[perfect_fits.Judged, ...]

    def lines(self) -> tuple[str]:
        return ("functions that fit and fail",)

    def table(self) -> Table:
        return Table.of(
            {
                "function": entry.name,
                "norm": f"{entry.norm:,.1f}",
                "training errors": f"{entry.train_errors} of {entry.train_examples:,}",
                "test error": percent(entry.test_errors, entry.test_examples),
                "residual": f"{entry.residual:.0e}",
            }
            for entry in self.bad
        )

    def section(self, heading: str, words: str) -> Section:
        errors = drawn_bars(
            "test error",
            {entry.name: 100 * entry.test_errors / entry.test_examples for entry in self.bad},
            "All of these functions make no error on the training examples.",
            "Errors on new examples",
            "per cent",
        )
        norms = drawn_bars(
            "norm",
            {entry.name: entry.norm for entry in self.bad},
            "Within one kernel, the functions that know nothing have the larger norm.",
            "Norms of functions that fit",
            "norm (logarithmic)",
            log=True,
        )
        return Section.of(heading, words, errors, norms, self.table())


#: What is drawn for a number too small for a logarithmic axis.
FLOOR = 1e-18


def drawn_bars(
    what: str, bars: Mapping[str, float], caption: str, title: str, x_label: str, log: bool = False
) -> Figure:
    values = [max(value, FLOOR) if log else value for value in bars.values()]
    svg = plots.bars(list(bars), {what: values}, title=title, x_label=x_label, log=log)
    return Figure(svg, caption)


class LinearSettings(BadSettings):
    """One linear problem with more weights than examples."""

    examples: int = Field(default=40, ge=1, description="Training examples.")
    weights: int = Field(default=120, ge=1, description="Weights of the linear model.")
    test: int = Field(default=2000, ge=1, description="Test examples.")
    noise: float = Field(default=0.1, description="Of the labels.")
    epochs: int = Field(default=4000, ge=1, description="Of every optimizer.")
    family_size: float = 10.0
    """How much of a direction that no example sees is added: from 0 to this."""

    @classmethod
    def quick(cls) -> LinearSettings:
        return cls(examples=20, weights=60, **cls.quick_bad)


class LinearCell(Frozen):
    """The linear problem, or the interpolants that fit and fail."""

    key: str
    bad: Bad | None = None
    problem: Mapping[str, float] | None = None
    epochs: int = 0
    family_size: float = 0.0
    seed: int = 0


class FitsResult(CellRecord):
    """Fits, the family of perfect fits, and how far their Hessians are apart.

    hessian_differences   by the name of the fit: the largest difference to the Hessian at the
                          minimum-norm fit; "half way there", which fits nothing, is the control
    """

    fits: tuple[perfect_fits.Fit, ...]
    family: tuple[perfect_fits.Fit, ...]
    hessian_differences: Mapping[str, float]

    def lines(self) -> tuple[str]:
        return ("fits of the linear problem",)


@dataclass(frozen=True)
class LinearResult:
    """What became of the linear problem, and interpolants that fit and fail."""

    settings: LinearSettings
    fitted: FitsResult
    bad: BadResult


CONTROL = "half way there (fits nothing)"


class Linear(Study[LinearSettings, LinearResult]):
    """Fit a linear model with more weights than examples by several methods, and compare.

    Takes seconds; without --quick it needs MNIST for the interpolants that fit and fail.
    """

    name = "zhang-linear"
    settings = LinearSettings
    cell = LinearCell
    gives = FitsResult | BadResult
    pages = __name__
    keeps = "part"
    devices = ("cpu",)
    then = "nonvacuous interpolate --data digits --labels true,random"

    def cells(self, settings: LinearSettings, finished: Finished) -> Sequence[LinearCell]:
        problem = settings.model_dump(include={"examples", "weights", "test", "noise"})
        own = settings.model_dump(include={"epochs", "family_size", "seed"})
        bad = LinearCell(key="bad", bad=settings.bad, seed=settings.seed)
        return LinearCell(key="fits", problem=problem, **own), bad

    def compute(self, cell: LinearCell, at: Context) -> FitsResult | BadResult:
        return _fitted(cell, at) if cell.bad is None else cell.bad.judged(at, cell.seed)

    def result(self, settings: LinearSettings, finished: Finished, at: Context) -> LinearResult:
        known = {entry.cell.key: entry.result for entry in finished}
        return LinearResult(settings, known["fits"], known["bad"])

    def record(self, result: LinearResult) -> Mapping[str, Any]:
        return {
            "settings": result.settings.record(),
            **result.fitted.model_dump(mode="json"),
            "bad_interpolants": [asdict(entry) for entry in result.bad.bad],
        }

    def title(self, settings: LinearSettings) -> str:
        return f"{settings.examples} examples, {settings.weights} weights, seed {settings.seed}"


STUDY = Linear()


def _fitted(cell: LinearCell, at: Context) -> FitsResult:
    sizes: Any = cell.problem
    whole = {name: int(sizes[name]) for name in ("examples", "weights", "test")}
    problem = perfect_fits.random_problem(**whole, noise=sizes["noise"], seed=cell.seed)
    at.tell("linear models", 0, 2, "optimizers")
    fits = perfect_fits.compare_fits(problem, seed=cell.seed, epochs=cell.epochs)
    at.tell("linear models", 1, 2, "the family of perfect fits and their Hessians")
    members = perfect_fits.family(problem, np.linspace(0, cell.family_size, 11), seed=cell.seed)
    smallest, *_ = fits.values()
    others = {fit.name: weights for fit, weights in fits.items() if weights is not smallest}
    farthest = list(members)[-1]
    others[f"smallest + {farthest.name} of an unseen direction"] = members[farthest]
    others[CONTROL] = smallest / 2
    differences = {
        name: perfect_fits.hessian_difference(problem, smallest, w) for name, w in others.items()
    }
    return FitsResult(fits=tuple(fits), family=tuple(members), hessian_differences=differences)


def tables(result: LinearResult) -> tuple[Table, Table]:
    fits = fits_table(result)
    return replace(fits, caption=f"{fits.caption}\n{lead(result)}"), result.bad.table()


def fits_table(result: LinearResult) -> Table:
    rows = (
        {
            "found by": fit.name,
            "residual": f"{fit.residual:.0e}",
            "norm": f"{fit.norm:.3f}",
            "outside the span": f"{fit.outside:.1e}",
            "from where theory says": or_dash(fit.expected, ".1e"),
            "from the minimum norm": f"{fit.to_minimum:.1e}",
            "test error": f"{fit.test_error:.3f}",
        }
        for fit in result.fitted.fits
    )
    caption = (
        f"{result.settings.examples} examples, {result.settings.weights} weights; distances are "
        "relative, the test error is a mean square"
    )
    return Table.of(rows, caption)


def lead(result: LinearResult) -> str:
    away = {fit.name: fit.to_minimum for fit in result.fitted.fits}
    return (
        f"SGD from zero finds the perfect fit of smallest norm (relative distance "
        f"{away['SGD from zero']:.0e}); Adam fits as perfectly and ends "
        f"{100 * away['Adam from zero']:.0f} % away."
    )


def page(result: LinearResult, command: str) -> StudyPage:
    fitted, settings = result.fitted, result.settings
    sizes = [float(fit.name) for fit in fitted.family]

    def along(name: str, values: list[float], caption: str, **more: Any) -> Figure:
        series = [plots.Series(name, sizes, values)]
        return Figure(plots.lines(series, x_label="how much of the direction", **more), caption)

    outside = drawn_bars(
        "outside",
        {fit.name: fit.outside for fit in fitted.fits},
        "Rounding errors for the first two; real distances for the others.",
        "Part of the weights outside the span",
        "share of the norm (logarithmic)",
        log=True,
    )
    errors = drawn_bars(
        "test error",
        {fit.name: fit.test_error for fit in fitted.fits},
        "All five fit the training examples to rounding error.",
        "Error on new examples",
        "mean squared error",
    )
    new = along(
        "test error",
        [fit.test_error for fit in fitted.family],
        "Every point of this curve is a perfect fit.",
        title="Test error along the family",
        y_label="mean squared error",
        lowest=0.0,
    )
    known = along(
        "training residual",
        [max(fit.residual, FLOOR) for fit in fitted.family],
        "Rounding error throughout.",
        title="Training residual along the family",
        y_label="max |X w − y|",
        log_y=True,
        lowest=1e-17,
        highest=1.0,
    )
    hessians = drawn_bars(
        "difference",
        fitted.hessian_differences,
        f"By automatic differentiation; zero is drawn at {FLOOR:g}.",
        "Distance to the Hessian at the minimum norm",
        "largest difference of an entry (logarithmic)",
        log=True,
    )
    span, seed = "Who stays in the span of the examples", f"seed {settings.seed}"
    return StudyPage(
        title="More weights than examples",
        question="Which of infinitely many perfect fits does an optimizer find?",
        lead=lead(result),
        badges=(f"{settings.examples} examples", f"{settings.weights} weights", seed),
        sections=(
            Section.of(span, _SPAN, outside, errors, fits_table(result)),
            Section.of("A family of perfect fits", _FAMILY, new, known),
            Section.of("The same Hessian at all of them", _HESSIANS, hessians),
            result.bad.section(
                "Interpolants that fit perfectly and fail",
                "Kernel functions through the same examples, chosen badly on purpose.",
            ),
        ),
        footer=(command, seed),
    )


_SPAN = (
    "A step of SGD is a multiple of an example, so from zero it never leaves the span of the "
    "examples, where only one perfect fit lies. From elsewhere it keeps what it started with "
    "outside. Adam and AdaGrad rescale every coordinate and leave the span at once."
)
_FAMILY = (
    "Add more and more of one direction in which no training example has a part: the training "
    "residual stays at rounding error, the test error does not."
)
_HESSIANS = (
    "The Hessian of the training loss depends on the weights through the training predictions "
    "only, so that it cannot tell one perfect fit from another: no measure of flatness of the "
    "training loss can. The control fits nothing."
)
