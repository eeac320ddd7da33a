"""Steps recorded once as a CUDA graph and replayed: one launch instead of some two hundred.

Small networks on a fast GPU spend nearly all their time launching kernels. A recorded step repeats
the same kernels on the same memory, so it may only be used where the step's work depends on the
contents of tensors and never on their values in Python.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nonvacuous.errors import Unsupported

_TRIAL_RUNS = 3


class RecordedStep:
    """A function of a batch of indices, recorded once per batch size.

    `work` returns tensors and may also change tensors of its own in place. `generator` is the only
    source of random numbers it may use; seed it between `record` and the call.
    """

    def __init__(
        self, work: Callable[[Tensor], tuple[Tensor, ...]], *, generator: torch.Generator
    ) -> None:
        self._work = work
        self._generator = generator
        self._recordings: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, tuple[Tensor, ...]]] = {}

    def record(self, batch: Tensor, *, changed: Tensor) -> None:
        """Make sure that batches of this size are recorded; `changed` is what `work` changes.

        Recording runs the work a few times, after which `changed` is what it was before.
        """
        if len(batch) in self._recordings:
            return
        kept, held = changed.clone(), batch.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            stream = torch.cuda.Stream(device=batch.device)
            stream.wait_stream(torch.cuda.current_stream(batch.device))
            with torch.cuda.stream(stream):
                for _ in range(_TRIAL_RUNS):
                    self._work(held)
            torch.cuda.current_stream(batch.device).wait_stream(stream)
            graph.register_generator_state(self._generator)
            with torch.cuda.graph(graph):
                results = self._work(held)
        except RuntimeError as error:
            raise Unsupported(
                "This model cannot be recorded as a CUDA graph, which record=True asks for: "
                f"{error}. Its forward pass probably waits for the GPU or branches on the values "
                "of a tensor. Leave record out: training is then slower, with the same result."
            ) from error
        changed.copy_(kept)
        self._recordings[len(batch)] = (graph, held, results)

    def __call__(self, batch: Tensor) -> tuple[Tensor, ...]:
        """Replay. The tensors returned are overwritten by the next call of the same size."""
        graph, held, results = self._recordings[len(batch)]
        held.copy_(batch)
        graph.replay()
        return results
