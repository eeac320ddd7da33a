"""Noise on the weights themselves, drawn weight by weight: the slow truth behind noisy passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from nonvacuous.sparsity.judging import Evaluator
from nonvacuous.sparsity.noise import Inputs, NoisyPass
from nonvacuous.sparsity.setting import Setting, UniformSetting
from nonvacuous.sparsity.theorem_a import UniformEvaluator, growths
from nonvacuous.sparsity.weights import Layers


def random_layers(
    sizes: tuple[int, ...], generator: torch.Generator, *, bias: bool = False
) -> Layers:
    """Gaussian weights with variance 2 / inputs."""
    weights = [
        torch.randn(o, i, generator=generator, dtype=torch.float64) * (2.0 / i) ** 0.5
        for i, o in pairwise(sizes)
    ]
    biases = [0.3 * torch.randn(w.shape[0], generator=generator).double() for w in weights]
    return Layers.of(weights, biases if bias else None)


def chain_module(weights: Sequence[Tensor]) -> nn.Sequential:
    """A chain of matrices as an ordinary network."""
    layers: list[nn.Module] = []
    for matrix in weights:
        linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        linear.weight = nn.Parameter(matrix.detach().clone(), requires_grad=False)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def tied(layers: Layers, point: Tensor, label: int, rival: int) -> Layers:
    """The same network with output weights moved so that ``point`` is a tie: barely an error."""
    values = point.double()
    for matrix, bias in zip(layers.weights[:-1], layers.biases[:-1], strict=True):
        values = (matrix @ values + (0.0 if bias is None else bias)).clamp(min=0)
    output = layers.weights[-1].clone()
    last = layers.biases[-1]
    gap = (output[label] - output[rival]) @ values
    if last is not None:
        gap = gap + last[label] - last[rival]
    size = values @ values
    if float(size) == 0.0:
        return layers
    # A hair beyond the tie, so that rounding cannot make the point right.
    output[label] -= values * (gap / size) * (1.0 + 1e-12) + values * (1e-13 / size)
    return Layers((*layers.weights[:-1], output), layers.biases, layers.names)


def true_noise(
    layers: Layers, point: Tensor, sigmas: tuple[float, ...], draws: int, gen: torch.Generator
) -> tuple[NoisyPass, Tensor]:
    """``draws`` networks with noise on every weight and bias, run on one point."""
    values = point.double().expand(draws, -1)
    first_size = point.double().square().sum()
    before, scales = [], []
    for k, (matrix, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
        noisy = matrix + sigmas[k] * torch.randn(
            draws, *matrix.shape, generator=gen, dtype=torch.float64
        )
        squares = values.square().sum(1)
        output = torch.einsum("noi,ni->no", noisy, values)
        if bias is not None:
            squares = squares + 1.0
            output = output + bias
            output = output + sigmas[k] * torch.randn(draws, len(bias), generator=gen).double()
        scales.append(sigmas[k] * squares.sqrt())
        if k < layers.hidden:
            before.append(output)
            values = output.clamp(min=0)
    return NoisyPass(tuple(before), tuple(scales), output), first_size


def point_inputs(layers: Layers, prior: Layers, point: Tensor, label: int, draws: int) -> Inputs:
    """The same point once for every draw."""
    x = point.double()
    known = prior.reference()
    sizes, values = [], x
    for k, (matrix, bias) in enumerate(zip(known.weights, known.biases, strict=True)):
        sizes.append((values @ values + (0.0 if bias is None else 1.0)).sqrt())
        if k < known.hidden:
            values = (matrix @ values + (0.0 if bias is None else bias)).clamp(min=0)
    bias = layers.biases[0]
    first = layers.weights[0] @ x + (0.0 if bias is None else bias)
    return Inputs(
        first.expand(draws, -1),
        sizes[0].expand(draws),
        torch.stack(sizes).expand(draws, -1),
        torch.full((draws,), label),
    )


def hit_rate(
    evaluator: Evaluator,
    setting: Setting,
    prior: Layers,
    point: Tensor,
    label: int,
    *,
    draws: int,
    generator: torch.Generator,
) -> float:
    """How often the loss of the noisy network is 1 at a point that the network gets wrong."""
    layers = evaluator.layers
    noisy, _ = true_noise(layers, point, setting.sigmas, draws, generator)
    inputs = point_inputs(layers, prior, point, label, draws)
    return float(evaluator.judged(setting, inputs, noisy)[0].double().mean())


def uniform_hit_rate(
    evaluator: UniformEvaluator,
    setting: UniformSetting,
    point: Tensor,
    label: int,
    *,
    draws: int,
    generator: torch.Generator,
) -> float:
    """The same for the loss of Theorem A: thresholds twice those of the proof, at W + U."""
    layers, used = evaluator.layers, evaluator.constants(setting.inactive)
    noisy, _ = true_noise(layers, point, evaluator.scales(setting), draws, generator)
    size = float(point.double().norm())
    gammas = growths(setting.epsilons)
    loss = torch.zeros(draws, dtype=torch.bool)
    for k, z in enumerate(noisy.before):
        level = 2.0 * gammas[k] * used.xi[k] * size
        if setting.inactive[k]:
            loss |= (evaluator.grouped(z) <= -level).sum(1) < setting.inactive[k]
        size *= used.nu[k]
    scores = noisy.scores
    others = torch.cat([scores[:, :label], scores[:, label + 1 :]], dim=1).amax(1)
    loss |= scores[:, label] - others <= 2.0 * gammas[-1] * used.xi[-1] * size
    return float(loss.double().mean())
