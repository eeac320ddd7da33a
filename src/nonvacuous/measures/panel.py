"""All measures of one network: as it is, and attacked.

The rescaling attack shows the same function in many gauges, and which measures notice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.measures import registry
from nonvacuous.measures.gauges import moved
from nonvacuous.measures.registry import Measure, Result, Undefined, Value
from nonvacuous.measures.subject import Subject
from nonvacuous.networks.layer_graph import table
from nonvacuous.progress import Progress
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint


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
        own = {field: value for field, value in vars(self).items() if field != "entries"}
        return {**own, "measures": [entry.to_dict() for entry in self.entries]}


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
    measures = registry.chosen(only, without)
    subject = Subject.of(model, examples, initial=initial, seed=seed, like=like, device=device)
    return measured(subject, measures, progress=progress)


def measured(
    subject: Subject, measures: tuple[Measure, ...], *, progress: Progress | None = None
) -> Panel:
    """The panel of a subject that is there already."""
    tell: Progress = progress or (lambda *words: None)
    entries = []
    for number, measure in enumerate(measures):
        tell("measuring", number, len(measures), measure.name)
        entries.append(Entry(measure, measure(subject)))
    tell("measuring", len(measures), len(measures), "")
    errors = None
    with suppress(Unsupported):  # no finite scores
        errors = None if subject.labels is None else int((~(subject.margins > 0)).sum())
    examples = 0 if subject.labels is None else len(subject.labels)
    return Panel(tuple(entries), examples, errors, subject.seed)


def _configuration(subject: Subject, measures: Sequence[Measure], spread: float) -> dict[str, Any]:
    """What the results of a gauge depend on, for the file in which they are kept."""
    tensors = {f"weights {name}": weight for name, weight in subject.weights.items()}
    tensors |= {f"initial {name}": w for name, w in (subject.initial or {}).items()}
    if subject.inputs is not None and subject.labels is not None:
        tensors |= {"inputs": subject.inputs, "labels": subject.labels}
    return {
        "kind": "attack",
        "subject": tensors_digest(tensors),
        "measures": [[measure.name, measure.formula] for measure in measures],
        "spread": spread,
        "seed": subject.seed,
    }


def _encoded(result: Result) -> Any:
    """In hexadecimal, which knows infinity: a resumed attack ends with the very same numbers."""
    if isinstance(result, Undefined):
        return {"undefined": result.reason}
    return [float(result.number).hex(), None if result.log is None else float(result.log).hex()]


def _decoded(plain: Any) -> Result:
    if isinstance(plain, dict):
        return Undefined(str(plain["undefined"]))
    number, log = plain
    return Value(float.fromhex(number), None if log is None else float.fromhex(log))


Verdict = Literal["gauge-free", "did not move", "moves", "undefined"]
#: A value that changes by less, relative to itself, has not moved: rounding in float64.
STILL = 1e-7


@dataclass(frozen=True)
class Spread:
    """What one measure did in all gauges.

    given     its value in the gauge that the network came in
    low       the smallest and
    high      the largest value in any gauge, the given one included; None where undefined
    decades   log10(high / low); None where the sign changes or a value is zero or undefined
    missing   in how many gauges it was undefined, although defined in others
    verdict   "gauge-free": it claims so, and is; "did not move": no claim, but the same here (a
              bound of 1 stays 1); "moves"; "undefined"
    """

    measure: Measure
    given: Result
    low: Value | None
    high: Value | None
    decades: float | None
    missing: int
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        own = {field: value for field, value in vars(self).items() if field != "measure"}
        return {
            "name": self.measure.name,
            "family": self.measure.family,
            "claims": self.measure.gauge_free,
            **{n: v.to_dict() if isinstance(v, Result) else v for n, v in own.items()},
        }


@dataclass(frozen=True)
class Attack:
    """The spread of every measure over random gauges of the same function."""

    spreads: tuple[Spread, ...]
    gauges: int
    spread: float
    free_scales: int
    seed: int

    def __getitem__(self, name: str) -> Spread:
        return next(entry for entry in self.spreads if entry.measure.name == name)

    def to_dict(self) -> dict[str, Any]:
        own = {field: value for field, value in vars(self).items() if field != "spreads"}
        return {**own, "measures": [entry.to_dict() for entry in self.spreads]}


def attack(
    model: nn.Module,
    examples: object,
    *,
    initial: nn.Module | Mapping[str, Tensor] | None = None,
    gauges: int = 20,
    spread: float = 1.0,
    seed: int = 0,
    only: Iterable[str] | None = None,
    without: Iterable[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Attack:
    """Measure the same function in ``gauges`` random gauges.

    spread       the standard deviation of the logarithms of the factors on hidden channels
    checkpoint   a file to which every finished gauge is written, and from which a stopped attack
                 goes on; also with more gauges than before

    The other arguments are those of :func:`nonvacuous.measures.panel`.
    """
    if gauges < 1 or not (math.isfinite(spread) and spread > 0):
        raise BadInput(f"an attack needs gauges >= 1 and spread > 0, got {gauges} and {spread!r}")
    tell: Progress = progress or (lambda *words: None)
    measures = registry.chosen(only, without)
    subject = Subject.of(model, examples, initial=initial, seed=seed)
    kept = _configuration(subject, measures, spread)
    path, done = None if checkpoint is None else Path(checkpoint), list[dict[str, Any]]()
    if path is not None and path.exists():
        done = list(load_checkpoint(path, configuration=kept).facts["gauges"])
    for number in range(len(done), gauges + 1):
        other = subject if number == 0 else moved(subject, "rescaling", draw=number, spread=spread)
        if isinstance(other, str):
            raise Unsupported(f"there is nothing to attack: {other}")
        tell("gauges", number, gauges + 1, f"gauge {number} of {gauges}")
        results = measured(other, measures).results
        done.append({name: _encoded(result) for name, result in results.items()})
        if path is not None:
            save_checkpoint(path, tensors={}, facts={"gauges": done}, configuration=kept)
    tell("gauges", gauges + 1, gauges + 1, "")
    seen = done[: gauges + 1]
    return Attack(
        spreads=tuple(_spread_of(m, [_decoded(gauge[m.name]) for gauge in seen]) for m in measures),
        gauges=gauges,
        spread=spread,
        free_scales=subject.groups.size,
        seed=seed,
    )


def _spread_of(measure: Measure, results: list[Result]) -> Spread:
    """What became of one measure; the first result is that in the given gauge."""
    values = [result for result in results if isinstance(result, Value)]
    if not values:
        return Spread(measure, results[0], None, None, None, 0, "undefined")
    # Values beyond the range of floats differ in their logarithms alone.
    ordered = sorted(values, key=lambda v: (v.number, v.log if v.log is not None else -math.inf))
    low, high = ordered[0], ordered[-1]
    still = len(values) == len(results) and registry.relative_difference(low, high) <= STILL
    decades = None
    if low.decades is not None and high.decades is not None and math.isfinite(low.decades):
        decades = high.decades - low.decades
    elif still:
        decades = 0.0
    verdict: Verdict = "moves"
    if still:
        verdict = "gauge-free" if measure.gauge_free else "did not move"
    missing = len(results) - len(values)
    return Spread(measure, results[0], low, high, decades, missing, verdict)
