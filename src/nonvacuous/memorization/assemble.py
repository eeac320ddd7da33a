"""``memorize``: from points and values to a certified network."""

from __future__ import annotations

import time
from typing import Any, Literal

from nonvacuous.errors import BadInput
from nonvacuous.memorization.construction import construct
from nonvacuous.memorization.duplicates import settle
from nonvacuous.memorization.exact import certify_exactly
from nonvacuous.memorization.inputs import check_memory, read_points, read_values
from nonvacuous.memorization.memorizer import Memorizer
from nonvacuous.memorization.projection import place
from nonvacuous.progress import Progress


def memorize(
    points: Any,
    values: Any = None,
    *,
    depth: int = 2,
    seed: int = 0,
    conflicts: Literal["refuse", "majority"] = "refuse",
    progress: Progress | None = None,
) -> Memorizer:
    """A ReLU network with 2n + d weights that gives n points in d dimensions any n values.

    points      (points, ...) numbers, as an array, a tensor or nested lists; or ``Examples``
    values      one number for each point; by default the labels of the examples. Whole numbers
                from 0 up are taken for classes
    depth       layers of weights; each of the depth - 1 hidden layers memorizes a part
    seed        decides the random direction
    conflicts   what to do with copies of a point that have different values: "refuse", or
                "majority" to keep the most frequent value

    The certificate is exact: the network's value at every point, computed with fractions of whole
    numbers, equals the value given, or an error is raised. Nothing about other points follows.
    Source: Zhang, Bengio, Hardt, Recht and Vinyals (ICLR 2017), Theorem 1 and its corollary.

    >>> found = memorize([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0])
    >>> found.parameters, found.certificate.mismatches, found.classify([[1, 0]]).tolist()
    (10, 0, [1])
    """
    if conflicts not in ("refuse", "majority"):
        raise BadInput(f'conflicts must be "refuse" or "majority", not {conflicts!r}')
    started = time.perf_counter()
    read = read_points(points)
    check_memory(len(read), read.dimensions)
    wanted = read_values(values, points, count=len(read))
    _tell(progress, "projecting", 0, 1)
    placed = place(read, seed=seed)
    _tell(progress, "projecting", 1, 1)
    kept, duplicates = settle(wanted, placed.order, placed.starts, conflicts=conflicts)
    _tell(progress, "constructing", 0, 1)
    made = construct(placed.places, kept, depth=depth)
    _tell(progress, "constructing", 1, 1)
    certificate = certify_exactly(
        made,
        placed,
        placed.direction.prepare(read.rows),
        unreachable=duplicates.floor,
        progress=progress,
    )
    return Memorizer(
        points=len(read),
        dimensions=read.dimensions,
        shape=read.shape,
        classes=wanted.classes,
        certificate=certificate,
        duplicates=duplicates,
        direction=placed.direction,
        construction=made,
        fraction_bits=wanted.fraction_bits,
        seed=seed,
        seconds=time.perf_counter() - started,
    )


def _tell(progress: Progress | None, phase: str, done: int, total: int) -> None:
    if progress is not None:
        progress(phase, done, total, "")
