"""Exact kernel interpolation, section 5 of Zhang et al.: raw pixels, Gabor bank, random patches.

Each case is one study with several labelings; the published error stands beside ours. At the end,
functions that fit the same examples as perfectly and know nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

from pydantic import Field, model_validator

from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang.linear import Bad, BadResult, BadSettings
from nonvacuous.report import plots
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.studies import interpolation
from nonvacuous.studies.interpolate import InterpolateSettings
from nonvacuous.studies.interpolation_page import percent
from nonvacuous.study.settings import Frozen, at_most, chosen
from nonvacuous.study.study import Context, Finished, Study

PAPER = "Zhang et al. (ICLR 2017), section 5"
#: With more examples than this, the factor is kept on disk while it is computed.
_LARGE = 20_000


class Case(Frozen):
    """One row: a data set, its features and the width of a Gaussian kernel.

    published   the paper's test error in per cent, if it has one
    """

    name: str
    data: str
    features: str
    gamma: str
    published: float | None = None


def _case(*row: Any) -> Case:
    return Case(**dict(zip(Case.model_fields, row, strict=False)))


_CASES = (
    _case("mnist-raw", "mnist", "raw", "0.02", 1.2),
    _case("mnist-gabor", "mnist", "gabor", "median:1", 0.6),
    _case("cifar10-raw", "cifar10", "raw", "median:5", 46.0),
    _case("cifar10-patches", "cifar10", "patches:32000", "median:0.03", 17.0),
)
_QUICK = (
    _case("digits-raw", "digits", "raw", "median:2"),
    _case("digits-gabor", "digits", "gabor", "median:1"),
    _case("digits-patches", "digits", "patches:40", "median:2"),
)


class KernelsSettings(BadSettings):
    """What the reproduction computes."""

    cases: tuple[Case, ...] = _CASES
    only: tuple[str, ...] = Field(default=(), exclude=True)
    """Some of the cases, such as mnist-raw cifar10-patches."""
    examples: int | None = Field(default=None, ge=1)
    """Only the first so many training examples of every data set."""
    labels: tuple[str, ...] = ("true", "partial:0.5", "random")
    """Labelings, all solved for at once."""

    @model_validator(mode="after")
    def _chosen(self) -> KernelsSettings:
        listed = {case.name: case for case in self.cases}
        if not listed or len(listed) != len(self.cases):
            names = [case.name for case in self.cases]
            raise BadInput(f"cases: name at least one, each once; got {names}")
        object.__setattr__(self, "cases", tuple(chosen(listed, self.only, "case").values()))
        if next(iter(interpolation.corruptions_of(self.labels))) != "true":
            raise BadInput("labels: true comes first: what is published is about true labels")
        return self

    @classmethod
    def quick(cls) -> KernelsSettings:
        return cls(cases=_QUICK, **cls.quick_bad)


class KernelsCell(Frozen):
    """One case, or the interpolants that fit and fail."""

    case: Case | None = None
    examples: int | None = None
    labels: tuple[str, ...] = ()
    bad: Bad | None = None
    seed: int = 0

    @property
    def key(self) -> str:
        return "bad" if self.case is None else self.case.name


@dataclass(frozen=True)
class KernelsResult:
    """All cases, and the functions that fit and fail."""

    settings: KernelsSettings
    studies: tuple[tuple[Case, interpolation.InterpolationStudy], ...]
    bad: BadResult


class Kernels(Study[KernelsSettings, KernelsResult]):
    """Interpolate MNIST and CIFAR-10 exactly and put the published errors beside ours.

    On a large GPU about three minutes. On a processor each case takes an hour or more, and 32,000
    random patches many: take --only, or --examples.
    """

    name = "zhang-kernels"
    settings = KernelsSettings
    cell = KernelsCell
    gives = interpolation.InterpolationStudy | BadResult
    pages = __name__
    may_change = frozenset({"cases"})
    keeps = "case"
    then = "nonvacuous reproduce zhang-linear --quick"

    def cells(self, settings: KernelsSettings, finished: Finished) -> Sequence[KernelsCell]:
        same = {name: getattr(settings, name) for name in ("examples", "labels", "seed")}
        cases = [KernelsCell(case=case, **same) for case in settings.cases]
        return (*cases, KernelsCell(bad=settings.bad, seed=settings.seed))

    def compute(self, cell: KernelsCell, at: Context) -> Frozen:
        case = cell.case
        if case is None:
            assert cell.bad is not None
            return cell.bad.judged(at, cell.seed)
        dataset, _ = interpolation.distinct_examples(at.dataset(case.data))
        train = at_most(dataset.train, cell.examples)
        own = {name: getattr(case, name) for name in ("data", "features", "gamma")}
        study, _ = interpolation.run_study(
            Dataset(train, dataset.test),
            InterpolateSettings.of({**own, "labels": ",".join(cell.labels), "seed": cell.seed}),
            device=at.device,
            folder=at.folder / "factor" if len(train) > _LARGE else None,
            progress=at.progress,
        )
        return study

    def result(self, settings: KernelsSettings, finished: Finished, at: Context) -> KernelsResult:
        known = {entry.cell: entry.result for entry in finished}
        *studies, bad = (known[cell] for cell in self.cells(settings, finished))
        return KernelsResult(settings, tuple(zip(settings.cases, studies, strict=True)), bad)

    def record(self, result: KernelsResult) -> Mapping[str, Any]:
        return {
            "paper": PAPER,
            "settings": result.settings.record(),
            "cases": [
                {"name": case.name, "published_percent": case.published, **study.model_dump()}
                for case, study in result.studies
            ],
            "bad_interpolants": [asdict(entry) for entry in result.bad.bad],
        }

    def title(self, settings: KernelsSettings) -> str:
        return f"{', '.join(case.name for case in settings.cases)}; seed {settings.seed}"

    def cell_lines(self, cell: KernelsCell, result: Any) -> Sequence[str]:
        if cell.case is None:
            return super().cell_lines(cell, result)
        first = result.labelings[0]
        shown = "" if cell.case.published is None else f" (published {cell.case.published:g} %)"
        if first.test_errors is None:
            return (f"{cell.case.name}: norm {first.norm:,.1f}",)
        error = 100 * first.test_errors / result.test_examples
        return (f"{cell.case.name}: test error {error:.2f} %{shown}, norm {first.norm:,.1f}",)


STUDY = Kernels()


def tables(result: KernelsResult) -> tuple[Table, Table]:
    return cases_table(result), replace(result.bad.table(), caption=verdict(result))


def cases_table(result: KernelsResult) -> Table:
    rows = []
    for case, study in result.studies:
        published = "-" if case.published is None else f"{case.published:g} %"
        for number, entry in enumerate(study.labelings):
            row = {
                "case": case.name,
                "labels": entry.labels,
                "test error": percent(entry.test_errors, study.test_examples),
                "published": published,
                "norm": f"{entry.norm:,.1f}",
                "training errors": f"{entry.train_errors:,}",
                "residual": f"{study.residual:.0e}",
            }
            again = dict.fromkeys(("case", "published", "residual"), "") if number else {}
            rows.append(row | again)
    return Table.of(rows, f"Published: {PAPER}.", words=("case", "labels"))


def verdict(result: KernelsResult) -> str:
    """Does the smaller norm err less? Compared between features of the same data."""
    compared, always = [], True
    for pair in combinations(result.studies, 2):
        # Equal norms stay in their order.
        (small, low), (large, high) = sorted(pair, key=lambda entry: entry[1].labelings[0].norm)
        first, second = low.labelings[0], high.labelings[0]
        if small.data == large.data and None not in (first.test_errors, second.test_errors):
            wins = (first.test_errors or 0) < (second.test_errors or 0)
            always = always and wins
            compared.append(
                f"{small.name} has the smaller norm than {large.name} ({first.norm:,.1f} "
                f"against {second.norm:,.1f}) and errs {'less' if wins else 'no less'} "
                f"({percent(first.test_errors, low.test_examples)} against "
                f"{percent(second.test_errors, high.test_examples)})"
            )
    if not compared:
        return "One set of features for each data set: norms of different features not compared."
    end = "Here the smaller norm errs less throughout"
    if not always:
        end = "The smaller norm does not win: across features it does not say which errs less"
    return "; ".join(compared) + f". {end}."


def page(result: KernelsResult, command: str) -> StudyPage:
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
    title, x_label = "Norm for each labeling", "norm (logarithmic)"
    errors = plots.bars(names, groups, title="Test error, true labels", x_label="per cent")
    sizes = plots.bars(names, norms, title=title, x_label=x_label, log=True)
    err = ", ".join(
        f"{percent(study.labelings[0].test_errors, study.test_examples)} on {case.name}"
        for case, study in result.studies
    )
    seed = f"seed {result.settings.seed}"
    return StudyPage(
        title="Exact kernel interpolation",
        question="How well do functions do that fit every training example exactly?",
        lead=f"Fitted exactly, with no ridge, kernels err on {err}.",
        badges=("no training error", "no ridge", seed),
        sections=(
            Section.of(
                "Errors beside the published ones",
                verdict(result),
                Figure(
                    errors, "No case makes a training error; what a kernel gets to see differs."
                ),
                Figure(sizes, "Random labels take a larger norm under the same kernel."),
                cases_table(result),
            ),
            result.bad.section(
                "Functions that fit perfectly and know nothing",
                "The same examples, the same kernel, no training error; only which of the "
                "infinitely many perfect fits is taken differs.",
            ),
        ),
        footer=(command, seed),
    )
