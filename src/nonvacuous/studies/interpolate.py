"""``nonvacuous interpolate``: the function of smallest norm through every training example."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from nonvacuous.errors import BadInput
from nonvacuous.progress import describe_seconds
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.studies.inputs import EXAMPLES, DataSettings, first_examples
from nonvacuous.study.study import Answer, Context, Single, SingleStudy

if TYPE_CHECKING:
    from rich.console import Console

    from nonvacuous.data import Dataset
    from nonvacuous.interpolation.plan import Plan
    from nonvacuous.studies.interpolation import InterpolationStudy, Task

#: Runs longer than this keep their factor in the folder, so that they can be resumed.
_LONG = 120.0
#: Words of an error, and the flags that get over it.
_REMEDIES: dict[str, dict[str, str | None]] = {
    "equal an earlier point": {"--drop-duplicates": None},
    "too many here": {"--method": "conjugate-gradient"},
    "spans at most": {"--kernel": "gaussian"},
    "precision float64": {"--precision": "float64"},
    "singular": {"--kernel": "laplace", "--gamma": "median"},
}


class InterpolateSettings(DataSettings):
    """What to interpolate, and how; how decides nothing but time and memory."""

    examples: int | None = Field(None, ge=1, description=EXAMPLES)
    kernel: Literal["gaussian", "laplace", "polynomial", "linear"] = Field(
        "gaussian",
        description="gaussian: exp(-gamma d²), laplace: exp(-gamma d), d the distance of two "
        "points; polynomial: (product + 1) to --degree; linear.",
    )
    gamma: str = Field(
        "median",
        description="A number; median: 2 over the median of d² (laplace: 1 over its root); "
        "median:FACTOR.",
    )
    degree: int = Field(3, description="Of the polynomial kernel.")
    features: str = Field(
        "raw",
        description="raw; gabor (stripes in eight directions and two widths); patches:NUMBER (a "
        "convolutional network that nobody trained, with so many random patches as filters).",
    )
    labels: str = Field(
        "true",
        description="Separated by commas: true, random, partial:P (each label redrawn with "
        "probability P). All are solved for together.",
    )
    drop_duplicates: bool = Field(
        False,
        description="Leave out training inputs that equal an earlier one. Without it, equal "
        "inputs with different labels are an error: no function passes through both.",
    )
    method: Literal["auto", "cholesky", "conjugate-gradient"] = Field(
        "auto",
        description="cholesky; conjugate-gradient, which keeps no matrix and says if it did not "
        "converge; auto: cholesky in memory, else on disk.",
    )
    precision: Literal["auto", "float32", "float64"] = Field(
        "auto", description="Of the factor; the answer is refined to float64 in any case."
    )
    memory: str | None = Field(
        None, description="The most to use, such as 8GB; nine tenths of what is free by default."
    )
    estimate: bool = Field(False, exclude=True, description="Only say what it would take.")

    @property
    def memory_bytes(self) -> int | None:
        """A size such as 8GB or 500MB; a number alone counts bytes."""
        if self.memory is None:
            return None
        size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)i?[bB]?", self.memory.strip())
        if size is None:
            raise BadInput(f"memory: {self.memory!r} is not a size; write something like 8GB")
        return int(float(size[1]) * 1000 ** " kmgt".index(size[2].lower() or " "))

    @property
    def task(self) -> Task:
        """What is solved; refused under the name of the flag that cannot be meant."""
        from nonvacuous.interpolation.features import parse_features
        from nonvacuous.studies.interpolation import Task, chosen_kernel

        flag, usual = "labels", "true"
        try:
            task = Task(
                features=self.features,
                kernel=self.kernel,
                gamma=self.gamma,
                degree=self.degree,
                labels=tuple(part.strip() for part in self.labels.split(",") if part.strip()),
                seed=self.seed,
            )
            flag, usual = "features", "raw"
            parse_features(task.features)
            flag, usual = "gamma", "median"
            if task.kernel == "polynomial":
                flag, usual = "degree", "3"
            # Any median does: only the words and numbers of the flags are looked at.
            chosen_kernel(task, 1.0)
        except BadInput as error:
            raise BadInput(f"{flag}: {error}", instead={f"--{flag}": usual}) from error
        return task


class Interpolate(SingleStudy[InterpolateSettings]):
    """Fit every training example exactly with a kernel, and say what that is worth on new ones."""

    name, settings, cell = "interpolate", InterpolateSettings, InterpolateSettings
    kept = ("coefficients.npz",)
    may_change = frozenset({"method", "precision", "memory"})
    usual_folder = "runs/interpolate-DATA-FEATURES-KERNEL-seedN"

    def cells(self, settings: InterpolateSettings, finished: Sequence[Any]) -> Sequence[Any]:
        settings.task, settings.memory_bytes  # noqa: B018  (refused here, before any work)
        return (settings,)

    def title(self, settings: InterpolateSettings) -> str:
        return f"{settings.data}, {settings.features}, {settings.kernel}. Seed {settings.seed}"

    def folder(self, settings: InterpolateSettings, preset: str) -> Path:
        about = (Path(settings.data).stem or settings.data, settings.features, settings.kernel)
        name = f"interpolate-{'-'.join(about)}-seed{settings.seed}"
        return Path("runs") / re.sub(r"[^A-Za-z0-9.]+", "-", name)

    def answer(self, settings: InterpolateSettings, at: Context) -> Answer | None:
        if not settings.estimate:
            return None
        plan = _plan(settings, _data(settings, at), at)
        record = asdict(plan) | {"folder": None if plan.folder is None else str(plan.folder)}
        return Answer(record, lambda console: console.print(f"{plan}."), {"--estimate": ""})

    def compute(self, cell: InterpolateSettings, at: Context) -> Single:
        import numpy as np

        from nonvacuous.files import write_atomically
        from nonvacuous.studies.interpolation import run_study

        dataset = _data(cell, at)
        plan = _plan(cell, dataset, at)
        at.say(f"{plan}")
        try:
            study, function = run_study(
                dataset,
                cell.task,
                device=at.device,
                method=cell.method,
                precision=cell.precision,
                memory=cell.memory_bytes,
                folder=at.folder if plan.seconds > _LONG or plan.place == "disk" else None,
                progress=at.progress,
            )
        except BadInput as error:
            raise _with_remedy(error) from error
        coefficients = {
            f"labels {number}": function.coefficients[entry.labels]
            for number, entry in enumerate(study.labelings)
        }
        write_atomically(
            at.folder / self.kept[0],
            lambda stream: np.savez(stream, allow_pickle=False, **coefficients),
        )
        return Single(study.to_dict(), {})

    def result(self, settings: InterpolateSettings, finished: Sequence[Any], at: Context) -> Single:
        single = super().result(settings, finished, at)
        return Single({**single.record, "folder": str(at.folder)}, {})

    def page(self, result: Single, command: str) -> StudyPage:
        return page_of(_study(result), command)

    def show(self, result: Single, console: Console) -> None:
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

    def next_command(self, result: Single, folder: Path | None) -> str | Mapping[str, str | None]:
        if result.record["labelings"][-1]["labels"] == "true":
            return {"--labels": "true,random"}
        return "nonvacuous reproduce zhang-kernels --quick"


STUDY = Interpolate()


def _study(result: Single) -> InterpolationStudy:
    from nonvacuous.studies.interpolation import InterpolationStudy

    return InterpolationStudy.from_dict({k: v for k, v in result.record.items() if k != "folder"})


def _with_remedy(error: BadInput) -> BadInput:
    text = str(error)
    instead = next((flags for words, flags in _REMEDIES.items() if words in text), None)
    return BadInput(f"{text}.".replace("..", "."), instead=instead)


def _data(settings: InterpolateSettings, at: Context) -> Dataset:
    from nonvacuous.data import Dataset
    from nonvacuous.studies.interpolation import distinct_examples

    dataset = at.dataset(settings.data)
    dataset = Dataset(first_examples(dataset.train, settings.examples), dataset.test)
    if settings.drop_duplicates:
        dataset, dropped = distinct_examples(dataset)
        if dropped:
            at.say(f"{dropped} training inputs repeat an earlier one and are left out")
    return dataset


def _plan(settings: InterpolateSettings, dataset: Dataset, at: Context) -> Plan:
    """What it will take; features are judged by their number before they are made."""
    import torch

    from nonvacuous.interpolation.plan import make_plan
    from nonvacuous.studies.interpolation import MOST_FILTERS

    coordinates = dataset.train.inputs[0].numel()
    name, _, number = settings.features.partition(":")
    if name == "patches":
        filters = int(number) if number.isdigit() else 1000
        coordinates = 8 * filters if filters <= MOST_FILTERS else len(dataset.train) // 3
    try:
        return make_plan(
            len(dataset.train),
            coordinates,
            dataset.train.classes * len(settings.task.labels),
            device=torch.device(at.device),
            method=settings.method,
            precision=settings.precision,
            memory=settings.memory_bytes,
            folder=at.folder,
        )
    except BadInput as error:
        raise _with_remedy(error) from error


def percent(errors: int | None, examples: int) -> str:
    """A share of errors.

    >>> percent(122, 10_000)
    '1.22 %'
    """
    return "-" if errors is None or not examples else f"{100 * errors / examples:.2f} %"


def labelings_table(study: InterpolationStudy) -> Table:
    """One row for each labeling."""
    return Table(
        headings=("labels", "labels changed", "norm", "training errors", "test error"),
        rows=tuple(
            (
                entry.labels,
                f"{entry.changed:,}",
                f"{entry.norm:,.1f}",
                f"{entry.train_errors:,}",
                percent(entry.test_errors, study.test_examples),
            )
            for entry in study.labelings
        ),
        caption=f"{study.examples:,} points of {study.data}, {study.features}, {study.kernel}",
    )


def lead(study: InterpolationStudy) -> str:
    """The answer in one sentence."""
    if study.residual > 1e-3:
        return (
            f"No interpolant was reached: the function misses its values by up to "
            f"{study.residual:.1e}."
        )
    first = study.labelings[0]
    fits = (
        f"One function of smallest norm passes through all {study.examples:,} points of "
        f"{study.data}"
    )
    if len(study.labelings) > 1:
        fits = f"All {study.examples:,} points of {study.data} can be fitted under every labeling"
    if first.test_errors is None:
        return f"{fits}, to within {study.residual:.0e}."
    worst = study.labelings[-1]
    errs = f"{percent(first.test_errors, study.test_examples)} with {first.labels} labels"
    if worst is not first:
        errs += f" and {percent(worst.test_errors, study.test_examples)} with {worst.labels} labels"
    return f"{fits}, to within {study.residual:.0e}; on new examples it errs on {errs}."


def page_of(study: InterpolationStudy, command: str) -> StudyPage:
    """The whole page."""
    from nonvacuous.report import plots

    names = [entry.labels for entry in study.labelings]
    figures = [
        Figure(
            plots.bars(
                names,
                {"norm": [entry.norm for entry in study.labelings]},
                title="Norm of the function",
                x_label="√tr(aᵀ K a)",
            ),
            "The norm that fitting each labeling takes. It tells noise from signal within one "
            "kernel; across kernels and features the smaller norm need not err less.",
        )
    ]
    if study.test_examples:
        errors = [100 * (entry.test_errors or 0) / study.test_examples for entry in study.labelings]
        figures.append(
            Figure(
                plots.bars(
                    names,
                    {"test error": errors},
                    title="Errors on new examples",
                    x_label="per cent of test examples (true labels)",
                ),
                "Training errors are zero in every row.",
            )
        )
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
            Section(
                "Same points, same kernel, other labels",
                (
                    "Each row is the function of smallest norm through all training points. "
                    "Nothing but the labels differs between rows.",
                ),
                tuple(figures),
                (labelings_table(study),),
            ),
            Section("How exact it is", _exactness(study), _refinement(study), (_facts(study),)),
            Section("Worth knowing", study.warnings or ("Nothing unusual was met.",)),
        ),
        footer=(command, f"seed {study.seed}, device {study.device}"),
    )


def _refinement(study: InterpolationStudy) -> tuple[Figure, ...]:
    from nonvacuous.report import plots

    if len(study.refinements) < 3:
        return ()
    steps = list(range(len(study.refinements)))
    return (
        Figure(
            plots.lines(
                [plots.Series("largest residual", steps, list(study.refinements))],
                title="Refinement",
                x_label="steps of refinement",
                y_label="max |K a − y|",
                log_y=True,
            ),
            "The factor is in float32; every step solves for what is left, with the kernel "
            "computed again in float64.",
        ),
    )


def _exactness(study: InterpolationStudy) -> tuple[str, ...]:
    sentences = [
        f"The largest of all differences between the function and its values is "
        f"{study.residual:.1e}, computed afresh in float64 at the end. There is no ridge: λ = 0."
    ]
    if study.smallest_pivot is not None:
        sentences.append(
            f"The smallest pivot is {study.smallest_pivot:.1e} of its diagonal entry: the part of "
            "a point that the points before it do not explain, squared."
        )
    return tuple(sentences)


def _facts(study: InterpolationStudy) -> Table:
    from nonvacuous.interpolation.plan import describe_bytes

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
