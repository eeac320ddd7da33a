"""``nonvacuous memorize``: a network with 2n + d weights that gets every label right, certified."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.study.settings import EXAMPLES, DataSettings, first_examples
from nonvacuous.study.study import Context, Single, SingleStudy

if TYPE_CHECKING:
    from rich.console import Console

    from nonvacuous.data import Examples
    from nonvacuous.memorization import Memorizer

#: Points above which evaluating every unit at every point takes more than a few minutes.
_LONG = 200_000
#: Points in the first picture, and stretches in the second.
_SHOWN, _STRETCHES = 20, 60


class MemorizeSettings(DataSettings):
    """What to memorize, and how deep."""

    labels: Literal["random", "true"] = "random"
    """What to memorize: labels drawn at random, or the true ones."""
    examples: int | None = Field(None, ge=1, description=EXAMPLES)
    depth: int = Field(2, ge=2)
    """Layers of weights. From 3 on the points are dealt to the hidden layers in blocks."""
    conflicts: Literal["refuse", "majority"] = "refuse"
    """Copies of one example with different labels: refuse, or keep the most frequent label."""
    seed: int = Field(0, ge=0)
    """Decides the random labels and the direction along which the points are told apart."""
    skip_forward: bool = False
    """Leave out the test that evaluates every hidden unit at every point: its time grows with the
    square of their number."""


class Memorize(SingleStudy[MemorizeSettings]):
    """Construct a network that gets every label right, and prove it in exact arithmetic."""

    name, settings, cell = "memorize", MemorizeSettings, MemorizeSettings
    devices = ("cpu",)
    kept = ("network.safetensors",)

    def title(self, settings: MemorizeSettings) -> str:
        labels = f"{settings.labels} labels"
        return f"{settings.data}, {labels}, depth {settings.depth}, seed {settings.seed}"

    def compute(self, cell: MemorizeSettings, at: Context) -> Single:
        from nonvacuous import memorization

        dataset = at.dataset(cell.data)
        train = first_examples(dataset.train, cell.examples)
        values = train.labels.numpy()
        if cell.labels == "random":
            values = memorization.random_labels(train, seed=cell.seed)
        try:
            network = memorization.memorize(
                train, values, depth=cell.depth, seed=cell.seed, conflicts=cell.conflicts,
                progress=at.progress,
            )  # fmt: skip
        except memorization.ConflictingValues as error:
            text = str(error).replace('conflicts="majority"', "--conflicts majority")
            raise BadInput(text, instead={"--conflicts": "majority"}) from error
        record: dict[str, Any] = {"data": cell.data, "labels": cell.labels, **network.to_dict()}
        record["does_not_say"] = list(memorization.what_it_does_not_say(network.sizes))
        record["true_labels"] = {}
        for part, examples in (("train", train), ("test", dataset.test)):
            if examples is not None:
                right = int((network.classify(examples) == examples.labels.numpy()).sum())
                counted = {f"{part}_right": right, f"{part}_examples": len(examples)}
                record["true_labels"] |= counted
        errors = None
        if not cell.skip_forward:
            if len(train) > _LONG:
                at.say(f"{len(train):,} points: --skip-forward leaves out the slowest part")
            # Copies of a point share the value that was kept.
            kept = network.predict(train) if network.duplicates.conflicting else values
            errors = _measure(network, train, kept, record, at)
        record["facts"] = _facts(network, record)
        record["answer"] = _answer(network, record)
        if "refused" not in record.get("float64", {}):
            try:
                network.save(at.folder / self.kept[0])
            except Unsupported as error:
                record["facts"]["float64"] = f"refused: {error}"
        return Single(record=record, drawn=_drawn(network, train, values, errors))

    def show(self, result: Single, console: Console) -> None:
        record = result.record
        console.print(record["answer"], soft_wrap=True)
        _facts_table(record).print(console)
        console.print("What this does not say:", style="bold")
        for line in record["does_not_say"]:
            console.print(f"- {line}", soft_wrap=True)

    def next_command(self, result: Single, folder: Path | None) -> str | Mapping[str, str | None]:
        if folder is None:
            return {"--out": "memorized"}
        if result.record["labels"] == "random":
            return {"--labels": "true", "--out": str(folder.with_name(folder.name + "-true"))}
        return "nonvacuous reproduce zhang-theorem-1 --quick"

    def page(self, result: Single, command: str) -> StudyPage:
        record = result.record
        return StudyPage(
            title="Memorization",
            question=f"Can {record['parameters']:,} weights memorize {record['data']}?",
            lead=record["answer"],
            badges=(
                f"{record['points']:,} points, {record['dimensions']:,} dimensions",
                f"{record['labels']} labels",
                f"depth {record['depth']}",
                "exact certificate",
            ),
            sections=(
                Section.of("In numbers", _facts_table(record)),
                *_pictures(**result.drawn),
                Section.of("What does this not say?", *record["does_not_say"]),
            ),
            footer=(
                command,
                f"seed {record['seed']}; Python {sys.version.split()[0]}, numpy {np.__version__}",
            ),
        )


STUDY = Memorize()


def _facts_table(record: Mapping[str, Any]) -> Table:
    return Table(("what", "found"), tuple(record["facts"].items()), numeric=(False, False))


def _measure(
    network: Memorizer, train: Examples, kept: np.ndarray, record: dict[str, Any], at: Context
) -> np.ndarray | None:
    """The float64 network as a network computes it, and what float32 would have done."""
    import torch

    from nonvacuous.memorization import Residual

    try:
        exact_error = network.weights.largest_error
        started = time.perf_counter()
        values = network.forward(train, progress=at.progress)
        float32 = network.residual_in(torch.float32)
    except Unsupported as error:
        record["float64"] = {"refused": str(error)}
        return None
    measured = Residual.of(values, kept, network.classes, since=started)
    record["float64"] = {"exact_evaluation": exact_error, "forward": measured.to_dict()}
    record["float32"] = {"refused": True, **float32.to_dict()}
    return np.asarray(np.abs(values - kept))


def _facts(network: Memorizer, record: dict[str, Any]) -> dict[str, str]:
    n, d = network.points, network.dimensions
    more = f", and {network.parameters - (2 * network.duplicates.distinct + d)} more for the depth"
    layers = network.depth - 1
    facts = {
        "weights": f"{network.parameters:,}; the theorem: 2n + d = 2 x {n:,} + {d:,} = "
        f"{network.theorem_parameters:,}" + (more if network.depth > 2 else ""),
        "hidden layers": f"{layers:,}, the widest of {network.width:,} units",
        "certificate": str(network.certificate),
        "copies": _copies(network),
        "lemma": "triangular matrix, smallest eigenvalue "
        f"{network.smallest_eigenvalue:.1e} of the range: positive, so solvable for all values",
        "time": f"{network.seconds:.2g} s for construction and certificate",
    }
    if network.direction.grid is not None:
        facts["points"] = "the 8-bit pixels behind the inputs pixel/255"
    facts |= _float_facts(record) if "float64" in record else {}
    right = record["true_labels"]
    facts["true labels"] = f"{right['train_right'] / right['train_examples']:.1%} right in training"
    if "test_right" in right:
        share = right["test_right"] / right["test_examples"]
        facts["true labels"] += f", {share:.1%} right on {right['test_examples']:,} test examples"
    facts["seed"] = str(network.seed)
    return facts


def _float_facts(record: dict[str, Any]) -> dict[str, str]:
    measured = record["float64"]
    if "refused" in measured:
        return {"float64": f"refused: {measured['refused']}"}
    forward, narrow = measured["forward"], record["float32"]
    largest = "infinite" if narrow["largest"] is None else f"{narrow['largest']:.1e}"
    return {
        "float64": f"largest error {measured['exact_evaluation']:.1e} evaluated exactly, "
        f"{forward['largest']:.1e} unit by unit: {forward['wrong']:,} labels wrong",
        "float32": "refused: it has 24 of the up to 53 binary digits that the positions of points "
        f"need, so neighbors can fall together; {narrow['wrong']:,} of {narrow['points']:,} labels "
        f"would be wrong here, largest error {largest}",
    }


def _copies(network: Memorizer) -> str:
    copies = network.duplicates
    if copies.points == copies.distinct:
        return "none: all points differ"
    text = f"{copies.points - copies.distinct:,} points repeat another"
    if not copies.conflicting:
        return f"{text}, always with the same label"
    return (
        f"{text}; {copies.conflicting:,} come with different labels, so every function is wrong on "
        f"at least {copies.floor:,} points"
    )


def _answer(network: Memorizer, record: dict[str, Any]) -> str:
    floor = network.duplicates.floor
    short = f", the best possible ({floor:,} contradict a copy)" if floor else ""
    return (
        f"{network.parameters:,} weights memorize {network.duplicates.distinct:,} distinct points "
        f"with {record['labels']} labels: {network.certificate.mismatches} mismatches in exact "
        f"arithmetic{short}."
    )


def _drawn(
    network: Memorizer, train: Examples, values: np.ndarray, errors: np.ndarray | None
) -> dict[str, Any]:
    """The points of the pictures. The times against n are measured on parts of the points."""
    from nonvacuous.memorization import memorize
    from nonvacuous.memorization.projection import project_float

    made = network.construction
    shown = min(_SHOWN, len(made))
    start = made.knots[0]
    gap = max(1, made.positions[shown - 1] - start)
    scale = 1 << network.fraction_bits
    x = [0.0, *((position - start) / gap for position in made.positions[:shown])]
    y = [0.0, *(value / scale for value in made.values[:shown])]
    stretches = None
    if errors is not None:
        # Errors of the honest forward pass along the direction, largest in each stretch.
        rows = network.direction.prepare(train.inputs.numpy().reshape(len(train), -1))
        order = np.argsort(project_float(rows, network.direction.weights()), kind="stable")
        parts = np.array_split(errors[order], min(_STRETCHES, len(errors)))
        # A logarithmic scale has no room for zero.
        largest = [max(float(part.max()), 1e-17) for part in parts]
        stretches = ([float(end) for end in np.cumsum([len(part) for part in parts])], largest)
    sizes = sorted({max(1, len(train) // 10), max(1, len(train) // 3)} - {len(train)})
    inputs = train.inputs.numpy()
    seconds = []
    for size in sizes:
        depth = min(network.depth, size + 1)
        some = (inputs[:size], values[:size])
        again = memorize(*some, depth=depth, seed=network.seed, conflicts="majority")
        seconds.append(again.seconds)
    times = ([float(size) for size in (*sizes, len(train))], [*seconds, network.seconds])
    return {"first": (x, y), "errors": stretches, "times": times}


def _pictures(
    first: tuple[list[float], list[float]],
    errors: tuple[list[float], list[float]] | None,
    times: tuple[list[float], list[float]],
) -> Iterator[Section]:
    from nonvacuous.report.plots import Series, lines

    picture = lines(
        [Series("the network", *first)],
        title=f"The network along its direction, first {len(first[0]) - 1} points",
        x_label="position ⟨a, x⟩, from the first knot (0) to the last point shown (1)",
        y_label="value",
    )
    yield Section.of(
        "How does it work?",
        "One random direction a puts the points in a row. The network c(x) = Σ w max(⟨a, x⟩ − "
        "b, 0) is zero left of its first knot and bends at every point: with one bend for each "
        "point it passes through any values. Marks are points with their memorized labels, "
        "except the first, which is the first knot.",
        Figure(picture),
    )
    if errors:
        picture = lines(
            [Series("largest error in the stretch", *errors)],
            title="Error of the float64 network, every unit evaluated",
            x_label="points, from left to right along the direction",
            y_label="error",
            log_y=True,
            level=("a label would change", 0.5),
        )
        yield Section.of(
            "What is left of it in float64?",
            "The certificate is about exact arithmetic. A network in float64 rounds every product "
            "and sum: many units with steep slopes cancel, the more of them the farther right a "
            "point lies. Depth helps, since each layer then stands still after its own block.",
            Figure(picture),
        )
    sentence = "Sorting aside, every step passes over the points once."
    yield Section.of("How long does it take?", sentence, picture_of_times(*times))


def picture_of_times(points: Sequence[float], seconds: Sequence[float]) -> Figure:
    """The time for so many points, beside one that grows with their number."""
    from nonvacuous.report.plots import Series, lines

    proportional = [seconds[-1] * size / points[-1] for size in points]
    picture = lines(
        [Series("measured", points, seconds), Series("proportional to n", points, proportional)],
        title="Time for construction and certificate",
        x_label="points",
        y_label="seconds",
        lowest=0.0,
    )
    return Figure(picture)
