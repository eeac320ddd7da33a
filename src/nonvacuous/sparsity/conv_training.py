"""Training a convolutional network toward a prior, under noise on its kernels.

A certificate rewards margins that survive weight noise and weights that stay near the prior; both
are asked for here, and nothing of it costs anything in a certificate: the theorem holds for all
weights at once. A prior is trained the same way, without a prior of its own.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nonvacuous.bounds import checks
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import share
from nonvacuous.sparsity.training import sound_loss
from nonvacuous.training.optimizers import build_optimizer, set_rate


@dataclass(frozen=True)
class ConvTraining:
    """How a network is trained: stochastic gradient descent with a cosine schedule.

    pull     weight of the squared distance to the prior
    noise    standard deviation of the noise on every weight: kernels of its own for every example
    shifts   images of a batch are moved by up to so many pixels; for priors, whose data are theirs
    mirrored images of every other batch are mirrored left to right; for priors too
    activity weight of the mean l1 norm of the activations before pooling, summed over layers;
             by_channel: of the norms of whole channels (times the root of their size) instead
    """

    steps: int = 1_500
    batch_size: int = 128
    learning_rate: float = 0.5
    momentum: float = 0.9
    pull: float = 0.0
    noise: float = 0.03
    shifts: int = 0
    activity: float = 0.0
    mirrored: bool = False
    by_channel: bool = False

    def __post_init__(self) -> None:
        checks.count("steps", self.steps)
        checks.count("batch_size", self.batch_size, minimum=1)
        checks.count("shifts", self.shifts)
        checks.positive("learning_rate", self.learning_rate)
        share("momentum", self.momentum)
        for name in ("pull", "noise", "activity"):
            checks.non_negative(name, getattr(self, name))


def step_size(hidden: int, *, learned: bool = False, pull: float = 0.0) -> float:
    """A learning rate that suits inputs of norm 1 and so many hidden layers.

    Smaller toward a learned prior, where training starts. A strong pull overshoots at large steps.
    """
    rate = (0.15 if hidden > 1 else 0.5) * (0.4 if learned else 1.0)
    return min(rate, 0.5 / pull) if pull else rate


def train_conv(
    module: nn.Module,
    examples: Examples,
    *,
    settings: ConvTraining,
    toward: nn.Module | None = None,
    seed: int,
    phase: str = "training",
    progress: Progress | None = None,
) -> nn.Module:
    """A trained copy of ``module``, in evaluation mode; the result depends on the arguments alone.

    toward   the prior, to which ``settings.pull`` applies; without it, the start
    """
    trained = copy.deepcopy(module).train()
    weights = list(trained.parameters())
    anchors = [p.detach().clone() for p in (toward or module).parameters()]
    if [w.shape for w in weights] != [a.shape for a in anchors]:
        raise BadInput("the network and its prior have weights of different shapes")
    device = weights[0].device
    inputs, labels = examples.inputs.to(device), examples.labels.to(device)
    order = torch.Generator().manual_seed(derived_seed(seed, phase, "order"))
    draws = torch.Generator(device).manual_seed(derived_seed(seed, phase, "noise"))
    hooks = _noisy(trained, settings.noise, draws) if settings.noise else []
    # After the noise, so that what is penalized is what the noisy network does.
    seen: list[Tensor] = []
    if settings.activity:
        hooks += [
            part.register_forward_hook(lambda layer, given, sums: seen.append(sums))
            for part in _layers(trained)
        ]
    optimizer = build_optimizer(
        "sgd", [(weights, settings.learning_rate)], momentum=settings.momentum, weight_decay=0.0
    )
    reporter = Reporter(progress, phase)
    for step in range(settings.steps):
        batch = torch.randint(len(labels), (settings.batch_size,), generator=order)
        images = _moved(inputs[batch.to(device)], settings.shifts, order)
        if settings.mirrored and step % 2:
            images = images.flip(3)
        set_rate(optimizer, "cosine", step / settings.steps)
        seen.clear()
        loss = functional.cross_entropy(trained(images), labels[batch.to(device)])
        total = loss
        if settings.activity:
            # The last one holds the scores, which are no activations.
            sizes = [_size(values.clamp(min=0), settings.by_channel) for values in seen[:-1]]
            total = total + settings.activity * torch.stack(sizes).sum() / len(images)
        if settings.pull:
            distance = sum((w - a).square().sum() for w, a in zip(weights, anchors, strict=True))
            total = total + settings.pull * distance
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if step % 50 == 0 or step + 1 == settings.steps:
            value = sound_loss(loss, phase, step, settings.steps, settings.learning_rate)
            reporter.report(step + 1, settings.steps, f"loss {value:.4f}")
    for hook in hooks:
        hook.remove()
    return trained.eval()


def without_biases(module: nn.Module) -> nn.Module:
    """A copy whose convolutions and linear layers have no biases, as certificates like it."""
    plain = copy.deepcopy(module)
    for part in _layers(plain):
        part.bias = None
    return plain


def _layers(module: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]


def _size(values: Tensor, by_channel: bool) -> Tensor:
    if not by_channel or values.dim() < 4:
        return values.sum()
    channels = values.flatten(2)
    # A root has no slope at zero, where silent channels are.
    norms = (channels.square().sum(2) + 1e-12).sqrt()
    return math.sqrt(channels.shape[2]) * norms.sum()


def _noisy(module: nn.Module, scale: float, generator: torch.Generator) -> list[Any]:
    """Add the effect of weight noise to what every convolution and linear layer computes."""

    def normal(*shape: int, like: Tensor) -> Tensor:
        return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)

    def linear(layer: nn.Module, given: tuple[Tensor, ...], sums: Tensor) -> Tensor:
        size = given[0].detach().norm(dim=-1, keepdim=True)
        return sums.add(scale * size * normal(*sums.shape, like=sums))

    def convolution(layer: nn.Module, given: tuple[Tensor, ...], sums: Tensor) -> Tensor:
        assert isinstance(layer, nn.Conv2d)
        kernel, dilation = layer.kernel_size, layer.dilation
        padding = layer.padding
        if isinstance(padding, str):
            same = padding == "same"
            padding = tuple(
                (k - 1) * d // 2 if same else 0 for k, d in zip(kernel, dilation, strict=True)
            )
        patches = functional.unfold(given[0], kernel, dilation, padding, layer.stride)
        kernels = normal(len(patches), layer.out_channels, patches.shape[1], like=sums)
        return sums + scale * (kernels @ patches).reshape(sums.shape)

    return [
        part.register_forward_hook(convolution if isinstance(part, nn.Conv2d) else linear)
        for part in _layers(module)
    ]


def _moved(images: Tensor, shifts: int, generator: torch.Generator) -> Tensor:
    if shifts == 0 or images.dim() != 4:
        return images
    down, right = torch.randint(-shifts, shifts + 1, (2,), generator=generator).tolist()
    return torch.roll(images, (down, right), (2, 3))
