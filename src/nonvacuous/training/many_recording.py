"""The steps of one trainer, recorded as CUDA graphs that replay on a stream of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

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


# Counting losses and errors of networks in evaluation mode.

MEASURED_AT_ONCE = 1000
"""Examples per batch of a network by itself: enough to fill a GPU, few enough for its memory, and
a divisor of the usual sizes, so that no batch is nearly empty."""
STACKED_MEASURED_AT_ONCE = 4000
"""Examples per batch of all stacked networks together."""


@dataclass(frozen=True)
class Measured:
    """One network at one moment."""

    train_loss: float
    train_errors: int
    marked_errors: int | None
    test_errors: int | None

    @property
    def finite(self) -> bool:
        """Whether the network still computes with finite numbers."""
        return math.isfinite(self.train_loss)


@dataclass(eq=False)
class Tally:
    """Sums for some networks over one set of examples: loss, errors, errors among the marked."""

    sums: Tensor

    @classmethod
    def of(cls, networks: int, device: torch.device) -> Tally:
        """All zeros."""
        return cls(torch.zeros(networks, 3, dtype=torch.float64, device=device))

    def add(self, outputs: Tensor, labels: Tensor, marked: Tensor | None, valid: Tensor) -> None:
        """Count outputs of shape (networks, batch, classes) where `valid` (batch) is true."""
        outputs = full_precision(outputs)
        losses = cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
        losses = torch.where(valid, losses.view(labels.shape), 0.0)
        wrong = (outputs.argmax(dim=2) != labels) & valid
        among = torch.zeros_like(wrong) if marked is None else wrong & marked
        counts = torch.stack([losses, wrong, among], dim=2)
        self.sums += counts.sum(dim=1, dtype=torch.float64)


def read(
    train: Sequence[Tally],
    test: Sequence[Tally] | None,
    *,
    examples: int,
    marked: bool,
) -> list[Measured]:
    """All tallies, in one transfer from the device."""
    sums = torch.cat([tally.sums for tally in (*train, *(test or ()))]).tolist()
    networks = len(sums) // (2 if test else 1)
    return [
        Measured(
            train_loss=sums[number][0] / examples,
            train_errors=round(sums[number][1]),
            marked_errors=round(sums[number][2]) if marked else None,
            test_errors=round(sums[networks + number][1]) if test else None,
        )
        for number in range(networks)
    ]


def full_precision(outputs: Tensor) -> Tensor:
    """Scores in which a loss can be computed: float32, or what is finer already."""
    return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs


def following(start: Tensor, size: int, examples: int) -> Tensor:
    """The places start, start + 1, ..., beginning anew after the last one.

    An epoch never gets there; the trial runs before a recording do.
    """
    return (start + torch.arange(size, device=start.device)) % examples


def window(start: Tensor, size: int, examples: int) -> tuple[Tensor, Tensor]:
    """The places start, start + 1, ... and which of them exist; the others repeat the last one."""
    positions = start + torch.arange(size, device=start.device)
    return positions.clamp(max=examples - 1), positions < examples
