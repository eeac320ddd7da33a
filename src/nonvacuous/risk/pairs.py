"""The risk of a random predictor, measured with independent pairs of weights and example.

Each trial draws one example, uniformly and with replacement, and all weights anew. The trials are
independent and identically distributed, so the number of errors is binomial with exactly the
empirical risk of the random predictor as its mean, and the exact binomial tail applies. Passing
one weight draw over the whole data set, in contrast, gives one independent trial for all its work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds.checks import count
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.errors import BadInput, NonvacuousError, WrongMode
from nonvacuous.models.fronts import behind_fixed_front, fixed_front
from nonvacuous.risk.forward import Forward, LocalNoise, is_out_of_memory, prepare
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.watched import Memory


@dataclass(frozen=True)
class RiskEstimate:
    """Losses summed over independent trials.

    ``trials`` is the number of *independent* trials, whatever the number of forward passes:
    the only count a sampling bound may use. ``total`` is the sum of the losses of the trials in
    units of the loss's range, so 0 <= total <= trials; ``errors`` is that sum as an integer
    when each trial is an error or not, and None otherwise. ``identical`` says that the trials
    share one law, which the exact binomial tail needs.
    """

    errors: int | None
    trials: int
    total: float
    scheme: str
    identical: bool
    loss: str
    method: str
    examples: int
    lower: float = 0.0
    upper: float = 1.0

    @property
    def risk(self) -> float:
        """The mean loss in the loss's own units: an estimate, without a confidence."""
        return self.lower + (self.upper - self.lower) * self.total / self.trials


# A piece on a processor should stay near its caches; on an accelerator it should fill the chip.
_PROCESSOR_BYTES = 48 << 20
_ACCELERATOR_BYTES = 4 << 30
_LARGEST_CHUNK = 1 << 20


class OutOfMemory(NonvacuousError, MemoryError):
    """Memory runs out even for the smallest piece of work."""


def default_chunk(bytes_per_trial: int, device: torch.device) -> int:
    """How many trials to run at once: a function of network and device alone.

    It does not look at the memory that happens to be free, because the size of the pieces decides
    which trial gets which noise: the same seed must give the same result tomorrow.
    """
    room = _PROCESSOR_BYTES if device.type == "cpu" else _ACCELERATOR_BYTES
    return max(1, min(_LARGEST_CHUNK, room // max(1, bytes_per_trial)))


def keep_pages(device: torch.device) -> None:
    """Let the processor's allocator keep what it has for pieces that follow one another.

    By default glibc returns memory of several megabytes to the system and fetches every page anew,
    a quarter of the time of a trial. Having freed one block of nearly 32 MiB, it keeps twice that.
    """
    if device.type == "cpu":
        torch.empty((32 << 20) - 8192, dtype=torch.uint8)


@contextmanager
def plain_precision(device: torch.device) -> Iterator[None]:
    """No gradients, no automatic mixed precision, and float32 convolutions in full float32.

    By default cuDNN may round the inputs of float32 convolutions to 10 bits (TF32). The setting
    is put back on leaving.
    """
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        if device.type != "cuda":
            yield
            return
        settings = torch.backends.cudnn
        with settings.flags(
            enabled=settings.enabled,
            benchmark=settings.benchmark,
            deterministic=settings.deterministic,
            allow_tf32=False,
        ):
            yield


def as_pair(examples: Any) -> tuple[Tensor, Tensor]:
    """Inputs and labels of an object with ``.inputs`` and ``.labels``, or of a pair of tensors."""
    if hasattr(examples, "inputs") and hasattr(examples, "labels"):
        inputs, labels = examples.inputs, examples.labels
    else:
        try:
            inputs, labels = examples
        except (TypeError, ValueError):
            raise BadInput(
                "examples must have .inputs and .labels, or be a pair of tensors (inputs, labels), "
                f"got {type(examples).__name__}"
            ) from None
    if not isinstance(inputs, Tensor) or not isinstance(labels, Tensor):
        raise BadInput("the inputs and the labels of the examples must be tensors")
    if labels.ndim != 1 or labels.is_floating_point() or len(inputs) != len(labels):
        raise BadInput(
            "labels must be a flat integer tensor with one label for each input, got inputs "
            f"{tuple(inputs.shape)} and labels {tuple(labels.shape)} {labels.dtype}"
        )
    if len(labels) == 0:
        raise BadInput("there are no examples; a risk needs at least one")
    return inputs.detach(), labels.detach().long()


def check_evaluation_mode(module: nn.Module) -> None:
    """Refuse a network any part of which still behaves as in training."""
    for name, part in module.named_modules():
        if part.training:
            where = f"its layer {name!r}" if name else "the network"
            raise WrongMode(
                f"{where} ({type(part).__name__}) is in training mode, where predictions may "
                "depend on the batch or on chance; call module.eval() first"
            )


def check_labels(outputs: Tensor, labels: Tensor) -> None:
    """Refuse labels that the network has no score for."""
    if isinstance(outputs, Tensor) and outputs.ndim == 2 and len(labels):
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= outputs.shape[1]:
            raise BadInput(
                f"the labels run from {lowest} to {highest}, but the network returns "
                f"{outputs.shape[1]} scores; it was built for other classes"
            )


def generator_on(generator: torch.Generator, device: torch.device) -> torch.Generator:
    """The generator itself if it lives on the device, else one there, seeded by it."""
    if not isinstance(generator, torch.Generator):
        raise BadInput(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator.device.type == device.type:
        return generator
    seed = torch.randint(2**63 - 1, (), generator=generator, device=generator.device)
    return torch.Generator(device).manual_seed(int(seed))


def check_device(module: nn.Module, device: torch.device) -> None:
    """Refuse a module of which some tensor is not on the device of the posterior."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device != device:
            raise BadInput(
                f"{name!r} of the module is on {tensor.device}, the posterior on {device}; move "
                "both to one device (module.to, posterior.to)"
            )


_BLOCK = 1 << 24


class Schedule:
    """Trials whose examples were drawn uniformly with replacement, sorted by example.

    A sum over all trials does not depend on their order, so sorting changes nothing but speed:
    what precedes the noise in a network is computed once for each distinct example.
    """

    def __init__(self, *, examples: int, trials: int, generator: torch.Generator) -> None:
        counts = torch.zeros(examples, dtype=torch.int64, device=generator.device)
        for start in range(0, trials, _BLOCK):
            size = (min(_BLOCK, trials - start),)
            drawn = torch.randint(examples, size, generator=generator, device=generator.device)
            counts += torch.bincount(drawn, minlength=examples)
        self.ends = counts.cumsum(0).cpu().numpy()

    def piece(self, start: int, stop: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The distinct examples of the trials from ``start`` up to and without ``stop``; and on the
        device, for each trial, the position of its example among these."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, stop, side="left"))
        ends = np.clip(self.ends[first : last + 1], start, stop)
        repeats = np.diff(ends, prepend=start)
        present = np.flatnonzero(repeats)
        times = torch.from_numpy(repeats[present]).to(device)
        rows = torch.repeat_interleave(times, output_size=stop - start)
        return torch.from_numpy(first + present), rows


def estimate_risk(
    module: nn.Module,
    posterior: DiagonalGaussian,
    examples: Any,
    *,
    loss: Loss = zero_one,
    trials: int = 100_000,
    generator: torch.Generator,
    chunk: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    local: bool = True,
) -> RiskEstimate:
    """Losses of independent draws of weights and example.

    module      the network, in evaluation mode; only its architecture and buffers count, and it
                is neither changed nor kept
    posterior   the distribution of its weights, covering every parameter
    examples    anything with ``.inputs`` and ``.labels``, or a pair of tensors; they may stay on
                the processor while the posterior is on an accelerator
    trials      how many independent trials
    generator   the source of all randomness; one on another device than the posterior seeds a
                new one there
    chunk       trials computed at once (default: a size that suits network and device); another
                size draws other noise from the same generator, and so does running out of
                memory, after which the work goes on in pieces half as large
    progress    called with (done, total) after every chunk
    local       use exact per-layer noise where possible; False draws every weight of every trial

    The noise has the dtype of the posterior, float32 for most networks, and convolutions on a GPU
    do not use TF32. Outputs that are not finite count as the worst loss.
    """
    inputs, labels = as_pair(examples)
    check_evaluation_mode(module)
    trials = count("trials", trials, minimum=1)
    if chunk is not None:
        count("chunk", chunk, minimum=1)
    posterior.check_covers(module)
    device = posterior.device
    check_device(module, device)
    source = generator_on(generator, device)
    with plain_precision(device):
        if fixed_front(module) is not None:
            module = copied_network(module)
            inputs = behind_fixed_front(module, inputs.to(device))
        forward, outputs = prepare(module, posterior, inputs, local=local)
        check_labels(outputs, labels)
        return _estimate(
            forward, inputs, labels, source, loss, trials, chunk=chunk, progress=progress
        )


class RiskPilot:
    """Estimates of many posteriors of one network, to choose among them.

    The network is looked at with the first posterior; the next ones run it in the same way.
    """

    def __init__(self, module: nn.Module, examples: Any) -> None:
        self._module, self._examples = module, examples
        self._inputs, self._labels = as_pair(examples)
        self._forward: LocalNoise | None = None
        self._known = fixed_front(module) is not None

    def __call__(
        self, posterior: DiagonalGaussian, *, loss: Loss, trials: int, generator: torch.Generator
    ) -> RiskEstimate:
        module = self._module
        if not self._known:
            self._known = True
            check_evaluation_mode(module)
            with plain_precision(posterior.device):
                forward, outputs = prepare(module, posterior, self._inputs, local=True)
            check_labels(outputs, self._labels)
            if isinstance(forward, LocalNoise):
                # Posteriors around one point differ only in what follows its first products.
                self._forward, forward.memory = forward, Memory()
        if self._forward is None:
            return estimate_risk(
                module, posterior, self._examples, loss=loss, trials=trials, generator=generator
            )
        source = generator_on(generator, posterior.device)
        with plain_precision(posterior.device):
            forward = self._forward.around(posterior)
            return _estimate(forward, self._inputs, self._labels, source, loss, trials)


def _estimate(
    forward: Forward,
    inputs: Tensor,
    labels: Tensor,
    source: torch.Generator,
    loss: Loss,
    trials: int,
    *,
    chunk: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RiskEstimate:
    """Trials piece by piece; when memory runs out, it goes on with pieces half as large."""
    device = source.device
    memory = forward.memory if isinstance(forward, LocalNoise) else None
    schedule = Schedule(examples=len(labels), trials=trials, generator=source)
    keep_pages(device)

    def losses(start: int, stop: int) -> float:
        examples, rows = schedule.piece(start, stop, device)
        seen, wanted = (
            _pick(tensor, examples) if memory is None else memory(_pick, tensor, examples)
            for tensor in (inputs, labels)
        )
        outputs = forward(seen.to(device), rows, source)
        return loss.unit_sum(loss(outputs, wanted.to(device).index_select(0, rows)))

    size = chunk if chunk is not None else default_chunk(forward.bytes_per_trial, device)
    done, sums = 0, list[float]()
    while done < trials:
        stop = min(done + size, trials)
        state = source.get_state()
        try:
            sums.append(losses(done, stop))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if stop - done == 1:
                raise OutOfMemory(
                    "memory runs out even for a single trial of this network; free memory on "
                    f"{device}, or use a smaller network or another device"
                ) from error
            size = (stop - done) // 2
            # The same noise again, so that the result is a function of the seed alone.
            source.set_state(state)
            torch.cuda.empty_cache()  # nothing where no GPU is used
            continue
        done = stop
        if progress is not None:
            progress(done, trials)
    total = min(float(trials), math.fsum(sums))
    return RiskEstimate(
        errors=int(total) if loss.binary else None,
        trials=trials,
        total=total,
        scheme="pairs",
        identical=True,
        loss=loss.name,
        method=forward.method,
        examples=len(labels),
        lower=loss.lower,
        upper=loss.upper,
    )


def _pick(tensor: Tensor, examples: Tensor) -> Tensor:
    first, last = int(examples[0]), int(examples[-1])
    if last - first + 1 == len(examples):
        # No example was skipped: a view of the data instead of a copy.
        return tensor[first : last + 1]
    return tensor.index_select(0, examples.to(tensor.device))
