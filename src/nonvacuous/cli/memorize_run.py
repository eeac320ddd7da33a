"""The work behind ``nonvacuous memorize``: everything that needs torch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.cli.exits import CommandError, again, stoppable
from nonvacuous.cli.memorize import FILES, Flags
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.networks import load_data
from nonvacuous.data import Examples
from nonvacuous.errors import Unsupported
from nonvacuous.files import write_atomically
from nonvacuous.memorization import (
    ConflictingValues,
    Memorizer,
    Residual,
    memorize,
    random_labels,
    what_it_does_not_say,
)
from nonvacuous.studies.memorization_page import write_page

#: Points above which evaluating every unit at every point takes more than a few minutes.
_LONG = 200_000


def run(flags: Flags) -> tuple[dict[str, Any], list[Path]]:
    """Memorize, measure, write the files; the record, and where the files are."""
    dataset = load_data(flags.data, flags.data_dir)
    train = dataset.train
    examples, labels, seed = flags.examples, flags.labels, flags.seed
    if examples is not None:
        if examples > len(train):
            raise CommandError(
                f"--examples {examples:,}: {train.name} has {len(train):,} training examples.",
                next_command=again(replacing={"--examples": str(len(train))}),
            )
        train = train.subset(np.arange(examples))
    values = random_labels(train, seed=seed) if labels == "random" else train.labels.numpy()
    with stoppable(), Narration() as narration:
        narration.say(
            f"{len(train):,} examples of {train.name}, {labels} labels, depth {flags.depth}, "
            f"seed {seed}"
        )
        try:
            found = memorize(
                train,
                values,
                depth=flags.depth,
                seed=seed,
                conflicts=flags.conflicts,
                progress=narration,
            )
        except ConflictingValues as error:
            raise CommandError(
                str(error).replace('conflicts="majority"', "--conflicts majority"),
                next_command=again(replacing={"--conflicts": "majority"}),
            ) from error
        # Copies of a point share the value that was kept.
        kept = found.predict(train) if found.duplicates.conflicting else values
        record = _record(found, dataset.test, train, data=flags.data, labels=labels)
        errors = None
        if not flags.skip_forward:
            if len(train) > _LONG:
                narration.say(f"{len(train):,} points: --skip-forward leaves out the slowest part")
            errors = _measure(found, train, kept, record, narration)
    record["facts"] = _facts(found, record)
    record["answer"] = _answer(found, record)
    paths: list[Path] = []
    if flags.out is not None:
        paths = _write(found, train, values, record, errors, flags.out)
    return record, paths


def _record(
    found: Memorizer, test: Examples | None, train: Examples, *, data: str, labels: str
) -> dict[str, Any]:
    record: dict[str, Any] = {"data": data, "labels": labels, **found.to_dict()}
    record["does_not_say"] = list(what_it_does_not_say(found.sizes))
    right = found.classify(train) == train.labels.numpy()
    record["true_labels"] = {"train_right": int(right.sum()), "train_examples": len(train)}
    if test is not None:
        tested = found.classify(test) == test.labels.numpy()
        record["true_labels"] |= {"test_right": int(tested.sum()), "test_examples": len(test)}
    return record


def _measure(
    found: Memorizer,
    train: Examples,
    kept: np.ndarray,
    record: dict[str, Any],
    narration: Narration,
) -> np.ndarray | None:
    """The float64 network as a network computes it, and what float32 would have done."""
    try:
        exact_error = found.weights.largest_error
        started = time.perf_counter()
        values = found.forward(train, progress=narration)
        float32 = found.residual_in(torch.float32)
    except Unsupported as error:
        record["float64"] = {"refused": str(error)}
        return None
    errors: np.ndarray = np.abs(values - kept)
    wrong = int((~(errors < 0.5)).sum())
    measured = Residual(len(train), float(errors.max()), wrong, time.perf_counter() - started)
    record["float64"] = {"exact_evaluation": exact_error, "forward": measured.to_dict()}
    record["float32"] = {"refused": True, **float32.to_dict()}
    return errors


def _facts(found: Memorizer, record: dict[str, Any]) -> dict[str, str]:
    n, d = found.points, found.dimensions
    more = f", and {found.parameters - (2 * found.duplicates.distinct + d)} more for the depth"
    layers = found.depth - 1
    facts = {
        "weights": f"{found.parameters:,}; the theorem: 2n + d = 2 x {n:,} + {d:,} = "
        f"{found.theorem_parameters:,}" + (more if found.depth > 2 else ""),
        "hidden layers": f"{layers:,}, the widest of {found.width:,} units",
        "certificate": str(found.certificate),
        "copies": _copies(found),
        "lemma": "triangular matrix, smallest eigenvalue "
        f"{found.smallest_eigenvalue:.1e} of the range: positive, so solvable for all values",
        "time": f"{found.seconds:.2g} s for construction and certificate",
    }
    if found.direction.grid is not None:
        facts["points"] = "the 8-bit pixels behind the inputs pixel/255"
    if "float64" in record:
        facts |= _float_facts(record)
    told = record["true_labels"]
    facts["true labels"] = f"{told['train_right'] / told['train_examples']:.1%} right in training"
    if "test_right" in told:
        share = told["test_right"] / told["test_examples"]
        facts["true labels"] += f", {share:.1%} right on {told['test_examples']:,} test examples"
    facts["seed"] = str(found.seed)
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
        "float32": f"refused: {narrow['wrong']:,} of {narrow['points']:,} labels would be wrong, "
        f"largest error {largest}",
    }


def _copies(found: Memorizer) -> str:
    copies = found.duplicates
    if copies.points == copies.distinct:
        return "none: all points differ"
    text = f"{copies.points - copies.distinct:,} points repeat another"
    if not copies.conflicting:
        return f"{text}, always with the same label"
    return (
        f"{text}; {copies.conflicting:,} come with different labels, so every function is wrong on "
        f"at least {copies.floor:,} points"
    )


def _answer(found: Memorizer, record: dict[str, Any]) -> str:
    labels = "random" if record["labels"] == "random" else "true"
    short = (
        f", the best possible ({found.duplicates.floor:,} contradict a copy)"
        if found.duplicates.floor
        else ""
    )
    return (
        f"{found.parameters:,} weights memorize {found.duplicates.distinct:,} distinct points with "
        f"{labels} labels: {found.certificate.mismatches} mismatches in exact arithmetic{short}."
    )


def _write(
    found: Memorizer,
    train: Examples,
    values: np.ndarray,
    record: dict[str, Any],
    errors: np.ndarray | None,
    out: Path,
) -> list[Path]:
    paths = []
    if "refused" not in record.get("float64", {}):
        try:
            paths.append(found.save(out / FILES[0]))
        except Unsupported as error:
            record["facts"]["float64"] = f"refused: {error}"
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_atomically(out / FILES[1], lambda stream: stream.write(text.encode()))
    page = write_page(found, train, values, record, errors, out / FILES[2], command=again())
    return [*paths, out / FILES[1], page]
