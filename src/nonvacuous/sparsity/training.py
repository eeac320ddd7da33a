"""Training a plain ReLU chain toward a prior, and for its certificate.

The objective is
    cross-entropy + pull / layers * sum of |W_k - prior_k|^2
with, where asked for, what a certificate rewards: weight noise (the margin must survive it), a
penalty on units whose sign the noise could flip, an l1 penalty on activations, and a limit on the
spectral norms between hidden layers, whose product is the price of depth.

Nothing here costs anything in a certificate: the theorems hold for all weights at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nonvacuous.bounds import checks
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.risk.losses import class_margins
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import share
from nonvacuous.sparsity.radii import forward
from nonvacuous.training.checks import one_of
from nonvacuous.training.loop import Diverged
from nonvacuous.training.optimizers import OPTIMIZERS, SCHEDULES, build_optimizer, set_rate

# Plain ReLU chains: linear layers without biases, ReLU between them, inputs of norm 1.
#
# This is the network of the sparsity theorems. A chain travels as the tuple of its weight matrices,
# first layer first, each of shape (outputs, inputs).

Chain = tuple[Tensor, ...]
STARTS = ("gaussian", "identity", "orthogonal")
_CHUNK = 8192


def unit_norm(examples: Examples, *, centered: bool = False) -> Examples:
    """The examples with flat inputs of Euclidean norm 1; an input of zeros stays as it is.

    A function of one input alone, so nothing is fitted to the data. ``centered`` takes the mean of
    an input's own entries away first: photographs differ in little else than what is left.
    """
    flat = examples.inputs.flatten(1).double()
    if centered:
        flat = flat - flat.mean(dim=1, keepdim=True)
    norms = flat.norm(dim=1, keepdim=True)
    # Rounding to float32 must not push a norm above 1: the theorems rest on it.
    scaled = flat / torch.where(norms > 0, norms * (1 + 1e-6), 1.0)
    steps = ("mean 0", "norm 1") if centered else ("norm 1",)
    return examples.prepared(scaled.to(examples.inputs.dtype), *steps)


def scaled(examples: Examples) -> Examples:
    """The examples with inputs of norm 1, in their shape."""
    flat = unit_norm(examples)
    return replace(flat, inputs=flat.inputs.reshape(examples.inputs.shape))


def initial_chain(
    sizes: Sequence[int], *, seed: int, start: str = "gaussian", spread: float = 0.1
) -> Chain:
    """Random weights for layers of these sizes, inputs first and classes last.

    start    gaussian: independent entries of variance 2 / inputs. identity: the square layers
             between hidden ones are the identity plus Gaussian entries of standard deviation
             spread / sqrt(inputs); such a layer neither shrinks nor blows up what it is given, so
             that the product of spectral norms stays near 1 at any depth. orthogonal: these layers
             are random rotations
    """
    if start not in STARTS:
        raise BadInput(f"start is {start!r}; choose one of {', '.join(STARTS)}")
    if len(sizes) < 2 or any(size < 1 for size in sizes):
        raise BadInput(
            f"sizes {tuple(sizes)} are no chain; give inputs, hidden widths and classes, such as "
            "(784, 100, 10)"
        )
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for layer, (incoming, outgoing) in enumerate(pairwise(sizes)):
        entries = torch.randn(outgoing, incoming, generator=generator, device="cpu")
        between = 0 < layer < len(sizes) - 2 and incoming == outgoing
        if start == "identity" and between:
            unit = torch.eye(outgoing, device="cpu")
            weights.append(unit + entries * (spread / math.sqrt(incoming)))
        elif start == "orthogonal" and between:
            weights.append(torch.linalg.qr(entries).Q.contiguous())
        else:
            weights.append(entries * math.sqrt(2.0 / incoming))
    return tuple(weights)


def chain_errors(weights: Sequence[Tensor], examples: Examples) -> int:
    """How many examples the chain gets wrong; a tie with the true class counts as wrong."""
    wrong = 0
    chunks = (part.split(_CHUNK) for part in (examples.inputs, examples.labels))
    for inputs, labels in zip(*chunks, strict=True):
        _, scores = forward(weights, inputs.to(weights[0].dtype))
        wrong += int((class_margins(scores, labels) <= 0).sum())
    return wrong


def squared_distances(weights: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(
        float((mine.double() - theirs.double()).square().sum())
        for mine, theirs in zip(weights, other, strict=True)
    )


def spectral_norms(weights: Sequence[Tensor]) -> tuple[float, ...]:
    """The spectral norm of each layer, for people to read: certificates round their own up."""
    return tuple(float(torch.linalg.matrix_norm(matrix.double(), 2)) for matrix in weights)


#: Steps between two projections onto the limit of the spectral norms.
_PROJECT_EVERY = 10


@dataclass(frozen=True)
class ChainTraining:
    """How a chain is trained.

    steps              of stochastic gradient descent
    pull               the weight of the squared distance to the prior (lambda of the paper)
    noise              standard deviation of fresh Gaussian noise on every weight: one number, or
                       one for each layer. It is drawn where it acts, on the pre-activations
    stability          weight of the penalty on units within `stability_level` of their kink,
                       measured in norms of the layer's input
    activity           weight of the mean l1 norm of the activations, summed over layers; with
                       `activity_block` above 1 of the sum of the norms of blocks of so many units
                       (times the root of that number), so that blocks fall silent together
    orthogonal         weight of the squared distance of W W^T from the identity, summed over the
                       layers between hidden layers
    spectral_limit     upper limit of the spectral norms of the layers between hidden layers
    decay              ordinary weight decay, for priors
    """

    steps: int = 3_000
    batch_size: int = 256
    learning_rate: float = 0.1
    momentum: float = 0.9
    optimizer: str = "sgd"
    schedule: str = "cosine"
    pull: float = 0.0
    noise: float | tuple[float, ...] = 0.0
    stability: float = 0.0
    stability_level: float = 0.1
    activity: float = 0.0
    spectral_limit: float | None = None
    decay: float = 0.0
    orthogonal: float = 0.0
    activity_block: int = 1

    def __post_init__(self) -> None:
        checks.count("steps", self.steps)
        checks.count("batch_size", self.batch_size, minimum=1)
        checks.count("activity_block", self.activity_block, minimum=1)
        for name in ("learning_rate", "stability_level"):
            checks.positive(name, getattr(self, name))
        for name in ("pull", "stability", "activity", "decay", "orthogonal"):
            checks.non_negative(name, getattr(self, name))
        share("momentum", self.momentum)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("schedule", self.schedule, SCHEDULES)
        if isinstance(self.noise, list):
            object.__setattr__(self, "noise", tuple(self.noise))
        for value in self.noise if isinstance(self.noise, tuple) else (self.noise,):
            checks.non_negative("noise", value)
        if self.spectral_limit is not None:
            checks.positive("spectral_limit", self.spectral_limit)

    def noise_of(self, layers: int) -> tuple[float, ...]:
        if not isinstance(self.noise, tuple):
            return (float(self.noise),) * layers
        if len(self.noise) != layers:
            raise BadInput(
                f"noise names {len(self.noise)} layers, but the chain has {layers}; give one "
                "number, or one for each layer"
            )
        return self.noise


def train_chain(
    start: Sequence[Tensor],
    examples: Examples,
    *,
    settings: ChainTraining,
    toward: Sequence[Tensor] | None = None,
    seed: int,
    phase: str = "training",
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Chain:
    """Train a copy of ``start``; the result depends on the arguments alone (on a CPU).

    toward   the prior's weights, to which `settings.pull` applies; without it, the start
    device   where to train, and where the result lies; without it, where the start lies
    """
    _check(start, examples, toward)
    device = torch.device(device) if device is not None else start[0].device
    examples = examples.to(device)
    inputs, labels = examples.inputs.flatten(1), examples.labels
    anchors = [matrix.detach().to(device) for matrix in (toward or start)]
    weights = [matrix.detach().to(device, copy=True).requires_grad_() for matrix in start]
    groups = [(weights, settings.learning_rate)]
    optimizer = build_optimizer(
        settings.optimizer, groups, momentum=settings.momentum, weight_decay=settings.decay
    )
    draws = torch.Generator(anchors[0].device).manual_seed(derived_seed(seed, phase, "noise"))
    order = torch.Generator().manual_seed(derived_seed(seed, phase, "order"))
    reporter = Reporter(progress, phase)
    size = min(settings.batch_size, len(labels))
    queue = torch.empty(0, dtype=torch.int64, device=device)
    running = float("nan")
    for step in range(settings.steps):
        if len(queue) < size:
            queue = torch.randperm(len(labels), generator=order, device="cpu").to(device)
        batch, queue = queue[:size], queue[size:]
        set_rate(optimizer, settings.schedule, step / settings.steps)
        optimizer.zero_grad()
        total, fit = _losses(settings, weights, anchors, inputs[batch], labels[batch], draws)
        total.backward()
        optimizer.step()
        if settings.spectral_limit is not None and step % _PROJECT_EVERY == 0:
            limit_spectral_norms(weights, settings.spectral_limit)
        if step % 50 == 0 or step + 1 == settings.steps:
            value = sound_loss(fit, phase, step, settings.steps, settings.learning_rate)
            running = value if running != running else 0.7 * running + 0.3 * value
            reporter.report(step + 1, settings.steps, f"loss {running:.4f}")
    if settings.spectral_limit is not None:
        limit_spectral_norms(weights, settings.spectral_limit)
    return tuple(matrix.detach() for matrix in weights)


def sound_loss(loss: Tensor, phase: str, step: int, steps: int, rate: float) -> float:
    """The loss as a number, unless training has diverged."""
    value = float(loss.detach())
    if not value < 1e6:
        raise Diverged(
            f"{phase}: the loss is {value:g} after {step + 1} of {steps} steps. Try less noise, "
            f"pull or activity, or a smaller learning_rate (now {rate:g})."
        )
    return value


def _losses(
    settings: ChainTraining,
    weights: Sequence[Tensor],
    anchors: Sequence[Tensor],
    inputs: Tensor,
    labels: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """The loss of one batch: all of it, and the cross-entropy alone."""
    hidden = inputs
    extra = inputs.new_zeros(())
    last = len(weights) - 1
    for layer, (matrix, noise) in enumerate(zip(weights, settings.noise_of(last + 1), strict=True)):
        sums = hidden @ matrix.T
        norms = hidden.norm(dim=1, keepdim=True)
        if layer < last and settings.stability:
            # Only the pre-activations are pushed: shrinking the input would be no help.
            level = settings.stability_level * norms.detach() + 1e-12
            short = torch.relu(1.0 - sums.abs() / level)
            extra = extra + settings.stability * short.square().mean()
        if noise:
            # The sum of independent noise on the weights is Gaussian with this deviation.
            kind: dict[str, Any] = {"device": sums.device, "dtype": sums.dtype}
            sums = sums + noise * norms * torch.randn(sums.shape, generator=generator, **kind)
        if layer == last:
            break
        hidden = torch.relu(sums)
        if settings.activity:
            extra = extra + settings.activity * _block_norms(hidden, settings.activity_block)
    fit = cross_entropy(sums, labels)
    if settings.pull:
        pairs = zip(weights, anchors, strict=True)
        distance = sum((matrix - anchor).square().sum() for matrix, anchor in pairs)
        extra = extra + settings.pull / len(weights) * distance
    if settings.orthogonal:
        for matrix in weights[1:-1]:
            gram = matrix @ matrix.T
            away = (gram - torch.eye(len(gram), device=gram.device)).square().sum()
            extra = extra + settings.orthogonal * away
    return fit + extra, fit


def _block_norms(hidden: Tensor, block: int) -> Tensor:
    """The mean over examples of the summed norms of blocks of units; l1 for blocks of one."""
    if block == 1:
        return hidden.sum(dim=1).mean()
    blocks = hidden.reshape(len(hidden), -1, block)
    # A root has no slope at zero, where silent blocks are.
    norms = (blocks.square().sum(dim=2) + 1e-12).sqrt()
    return math.sqrt(block) * norms.sum(dim=1).mean()


@torch.no_grad()
def limit_spectral_norms(weights: Sequence[Tensor], limit: float) -> None:
    """Clip the singular values of the layers between hidden layers, in place.

    The first layer and the last are left alone: their sizes only set the scale of the noise that
    is put on them.
    """
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for matrix in weights[1:-1]:
        by_shape.setdefault(matrix.shape, []).append(matrix)
    for (rows, columns), matrices in by_shape.items():
        # All layers of one shape at once, and nothing is asked back from an accelerator.
        stack = torch.stack(matrices)
        gram = stack @ stack.mT if rows <= columns else stack.mT @ stack
        values, vectors = torch.linalg.eigh(gram.double())
        singular = values.clamp_min(0.0).sqrt()
        factors = torch.where(singular > limit, limit / singular, 1.0)
        clip = ((vectors * factors[:, None]) @ vectors.mT).to(stack.dtype)
        clipped = clip @ stack if rows <= columns else stack @ clip
        within = (singular[:, -1] <= limit)[:, None, None]
        for matrix, kept in zip(matrices, torch.where(within, stack, clipped), strict=True):
            matrix.copy_(kept)


def _check(start: Sequence[Tensor], examples: Examples, toward: Sequence[Tensor] | None) -> None:
    if len(start) < 2:
        raise BadInput("a chain needs at least two layers: a hidden one and the output")
    features = examples.inputs[:1].flatten(1).shape[1]
    if start[0].shape[1] != features or start[-1].shape[0] != examples.classes:
        raise BadInput(
            f"the chain takes {start[0].shape[1]} inputs to {start[-1].shape[0]} classes, but "
            f"{examples.name} has {features} and {examples.classes}; build it for these examples"
        )
    if toward is not None and [m.shape for m in toward] != [m.shape for m in start]:
        raise BadInput("the prior and the start have layers of different shapes")
