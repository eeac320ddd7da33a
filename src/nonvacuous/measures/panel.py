"""All measures of one network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.errors import Unsupported
from nonvacuous.measures.registry import Measure, chosen
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Result, Undefined
from nonvacuous.networks.layer_graph import table
from nonvacuous.progress import Progress


@dataclass(frozen=True)
class Entry:
    """One measure and what it gives for this network."""

    measure: Measure
    result: Result

    def to_dict(self) -> dict[str, Any]:
        return {**self.measure.to_dict(), **self.result.to_dict()}


@dataclass(frozen=True)
class Panel:
    """Every measure asked for, in the order of the registry. ``panel["path-norm-1"]`` is one."""

    entries: tuple[Entry, ...]
    examples: int
    training_errors: int | None
    seed: int

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    @property
    def results(self) -> Mapping[str, Result]:
        """Name -> value or reason."""
        return {entry.measure.name: entry.result for entry in self.entries}

    def __str__(self) -> str:
        rows = [
            (entry.measure.name, str(entry.result), ", ".join(sorted(entry.measure.invariant)))
            for entry in self.entries
        ]
        reasons = [
            f"{entry.measure.name}: {entry.result.reason}"
            for entry in self.entries
            if isinstance(entry.result, Undefined)
        ]
        headings = ("measure", "value", "claims not to depend on")
        return "\n".join([table(headings, rows), *reasons])

    def to_dict(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "training_errors": self.training_errors,
            "seed": self.seed,
            "measures": [entry.to_dict() for entry in self.entries],
        }


def panel(
    model: nn.Module,
    examples: object,
    *,
    initial: nn.Module | Mapping[str, Tensor] | None = None,
    seed: int = 0,
    only: Iterable[str] | None = None,
    without: Iterable[str] | None = None,
    like: Subject | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Panel:
    """Every measure of the registry for one network.

    model      the trained network; a float64 copy with batch normalization folded is measured
    examples   its training examples (what Examples.of accepts), or inputs alone, as a tensor:
               measures that need labels are then undefined
    initial    the network before training, for distances from it
    seed       of measures that draw noise
    only       names or families of measures, or "cheap" or "expensive"; all by default
    without    the same: what to leave out
    like       a Subject of the same architecture whose capture is used again
    device     where passes over the examples are computed

    >>> import torch
    >>> from nonvacuous.models import build
    >>> made = panel(build("mlp:4", (3,), 2, seed=0), torch.zeros(2, 3), only=["parameter-count"])
    >>> print(made["parameter-count"])
    26

    For a study of many networks of one architecture, capture it once; the cheap measures of a
    small perceptron then take a few hundredths of a second:

    >>> first = Subject.of(build("mlp:4", (3,), 2, seed=0), torch.zeros(2, 3))
    >>> for s in (1, 2):
    ...     made = panel(
    ...         build("mlp:4", (3,), 2, seed=s), torch.zeros(2, 3), like=first, only=["cheap"]
    ...     )
    >>> round(made["spectral-product"].log, 3) < 1.0
    True
    """
    measures = chosen(only, without)
    subject = Subject.of(model, examples, initial=initial, seed=seed, like=like, device=device)
    return measured(subject, measures, progress=progress)


def measured(
    subject: Subject,
    measures: tuple[Measure, ...],
    *,
    progress: Progress | None = None,
) -> Panel:
    """The panel of a subject that is there already."""
    entries = []
    for number, measure in enumerate(measures):
        if progress is not None:
            progress("measuring", number, len(measures), measure.name)
        entries.append(Entry(measure, measure(subject)))
    if progress is not None:
        progress("measuring", len(measures), len(measures), "")
    return Panel(
        entries=tuple(entries),
        examples=0 if subject.labels is None else len(subject.labels),
        training_errors=_training_errors(subject),
        seed=subject.seed,
    )


def _training_errors(subject: Subject) -> int | None:
    """Examples that the network gets wrong; None where there are no labels or no finite scores."""
    try:
        return None if subject.labels is None else int((~(subject.margins > 0)).sum())
    except Unsupported:
        return None
