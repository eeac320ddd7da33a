"""One data set, one kernel, several labelings: interpolate them all, compare norms and errors."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.interpolation import features, solve
from nonvacuous.interpolation.kernels import Kernel, kernel_of, median_squared_distance
from nonvacuous.interpolation.plan import Plan, make_plan
from nonvacuous.progress import Progress
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.seeds import derived_seed
from nonvacuous.study.settings import Frozen, first_examples
from nonvacuous.study.study import Context

if TYPE_CHECKING:
    from nonvacuous.studies.interpolate import InterpolateSettings

#: With more filters than this, features are counted into distances and never kept.
MOST_FILTERS = 4000
_FILTERS_AT_ONCE = 1000
#: Runs longer than this keep their factor in the folder, so that they can be resumed.
_LONG = 120.0
#: Words of an error, and the flags that get over it.
_REMEDIES: dict[str, dict[str, str | None]] = {
    "equal an earlier point": {"--drop-duplicates": None},
    "too many here": {"--method": "conjugate-gradient"},
    "spans at most": {"--kernel": "gaussian"},
    "precision float64": {"--precision": "float64"},
    "leaves the range": {"--kernel": "gaussian"},
    "singular": {"--kernel": "laplace", "--gamma": "median"},
}


class Labeling(Frozen):
    """What came of one labeling of the training points."""

    labels: str
    changed: int
    norm: float
    train_errors: int
    test_errors: int | None


class InterpolationStudy(Frozen):
    """Everything a table or a page says about one study."""

    data: str
    examples: int
    test_examples: int
    features: str
    coordinates: int
    constant_coordinates: int
    kernel: str
    parameters: dict[str, float]
    median_squared_distance: float
    labelings: tuple[Labeling, ...]
    method: str
    precision: str
    place: str
    residual: float
    refinements: tuple[float, ...]
    iterations: int
    smallest_pivot: float | None
    factor_bytes: int
    peak_memory_bytes: int
    seconds: float
    warnings: tuple[str, ...]
    seed: int
    device: str


def distinct_examples(dataset: Dataset) -> tuple[Dataset, int]:
    """The data set without training inputs that repeat an earlier one, and how many were left out.

    Two equal inputs cannot have two labels under one function.
    """
    flat = dataset.train.inputs.reshape(len(dataset.train), -1)
    first = solve.first_occurrences(flat)
    kept = np.flatnonzero(first == np.arange(len(first)))
    if len(kept) == len(first):
        return dataset, 0
    return Dataset(dataset.train.subset(kept), dataset.test), len(first) - len(kept)


def run_study(
    dataset: Dataset,
    settings: InterpolateSettings,
    *,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    progress: Progress | None = None,
) -> tuple[InterpolationStudy, solve.Interpolant]:
    """Make the features, interpolate all labelings at once, count test errors."""
    start = time.perf_counter()
    corruptions = corruptions_of(settings.labelings).items()
    drawn = {name: corrupt(dataset, spec, seed=settings.seed) for name, spec in corruptions}
    labels = {name: made.train.labels.numpy() for name, made in drawn.items()}
    values = {name: solve.one_hot(entry, dataset.train.classes) for name, entry in labels.items()}
    test = dataset.test
    kind, filters = features.parse_features(settings.features)
    seed = derived_seed(settings.seed, "features")
    how: dict[str, Any] = {"precision": settings.precision, "progress": progress}
    how["memory"] = settings.memory_bytes
    if kind == "patches" and filters is not None and filters > MOST_FILTERS:
        target = torch.device(device)
        points, coordinates, median = _many_patches(dataset, filters, seed, target, progress)
        kernel = chosen_kernel(settings, median)
        function = solve.interpolate_distances(points.train, values, kernel=kernel, **how)
    else:
        seen = (dataset.train.inputs, None if test is None else test.inputs)
        points = features.features_of(settings.features, *seen, seed=seed, device=device)
        coordinates = points.train.shape[1]
        median = median_squared_distance(points.train, seed=seed)
        kernel = chosen_kernel(settings, median)
        how |= {"device": device, "method": settings.method, "folder": folder}
        function = solve.interpolate(points.train, values, kernel=kernel, **how)
    if not math.isfinite(function.residual):
        raise BadInput(f"the kernel {kernel} leaves the range of numbers here; take a flatter one")
    errors: dict[str, int] = {}
    if test is not None and points.test is not None:
        errors = function.errors(points.test, test.labels.numpy(), progress=progress)
    wrong = dict.fromkeys(labels, 0)
    # Else every output is within a half of its target, 0 or 1: the largest is the label's.
    if function.residual >= 0.5:
        for name, outputs in function.predictions(points.train).items():
            wrong[name] = int((outputs.argmax(1) != labels[name]).sum())
    return InterpolationStudy(
        data=dataset.train.name,
        examples=len(dataset.train),
        test_examples=0 if test is None else len(test),
        features=points.description,
        coordinates=coordinates,
        constant_coordinates=points.constant,
        kernel=str(kernel),
        parameters=dict(kernel.parameters),
        median_squared_distance=median,
        labelings=tuple(
            Labeling(
                labels=name,
                changed=int(made.changed.sum()),
                norm=function.norms[name],
                train_errors=wrong[name],
                test_errors=errors.get(name),
            )
            for name, made in drawn.items()
        ),
        **{n: getattr(function.plan, n) for n in ("method", "precision", "place", "factor_bytes")},
        **{n: getattr(function, n) for n in ("residual", "refinements", "iterations", "warnings")},
        smallest_pivot=None if function.pivots is None else function.pivots.smallest,
        peak_memory_bytes=function.plan.peak_bytes,
        seconds=time.perf_counter() - start,
        seed=settings.seed,
        device=str(device),
    ), function


def chosen_kernel(settings: InterpolateSettings, median: float) -> Kernel:
    """The kernel with its numbers; the median distance of the points sets the width if asked."""
    if settings.kernel == "polynomial":
        return kernel_of("polynomial", degree=settings.degree)
    if settings.kernel == "linear":
        return kernel_of("linear")
    by_median = re.fullmatch(r"median(?::([0-9.eE+-]+))?", settings.gamma)
    if by_median is None:
        return kernel_of(settings.kernel, gamma=_number(settings.gamma))
    if median <= 0:
        raise BadInput("half of all pairs of points are equal: the median cannot set gamma")
    gaussian = settings.kernel == "gaussian"
    factor = _number(by_median[1] or ("2" if gaussian else "1"))
    return kernel_of(settings.kernel, gamma=factor / (median if gaussian else math.sqrt(median)))


def _many_patches(
    dataset: Dataset, filters: int, seed: int, device: torch.device, progress: Progress | None
) -> tuple[features.Features, int, float]:
    """Distances in the place of features that are too many to be kept; their number and median."""
    made = features.random_patches(dataset.train.inputs, filters=filters, seed=seed)
    train = len(dataset.train)
    inputs = dataset.train.inputs
    if dataset.test is not None:
        inputs = torch.cat([inputs, dataset.test.inputs])
    images = inputs.to(device)

    def chunks() -> Any:
        for done, part in made.chunks(images, filters=_FILTERS_AT_ONCE):
            yield part
            if progress is not None:
                progress("features", done, filters, f"{done:,} of {filters:,} filters")

    among, across, counted = features.accumulate_distances(chunks(), train=train)
    generator = torch.Generator().manual_seed(seed)
    some = torch.randperm(train, generator=generator)[:2000].to(device)
    few = among[some][:, some]
    apart = ~torch.eye(len(some), dtype=torch.bool, device=device)
    median = float(few[apart].median())
    description = f"{made.description}, standardized"
    points = features.Features(among, across if len(across) else None, description, 0)
    return points, counted, median


def corruptions_of(labels: Sequence[str]) -> dict[str, str]:
    """What each labeling does to the labels, by its name: true, partial:P, random."""
    if not labels or len(set(labels)) != len(labels):
        raise BadInput(f"labels: name at least one labeling, each once; got {labels}")
    for spec in labels:
        if not re.fullmatch(r"true|random|partial:(0(\.\d+)?|1(\.0+)?|\.\d+)", spec):
            raise BadInput(
                f"there is no labeling {spec!r}; there are true, random, and partial:P with P "
                "between 0 and 1, such as partial:0.5"
            )
    return {spec: "random-labels" if spec == "random" else spec for spec in labels}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"gamma must be a number, median or median:FACTOR, not {text!r}") from None


@contextmanager
def _remedied() -> Iterator[None]:
    """An error that says which flags get over it."""
    try:
        yield
    except BadInput as error:
        text = str(error)
        instead = next((flags for words, flags in _REMEDIES.items() if words in text), None)
        raise BadInput(f"{text}.".replace("..", "."), instead=instead) from error


def planned(settings: InterpolateSettings, at: Context) -> tuple[Dataset, Plan]:
    """The data, and what it will take; features are judged by their number before they are made."""
    dataset = at.dataset(settings.data)
    dataset = Dataset(first_examples(dataset.train, settings.examples), dataset.test)
    if settings.drop_duplicates:
        dataset, dropped = distinct_examples(dataset)
        if dropped:
            at.say(f"{dropped} training inputs repeat an earlier one and are left out")
    coordinates = dataset.train.inputs[0].numel()
    name, number = features.parse_features(settings.features)
    if name == "patches":
        filters = 1000 if number is None else number
        coordinates = 8 * filters if filters <= MOST_FILTERS else len(dataset.train) // 3
    with _remedied():
        return dataset, make_plan(
            len(dataset.train),
            coordinates,
            dataset.train.classes * len(settings.labelings),
            device=torch.device(at.device),
            method=settings.method,
            precision=settings.precision,
            memory=settings.memory_bytes,
            folder=at.folder,
        )


def interpolated(settings: InterpolateSettings, at: Context, path: Path) -> dict[str, Any]:
    """The record of the study that was asked for; the coefficients go into a file."""
    dataset, plan = planned(settings, at)
    at.say(f"{plan}")
    with _remedied():
        study, function = run_study(
            dataset,
            settings,
            device=at.device,
            folder=at.folder if plan.seconds > _LONG or plan.place == "disk" else None,
            progress=at.progress,
        )
    coefficients = {
        f"labels {number}": function.coefficients[entry.labels]
        for number, entry in enumerate(study.labelings)
    }
    write_atomically(path, lambda stream: np.savez(stream, allow_pickle=False, **coefficients))
    return study.model_dump(mode="json")
