"""What makes steps of training fast: CUDA graphs, tensor cores, channels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nonvacuous.errors import Unsupported

_TRIAL_RUNS = 3


class Recordings:
    """Works of a batch size, each recorded once and replayed in order on one stream.

    Small networks on a fast GPU spend nearly all their time launching kernels; a recording is one
    launch. A work may change tensors in place and must read everything that differs between two
    calls, the batch included, from tensors. Its random numbers come from torch's own generator, or
    from `generator`, which is to be seeded before each replay. `instead`: what to do where a work
    cannot be recorded.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        generator: torch.Generator | None = None,
        instead: str = 'Use method="one at a time": slower, with the same result.',
    ) -> None:
        self._generator, self._instead = generator, instead
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
                f"The GPU's memory does not hold the {name} as a CUDA graph: {error}. "
                f"Give fewer networks or smaller batches per call. {self._instead}"
            ) from error
        except RuntimeError as error:
            raise Unsupported(
                f"This network's {name} cannot be recorded as a CUDA graph: {_cause(error)}. Its "
                "forward pass probably waits for the GPU or branches on the values of a tensor. "
                f"{self._instead}"
            ) from error
        finally:
            with torch.no_grad():
                for tensor, value in zip(changing, kept, strict=True):
                    tensor.copy_(value)

    def __contains__(self, recording: tuple[str, int]) -> bool:
        return recording in self._graphs

    def _recorded(self, work: Callable[[int], None], size: int) -> torch.cuda.CUDAGraph:
        self.begin()
        with torch.cuda.stream(self._stream):
            for _ in range(_TRIAL_RUNS):
                work(size)
        self.end()
        torch.cuda.synchronize(self._stream.device)
        graph = torch.cuda.CUDAGraph()
        if self._generator is not None:
            graph.register_generator_state(self._generator)
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


class Branch:
    """What a GPU computes at the same time as what is asked of it next, recorded or not.

    Until `joined`, what the branch makes is not to be read, nor what it reads to be changed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device=device) if device.type == "cuda" else None

    @contextmanager
    def begun(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def joined(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


class Inputs:
    """Inputs by their indices; images with the channels side by side where the module allows it.

    Convolutions and pools are faster so.
    """

    def __init__(self, inputs: Tensor, module: nn.Module) -> None:
        self._inputs, self._channels_last = inputs, False
        if inputs.ndim != 4:
            return
        self._inputs, self._channels_last = inputs.permute(0, 2, 3, 1).contiguous(), True
        try:
            with torch.no_grad():
                module(self[torch.arange(min(3, len(inputs)), device=inputs.device)])
        except RuntimeError:
            # `Tensor.view`, in many networks before the first linear layer, refuses them so.
            self._inputs, self._channels_last = inputs, False

    def __getitem__(self, batch: Tensor) -> Tensor:
        inputs = self._inputs.index_select(0, batch)
        if not self._channels_last:
            return inputs
        # Even a single channel is said to be the last axis, or convolutions put it first.
        rows, height, width, channels = inputs.shape
        strides = (height * width * channels, 1, width * channels, channels)
        return inputs.as_strided((rows, channels, height, width), strides)


@contextmanager
def fast_arithmetic(device: torch.device) -> Iterator[None]:
    """TF32 products and tuned convolutions while networks train; the caller's choice afterwards."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    tuned = torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.benchmark = tuned


def full_precision(outputs: Tensor) -> Tensor:
    """Scores in which a loss can be computed: float32, or what is finer already."""
    return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs


def _cause(error: BaseException) -> str:
    """The first of a chain of errors: the end of a failed recording raises one that hides it."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error)
