"""Before any work: which method, how much memory or disk, about how long. Or a refusal."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.interpolation.cholesky import TILE, entries
from nonvacuous.memory import available_memory
from nonvacuous.progress import describe_seconds


def available_on(device: torch.device) -> int:
    """Bytes that can still be had on the device."""
    if device.type != "cuda":
        return available_memory()
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free + held)


def multiplication_rate(dtype: torch.dtype, device: torch.device, *, size: int = 1024) -> float:
    """Floating-point operations per second of a matrix product here and now, measured."""
    on_gpu = device.type == "cuda"
    side = 4 * size if on_gpu else size
    ones = torch.ones(side, side, dtype=dtype, device=device)
    matrix = ones if on_gpu else ones.numpy()

    def multiply() -> float:
        matrix @ matrix
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    started = multiply()
    return 2 * side**3 / max(multiply() - started, 1e-9)


def describe_bytes(count: float) -> str:
    """A size as a person would say it.

    >>> describe_bytes(7_440_000_000), describe_bytes(52_000_000), describe_bytes(900)
    ('7.4 GB', '52 MB', '0.9 kB')
    """
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    if count >= 1e6:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e3:.1f} kB"


Method = Literal["auto", "cholesky", "conjugate-gradient"]
Precision = Literal["auto", "float32", "float64"]

#: Up to here float64 costs no more than float32 with its refinement.
_SMALL = 16_000
#: Products with the kernel matrix that refinement from float32 usually takes.
_REFINEMENTS = 4
#: Iterations of conjugate gradients for an estimate of the time; nobody knows beforehand.
_ITERATIONS = 200
#: Rows of the factor that preconditions conjugate gradients.
RANK = 500
#: The part of the available memory or disk that may be taken.
_PART = 0.9
#: Seconds for the exponential of one number, on one core and on a GPU.
_EXPONENTIAL = {"cpu": 4e-9, "cuda": 1e-11}


@dataclass(frozen=True)
class Limits:
    """How far a solution is driven.

    tolerance   of the largest residual
    iterations  the most iterations of conjugate gradients
    tile        rows and columns of the blocks that are worked on
    """

    tolerance: float = 1e-6
    iterations: int = 1000
    tile: int = TILE

    def __post_init__(self) -> None:
        checks.positive("tolerance", self.tolerance)
        checks.count("iterations", self.iterations)
        checks.count("tile", self.tile, minimum=1)


@dataclass(frozen=True)
class Plan:
    """How a system of equations will be solved, and what that will take.

    method         "cholesky" or "conjugate-gradient"
    place          where the factor is kept: "memory", "disk", "device" (a GPU) or "nowhere"
    precision      of the factor; the answer is refined to float64 in any case
    factor_bytes   the size of the factor
    peak_bytes     an estimate of the memory in use at the worst moment
    seconds        an estimate of the time, from a measurement of this machine just now
    """

    points: int
    coordinates: int
    columns: int
    method: Literal["cholesky", "conjugate-gradient"]
    place: Literal["memory", "disk", "device", "nowhere"]
    precision: Literal["float32", "float64"]
    factor_bytes: int
    peak_bytes: int
    seconds: float = 0.0
    folder: Path | None = None

    def __str__(self) -> str:
        time = f"about {describe_seconds(self.seconds)}"
        peak = f"at most {describe_bytes(self.peak_bytes)} of memory in all"
        if self.method == "conjugate-gradient":
            return (
                f"{self.points:,} points by conjugate gradients, {peak}, {time} for "
                f"{_ITERATIONS} iterations; how many are needed shows only on the way"
            )
        kept = {"memory": "in memory", "device": "on the GPU", "nowhere": ""}
        where = kept.get(self.place, f"in files of {self.folder}, slower than memory")
        return (
            f"{self.points:,} points by Cholesky factorization in {self.precision}: factor "
            f"{describe_bytes(self.factor_bytes)} {where}; {peak}, {time}"
        )


def make_plan(
    points: int,
    coordinates: int,
    columns: int,
    *,
    device: torch.device,
    method: Method = "auto",
    precision: Precision = "auto",
    memory: int | None = None,
    folder: Path | None = None,
    tile: int = TILE,
) -> Plan:
    """Choose, or raise BadInput with the sizes that do not fit.

    memory   bytes that may be used; nine tenths of what is available by default
    folder   where tiles go when memory does not hold them; the system's temporary folder by default
    """
    for name, value, known in (("method", method, Method), ("precision", precision, Precision)):
        if value not in get_args(known):
            raise BadInput(f"{name} is one of {', '.join(get_args(known))}, not {value!r}")
    budget = int(_PART * available_on(device)) if memory is None else memory
    # Points (given, and in float64), targets with their copies, and tiles at work.
    held = points * (12 * coordinates + 6 * 8 * columns) + 4 * 8 * min(points, tile) ** 2
    sizes = (points, coordinates, columns)
    if method == "conjugate-gradient":
        peak = held + points * (6 * columns + min(points, RANK)) * 8
        if peak > budget:
            raise _too_large(points, peak, budget, "conjugate gradients need", "")
        return _timed(Plan(*sizes, method, "nowhere", "float64", 0, peak), device)
    on_gpu = device.type == "cuda"
    kinds: tuple[Literal["float32", "float64"], ...]
    if precision == "auto":
        kinds = ("float64", "float32") if on_gpu or points <= _SMALL else ("float32",)
    else:
        kinds = (precision,)
    # On a GPU one panel of the matrix is copied at a time.
    numbers = points * (points + 4096) if on_gpu else entries(points, tile)
    for kind in kinds:
        size = np.dtype(kind).itemsize * numbers
        if size + held <= budget:
            where: Literal["memory", "device"] = "device" if on_gpu else "memory"
            plan = Plan(*sizes, "cholesky", where, kind, size, size + held, folder=folder)
            return _timed(plan, device)
    # Neither fits: ``kind`` and ``size`` are those of the smaller one.
    if on_gpu:
        raise _too_large(
            points, size + held, budget, f"the whole matrix in {kind} on the GPU takes",
            "compute on the processor (device cpu), which can use the disk; or ",
        )  # fmt: skip
    on_disk = folder or Path(tempfile.gettempdir())
    whole = on_disk.absolute()  # which need not exist yet
    there = next(path for path in (whole, *whole.parents) if path.exists())
    room = int(_PART * shutil.disk_usage(there).free)
    # Some tiles must be in memory at a time, else every step would wait for the disk.
    working = held + 8 * tile * tile * np.dtype(kind).itemsize
    if working > budget:
        raise _too_large(points, working, budget, "even with tiles on disk the work takes", "")
    if size > room:
        raise _too_large(
            points, size, budget, f"the triangle in {kind} takes",
            f"the disk of {on_disk} has room for {describe_bytes(room)}, which does not do "
            "either: name a folder on a larger disk, or ",
        )  # fmt: skip
    plan = Plan(*sizes, "cholesky", "disk", kind, size, min(budget, size + held), folder=on_disk)
    return _timed(plan, device)


def _timed(plan: Plan, device: torch.device) -> Plan:
    # A small problem is not worth a long measurement.
    side = min(1024, max(64, plan.points))
    double = multiplication_rate(torch.float64, device, size=side)
    single = double
    if plan.precision == "float32":
        single = multiplication_rate(torch.float32, device, size=side)
    square = float(plan.points) ** 2
    one_product = square * (plan.coordinates + 2 * plan.columns) / double
    one_product += square / 2 * _EXPONENTIAL.get(device.type, 1e-10)
    if plan.method == "cholesky":
        products = 2 if plan.precision == "float64" else 1 + _REFINEMENTS
        seconds = square * plan.points / 3 / single + products * one_product
    else:
        seconds = _ITERATIONS * one_product
    if plan.place == "disk":
        # Every column reads what lies before it: at some 500 MB/s, unless memory keeps it.
        seconds += plan.factor_bytes * max(1, plan.points // TILE) / 3 / 5e8
    return replace(plan, seconds=seconds)


def _too_large(points: int, size: int, budget: int, what: str, more: str) -> BadInput:
    return BadInput(
        f"{points:,} points are too many here: {what} {describe_bytes(size)}, and "
        f"{describe_bytes(budget)} of memory may be used. What to do: {more}take fewer points, or "
        "method conjugate-gradient, which keeps no matrix"
    )
