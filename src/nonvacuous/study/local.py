"""Cells on the processors and GPUs of this machine, through joblib's loky processes."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.externals.loky import ProcessPoolExecutor, get_reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from nonvacuous.locks import machine
from nonvacuous.study.engine import WorkersLost
from nonvacuous.study.worker import GpuShare, Outcome, Task, run_cell, shares_of, visible_devices


class LocalEngine:
    """``jobs`` processes with ``threads`` threads each; one job computes in the driver itself.

    The number of threads decides the order of sums: with the same number, the same cell gives the
    same result here and on a cluster.
    """

    name = "local"

    def __init__(
        self,
        *,
        jobs: int | None = None,
        threads: int = 1,
        gpus_per_task: float = 0.0,
        hides_gpus: bool = True,
    ) -> None:
        """``hides_gpus``: cells that were promised no part of a GPU see none."""
        self.threads, self._hides_gpus = threads, hides_gpus
        self._agreed: Path | None = None
        self.shares = shares_of(visible_devices(), gpus_per_task) if gpus_per_task else ()
        self.jobs = jobs or max(1, cpu_count() // threads)
        if self.shares:
            self.jobs = min(self.jobs, len(self.shares))

    def equip(self, task: Task, folder: Path) -> Task:
        """Workers are children of this process, and share its GPUs."""
        share = None
        if self.shares:
            self._agreed = folder / f".gpus.{task.claim.session}"
            share = GpuShare(str(self._agreed), self.shares)
        return replace(
            task,
            driver=(machine(), os.getpid()),
            share=share,
            hide_gpus=share is None and self._hides_gpus,
            progress=task.progress if self.jobs == 1 else None,
        )

    def run(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        jobs = min(self.jobs, len(tasks))
        with parallel_config(backend="loky", inner_max_num_threads=self.threads):
            outcomes = Parallel(n_jobs=jobs, return_as="generator_unordered")(
                delayed(run_cell)(task) for task in tasks
            )
        try:
            with warnings.catch_warnings():
                # Whoever stops listening knows that the others are not needed.
                warnings.filterwarnings("ignore", message=r"\d+ tasks which were still being")
                yield from outcomes
        except BrokenProcessPool as error:
            raise WorkersLost(str(error)) from error

    def run_alone(self, task: Task) -> Outcome:
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        with ProcessPoolExecutor(max_workers=1, env=threads) as executor:
            try:
                outcome: Outcome = executor.submit(run_cell, task).result()
                return outcome
            except BrokenProcessPool:
                return Outcome(task.cell.digest, "lost")

    def close(self, *, kill: bool = False) -> None:
        """The processes end: joblib would keep them for the next call."""
        if self.jobs > 1:
            end_processes(kill=kill)
        if self._agreed is not None:
            shutil.rmtree(self._agreed, ignore_errors=True)


def end_processes(*, kill: bool = False) -> None:
    """End the processes that joblib keeps for the next call: their variables are of this one."""
    get_reusable_executor().shutdown(wait=not kill, kill_workers=kill)
