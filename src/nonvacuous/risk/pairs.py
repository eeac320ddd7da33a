"""The risk of a random predictor, measured with independent pairs of weights and example.

Each trial draws one example, uniformly and with replacement, and all weights anew. The trials are
independent and identically distributed, so the number of errors is binomial with exactly the
empirical risk of the random predictor as its mean, and the exact binomial tail applies. Passing
one weight draw over the whole data set, in contrast, gives one independent trial for all its work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds.checks import count
from nonvacuous.distributions.copying import behind_fixed_front, copied_network, fixed_front
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.risk.estimate import (
    OutOfMemory,
    RiskEstimate,
    as_pair,
    check_device,
    check_evaluation_mode,
    check_labels,
    default_chunk,
    generator_on,
    is_out_of_memory,
    keep_pages,
    plain_precision,
)
from nonvacuous.risk.forward import Forward, LocalNoise, prepare
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.watched import Memory

# Which example each trial looks at, arranged so that equal examples stand together.

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
        forward, probe = prepare(module, posterior, inputs, local=local)
        check_labels(probe.outputs, labels)
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
                forward, probe = prepare(module, posterior, self._inputs, local=True)
            check_labels(probe.outputs, self._labels)
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
