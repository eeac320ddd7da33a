"""The steps of one trainer, recorded as CUDA graphs that replay on a stream of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nonvacuous.errors import Unsupported

_TRIAL_RUNS = 3


class Recordings:
    """Works of a batch size, each recorded once and replayed in order on one stream.

    A work may change tensors in place and must read everything that differs between two calls, the
    batch included, from tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device=device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[tuple[str, int], torch.cuda.CUDAGraph] = {}

    def record(
        self, name: str, size: int, work: Callable[[int], None], *, changing: Sequence[Tensor]
    ) -> None:
        """Make sure that `work(size)` is recorded; what it changes is afterwards as before."""
        if (name, size) in self._graphs:
            return
        kept = [tensor.detach().clone() for tensor in changing]
        try:
            self._graphs[name, size] = self._recorded(work, size)
        except torch.OutOfMemoryError as error:
            raise Unsupported(
                f"The GPU's memory does not hold so many networks side by side: {error}. Give "
                'fewer jobs per call, or use method="one at a time".'
            ) from error
        except RuntimeError as error:
            raise Unsupported(
                f"This network's {name} cannot be recorded as a CUDA graph: {_cause(error)}. Its "
                "forward pass probably waits for the GPU or branches on the values of a tensor. "
                'Use method="one at a time": slower, with the same result.'
            ) from error
        finally:
            with torch.no_grad():
                for tensor, value in zip(changing, kept, strict=True):
                    tensor.copy_(value)

    def _recorded(self, work: Callable[[int], None], size: int) -> torch.cuda.CUDAGraph:
        self.begin()
        with torch.cuda.stream(self._stream):
            for _ in range(_TRIAL_RUNS):
                work(size)
        self.end()
        torch.cuda.synchronize(self._stream.device)
        graph = torch.cuda.CUDAGraph()
        # Relaxed: the libraries beneath may load a kernel for the first time while this records.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="relaxed"
        ):
            work(size)
        return graph

    def begin(self) -> None:
        """Let the stream wait for what was asked of the device so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))

    def replay(self, name: str, size: int) -> None:
        """Repeat the work, after all that this object was asked before."""
        with torch.cuda.stream(self._stream):
            self._graphs[name, size].replay()

    def end(self) -> None:
        """Let what is asked of the device from now on wait for the stream."""
        torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def forget(self) -> None:
        """Drop all recordings, as is needed when the tensors they work on are replaced."""
        self._graphs.clear()


def _cause(error: BaseException) -> str:
    """The first of a chain of errors: the end of a failed recording raises one that hides it."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error)
