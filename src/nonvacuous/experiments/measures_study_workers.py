"""Processes beside the one that trains: measures and statistics need no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from joblib.externals.loky import ProcessPoolExecutor
from numpy.typing import NDArray
from torch import nn

from nonvacuous.measures.panel import panel
from nonvacuous.measures.subject import Subject
from nonvacuous.models import build

Returned = TypeVar("Returned")
#: One thread each: there are as many processes as cores.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
State = dict[str, NDArray[Any]]


class Workers:
    """Some processes, or none: then work is done where it is asked for."""

    def __init__(self, processes: int) -> None:
        self._executor = (
            ProcessPoolExecutor(
                max_workers=processes,
                initializer=_single_threaded,
                env=dict.fromkeys(_THREADS, "1"),
            )
            if processes > 1
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=kind is not None)

    def submit(self, work: Callable[..., Returned], *arguments: Any) -> Future[Returned]:
        """A promise of what the work returns."""
        if self._executor is not None:
            promised: Future[Returned] = self._executor.submit(work, *arguments)
            return promised
        done: Future[Returned] = Future()
        done.set_result(work(*arguments))
        return done


def _single_threaded() -> None:
    torch.set_num_threads(1)


def measure_networks(
    model: str,
    classes: int,
    inputs: NDArray[Any],
    labels: NDArray[Any],
    states: Sequence[State],
    seeds: Sequence[int],
    only: tuple[str, ...],
) -> tuple[list[dict[str, Any]], float]:
    """Every measure of some networks of one kind on one training set, and the seconds it took.

    Arrays, not tensors: torch would share each one's memory with the other process by a file of its
    own, of which there may be only so many.
    """
    begun = time.perf_counter()
    shape = tuple(inputs.shape[1:])
    examples = (torch.from_numpy(inputs.copy()), torch.from_numpy(labels.copy()))
    found = []
    for state, seed in zip(states, seeds, strict=True):
        initial = build(model, shape, classes, seed=seed)
        module = build(model, shape, classes, seed=seed)
        module.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in state.items()})
        measured = panel(
            module,
            examples,
            initial=initial,
            only=only or None,
            like=_captured(model, shape, classes),
        )
        found.append({entry.measure.name: entry.result.to_dict() for entry in measured.entries})
    return found, time.perf_counter() - begun


@lru_cache(maxsize=32)
def _captured(model: str, shape: tuple[int, ...], classes: int) -> Subject:
    network: nn.Module = build(model, shape, classes, seed=0)
    return Subject.of(network, torch.zeros(2, *shape))
