"""Solving with a factor: built in memory, on disk or on a GPU, then refined in float64."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nonvacuous.files import write_atomically
from nonvacuous.interpolation import cholesky
from nonvacuous.interpolation.cholesky import TILE, Pivots, Tiles
from nonvacuous.interpolation.kernels import Gram
from nonvacuous.interpolation.plan import Plan
from nonvacuous.progress import Progress, Reporter

FACTOR_FILE, RECORD_FILE = "factor.bin", "factor.json"
_PHASE = "factorizing"


@dataclass(frozen=True)
class Factor:
    """An approximate inverse of the kernel matrix, and what was divided by on the way."""

    solve: Callable[[Tensor], Tensor]
    pivots: Pivots


def build_factor(
    gram: Gram, plan: Plan, *, identity: str, tile: int = TILE, progress: Progress | None = None
) -> Factor:
    """Factorize the kernel matrix as planned; may raise cholesky.NotPositive.

    identity   a digest of everything that decides the matrix: a factor kept in the plan's folder
               is gone on with only if it was made for the same
    """
    diagonal = gram.diagonal()
    zero = torch.nonzero(diagonal <= 0)
    if len(zero):
        raise cholesky.NotPositive(int(zero[0]))
    # With a unit diagonal, pivots are relative and float32 does not overflow.
    scales = diagonal.rsqrt()
    factor = (
        _on_device(gram, plan, scales, progress)
        if plan.place == "device"
        else _in_tiles(gram, plan, scales.cpu().numpy(), identity, tile, progress)
    )

    def solve(right_sides: Tensor) -> Tensor:
        # The largest entry of every column, so that float32 neither overflows nor underflows.
        size = right_sides.abs().amax(0, keepdim=True).clamp(min=1e-300)
        scaled = right_sides / size * scales[:, None]
        return factor.solve(scaled).to(right_sides) * scales[:, None] * size

    return Factor(solve, factor.pivots)


def _on_device(gram: Gram, plan: Plan, scales: Tensor, progress: Progress | None) -> Factor:
    kind = torch.float64 if plan.precision == "float64" else torch.float32
    n, step = gram.size, 4096
    matrix = torch.empty(n, n, dtype=kind, device=gram.device)
    for i in range(0, n, step):
        rows = slice(i, min(i + step, n))
        for j in range(0, i + 1, step):
            columns = slice(j, min(j + step, n))
            values = gram.tile(rows, columns)
            matrix[rows, columns] = values.mul_(scales[rows, None]).mul_(scales[columns]).to(kind)
    reporter = Reporter(progress, _PHASE)
    cholesky.factorize_in_place(
        matrix, report=lambda done: reporter.report(done, n, f"{done:,} of {n:,} columns")
    )
    roots = matrix.diagonal()
    point = int(roots.argmin())

    return Factor(
        lambda scaled: cholesky.solve_in_place(matrix, scaled.to(kind)),
        Pivots(float(roots[point]) ** 2, point),
    )


def _in_tiles(
    gram: Gram, plan: Plan, scales: np.ndarray, identity: str, tile: int, progress: Progress | None
) -> Factor:
    kind = np.dtype(plan.precision)
    keeper = None if plan.folder is None else _Keeper(plan.folder, f"{identity} {tile} {kind}")
    finished = 0 if keeper is None else keeper.finished()
    if plan.place == "disk":
        assert keeper is not None
        tiles = Tiles.on_disk(gram.size, kind, keeper.file, fresh=not finished, tile=tile)
    else:
        tiles = Tiles.in_memory(gram.size, kind, tile=tile)
        if keeper is not None and finished:
            keeper.load(tiles, finished)
    total = max(1, cholesky.multiplications(tiles.count, tiles.count))
    done = cholesky.multiplications(tiles.count, finished)
    reporter = Reporter(progress, _PHASE, done=done)

    def report() -> None:
        nonlocal done
        done += 1
        reporter.report(done, total, f"{tiles.count} x {tiles.count} tiles in {kind}")

    keep = (lambda column: None) if keeper is None else partial(keeper.keep, tiles)
    cholesky.factorize(gram, tiles, scales, first=finished, report=report, keep=keep)
    return Factor(
        lambda scaled: torch.from_numpy(cholesky.solve(tiles, scaled.cpu().numpy())),
        cholesky.pivots(tiles),
    )


class _Keeper:
    """Keeps finished columns in a folder, for a factorization that may be stopped."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.file = folder / FACTOR_FILE
        self.record = folder / RECORD_FILE
        self.identity = hashlib.sha256(identity.encode()).hexdigest()

    def finished(self) -> int:
        """Columns that an earlier run has kept of this very matrix."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(self.record.read_text(encoding="utf-8"))
            if record["identity"] == self.identity and self.file.is_file():
                return int(record["columns"])
        return 0

    def load(self, tiles: Tiles, columns: int) -> None:
        stop = tiles.stretch(columns - 1).stop
        kept = np.memmap(self.file, dtype=tiles.flat.dtype, mode="r")
        tiles.flat[:stop] = kept[:stop]

    def keep(self, tiles: Tiles, column: int) -> None:
        if isinstance(tiles.flat, np.memmap):
            tiles.flat.flush()
        else:
            part = tiles.stretch(column)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.file, "r+b" if column and self.file.is_file() else "wb") as stream:
                stream.seek(part.start * tiles.flat.itemsize)
                stream.write(tiles.flat[part].data)
                stream.flush()
                os.fsync(stream.fileno())
        text = json.dumps({"identity": self.identity, "columns": column + 1})
        write_atomically(self.record, text)


def forget_factor(folder: Path | None) -> None:
    """Remove what was kept for going on: after success nobody needs gigabytes of it."""
    if folder is not None:
        (folder / FACTOR_FILE).unlink(missing_ok=True)
        (folder / RECORD_FILE).unlink(missing_ok=True)
