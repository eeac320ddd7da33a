"""The risk of a random predictor, measured with independent pairs of weights and example.

Each trial draws one example, uniformly and with replacement, and all weights anew. The trials are
independent and identically distributed, so the number of errors is binomial with exactly the
empirical risk of the random predictor as its mean, and the exact binomial tail applies. Passing
one weight draw over the whole data set, in contrast, gives one independent trial for all its work
(see :mod:`nonvacuous.risk.shared`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.fixing import behind_fixed_front, fixed_front
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.risk import checks
from nonvacuous.risk.estimate import RiskEstimate
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.memory import default_chunk, plain_precision
from nonvacuous.risk.preparation import prepare
from nonvacuous.risk.trials import Piece, Schedule


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
    inputs, labels = checks.as_pair(examples)
    checks.check_evaluation_mode(module)
    checks.check_positive_count("trials", trials)
    checks.check_positive_count("chunk", chunk)
    posterior.check_covers(module)
    device = posterior.device
    checks.check_device(module, device)
    source = checks.generator_on(generator, device)
    with plain_precision(device):
        if fixed_front(module) is not None:
            module = copied_network(module)
            inputs = behind_fixed_front(module, inputs.to(device))
        forward, probe = prepare(module, posterior, inputs, local=local)
        checks.check_labels(probe.outputs, labels)
        schedule = Schedule(examples=len(labels), trials=trials, generator=source)
        sums: list[float] = []

        def work(piece: Piece) -> None:
            rows = piece.rows(device)
            outputs = forward(_pick(inputs, piece, device), rows, source)
            values = loss(outputs, _pick(labels, piece, device).index_select(0, rows))
            sums.append(loss.unit_sum(values))

        size = chunk if chunk is not None else default_chunk(forward.bytes_per_trial, device)
        schedule.run(work, chunk=size, generator=source, progress=progress)
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


def _pick(tensor: Tensor, piece: Piece, device: torch.device) -> Tensor:
    first, last = int(piece.examples[0]), int(piece.examples[-1])
    if last - first + 1 == len(piece.examples):
        # No example was skipped: a view of the data instead of a copy.
        return tensor[first : last + 1].to(device)
    return tensor.index_select(0, piece.examples.to(tensor.device)).to(device)
