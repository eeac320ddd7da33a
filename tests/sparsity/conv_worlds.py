"""Small convolutional chains, noise drawn kernel by kernel, and the theorem in plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from nonvacuous.sparsity.conv_chain import ConvChain, ConvLayer, Pool, Stage
from nonvacuous.sparsity.conv_norms import unrolled
from nonvacuous.sparsity.conv_theorem import ConvEvaluator
from nonvacuous.sparsity.noise import ConvInputs, ConvPass, conv_pass, standard_noise
from nonvacuous.sparsity.setting import ConvSetting

_C = 1.0 / math.sqrt(2.0 * math.pi)
AVERAGE = Pool("average", (2, 2), (2, 2))
MAXIMUM = Pool("max", (2, 2), (2, 2))
#: Input shape, then (outputs, kernel, stride, padding, pool) of each hidden layer, then classes.
WORLDS = {
    "strided": ((1, 5, 5), [(2, 3, 2, 0, Pool())], 3),
    "average": ((1, 6, 6), [(2, 3, 1, 0, AVERAGE)], 2),
    "maximum": ((1, 6, 6), [(2, 3, 1, 0, MAXIMUM)], 2),
    "overlapping": ((1, 5, 5), [(2, 2, 1, 0, Pool("max", (2, 2), (1, 1)))], 2),
    "two": ((2, 5, 5), [(2, 2, 1, 0, Pool()), (3, 3, 1, 1, AVERAGE)], 3),
    "two maxima": ((1, 7, 7), [(2, 2, 1, 0, MAXIMUM), (2, 2, 1, 1, MAXIMUM)], 2),
    "linear": ((1, 4, 4), [(2, 3, 1, 0, Pool("average", (2, 2), (1, 1))), (4, 1, 1, 0, Pool())], 3),
}


def random_chain(name: str, generator: torch.Generator, *, bias: bool = False) -> ConvChain:
    """Gaussian kernels with variance 2 / entries."""
    shape, hidden, classes = WORLDS[name]
    parts: list[tuple[ConvLayer, Pool]] = []
    before = shape
    for index, (outputs, kernel, stride, padding, pool) in enumerate(hidden):
        layer = _layer(str(index), (outputs, before[0], kernel, kernel), generator, bias)
        layer = replace(layer, stride=(stride, stride), padding=(padding, padding))
        parts.append((layer, pool))
        probe = torch.zeros(1, 1, *layer.positions(before[1:]))
        before = (outputs, *(int(side) for side in pool(probe).shape[2:]))
    parts.append((_layer("output", (classes, *before), generator, bias), Pool()))
    return ConvChain.of(shape, parts)


def _layer(name: str, shape: tuple[int, ...], generator: torch.Generator, bias: bool) -> ConvLayer:
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    weight = weight * math.sqrt(2.0 / math.prod(shape[1:]))
    shift = 0.3 * torch.randn(shape[0], generator=generator, dtype=torch.float64)
    return ConvLayer(name, weight, shift if bias else None)


def with_layers(chain: ConvChain, layers: Sequence[ConvLayer]) -> ConvChain:
    """The same shapes with other numbers."""
    pairs = zip(chain.stages, layers, strict=True)
    return ConvChain(tuple(replace(stage, layer=layer) for stage, layer in pairs))


def moved(chain: ConvChain, size: float, generator: torch.Generator) -> ConvChain:
    """A network nearby."""
    layers = [
        replace(
            s.layer,
            weight=s.layer.weight
            + size * torch.randn(s.layer.weight.shape, generator=generator, dtype=torch.float64),
        )
        for s in chain.stages
    ]
    return with_layers(chain, layers)


def tied(chain: ConvChain, image: Tensor, label: int, rival: int) -> ConvChain:
    """The same network with output weights moved so that the image is a tie: barely an error."""
    values = image[None]
    for stage in chain.stages[:-1]:
        values = stage.pool(stage.layer(values).clamp(min=0))
    size = float(values.square().sum())
    last = chain.stages[-1].layer
    layers = [stage.layer for stage in chain.stages]
    if size == 0.0:
        # Nothing is active: only the biases count.
        zero = None if last.bias is None else torch.zeros_like(last.bias)
        return with_layers(chain, [*layers[:-1], replace(last, bias=zero)])
    scores = last(values).flatten()
    weight = last.weight.clone()
    gap = float(scores[label] - scores[rival])
    # A hair beyond the tie, so that rounding cannot make the point right.
    weight[label] -= values[0] * ((gap + 1e-11 * abs(gap) + 1e-12) / size)
    return with_layers(chain, [*layers[:-1], replace(last, weight=weight)])


def inputs_of(
    chain: ConvChain, prior: ConvChain, image: Tensor, label: int, draws: int
) -> ConvInputs:
    """The same image once for every draw; foretold sizes by singular values of patches."""
    sizes, values = [], image[None]
    for stage in prior.reference().stages:
        rows = [np.append(p, _constant(stage)) for p in _patch_rows(stage, values[0])]
        sizes.append(float(np.linalg.norm(np.array(rows), 2)))
        values = stage.pool(stage.layer(values).clamp(min=0))
    rivals = torch.tensor([c for c in range(chain.classes) if c != label])
    return ConvInputs(
        image.expand(draws, *image.shape),
        torch.full((draws,), label),
        torch.tensor(sizes, dtype=torch.float64).expand(draws, -1),
        rivals.expand(draws, -1),
        _slopes(prior.reference(), image, label)[:, rivals].expand(draws, -1, -1),
    )


def _slopes(chain: ConvChain, image: Tensor, label: int) -> Tensor:
    """Norms of the margins' gradients in each hidden layer's kernels, by differentiation."""
    layers = []
    for stage in chain.stages:
        bias = stage.layer.bias
        layers.append(
            replace(
                stage.layer,
                weight=stage.layer.weight.clone().requires_grad_(),
                bias=None if bias is None else bias.clone().requires_grad_(),
            )
        )
    scores = with_layers(chain, layers).scores(image[None])[0]
    table = torch.zeros(1, chain.classes, chain.hidden, dtype=torch.float64)
    for rival in range(chain.classes):
        for k in range(chain.hidden):
            wanted = [t for t in (layers[k].weight, layers[k].bias) if t is not None]
            found = torch.autograd.grad(scores[label] - scores[rival], wanted, retain_graph=True)
            total = float(found[0].square().sum())
            if len(found) > 1:
                total += float(found[1].square().sum()) / chain.stages[k].positions
            table[0, rival, k] = math.sqrt(total)
    return table


def _constant(stage: Stage) -> list[float]:
    return [] if stage.layer.bias is None else [1.0 / math.sqrt(stage.positions)]


def _patch_rows(stage: Stage, image: Tensor) -> list[np.ndarray]:
    """Patches cut out of the padded image one by one."""
    layer = stage.layer
    (p, q), (s, t) = layer.padding, layer.stride
    padded = np.pad(image.numpy(), ((0, 0), (p, p), (q, q)))
    high, wide = layer.weight.shape[2:]
    rows, columns = layer.positions(tuple(image.shape[1:]))
    return [
        padded[:, s * i : s * i + high, t * j : t * j + wide].ravel()
        for i in range(rows)
        for j in range(columns)
    ]


def weight_noise(
    chain: ConvChain, image: Tensor, sigmas: tuple[float, ...], generator: torch.Generator
) -> tuple[ConvChain, list[np.ndarray]]:
    """One network with noise on every weight and bias, and its pre-activations at the image."""
    layers, before, values = [], [], image[None]
    for stage, sigma in zip(chain.stages, sigmas, strict=True):
        layer = stage.layer
        noise = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
        bias = layer.bias
        if bias is not None:
            draw = torch.randn(bias.shape, generator=generator, dtype=torch.float64)
            bias = bias + sigma / math.sqrt(stage.positions) * draw
        layers.append(replace(layer, weight=layer.weight + sigma * noise, bias=bias))
        sums = layers[-1](values)
        before.append(sums[0].flatten(1).numpy())
        values = stage.pool(sums.clamp(min=0))
    return with_layers(chain, layers), before


@dataclass(frozen=True)
class Draw:
    """One drawn network at one image: pre-activations, patches, their lengths and their norm."""

    sigmas: tuple[float, ...]
    before: list[np.ndarray]
    rows: list[np.ndarray]
    units: list[np.ndarray]
    whole: list[float]


def slow_passes(
    chain: ConvChain, image: Tensor, sigmas: tuple[float, ...], draws: int, gen: torch.Generator
) -> list[Draw]:
    """True weight noise, network by network."""
    found = []
    for _ in range(draws):
        noisy, before = weight_noise(chain, image, sigmas, gen)
        patches, units, whole, values = [], [], [], image[None]
        for stage, sigma in zip(noisy.stages, sigmas, strict=True):
            rows = np.array([np.append(p, _constant(stage)) for p in _patch_rows(stage, values[0])])
            patches.append(rows)
            units.append(sigma * np.linalg.norm(rows, axis=1))
            whole.append(sigma * float(np.linalg.norm(rows, 2)))
            values = stage.pool(stage.layer(values).clamp(min=0))
        found.append(Draw(sigmas, before, patches, units, whole))
    return found


def hit_rate(
    evaluator: ConvEvaluator,
    setting: ConvSetting,
    prior: ConvChain,
    image: Tensor,
    label: int,
    *,
    draws: int,
    generator: torch.Generator,
) -> float:
    """How often the loss of the noisy network is 1 at an image that the network gets wrong."""
    noisy, inputs = draws_at(evaluator, setting, prior, image, label, draws, generator)
    return float(evaluator.judged(setting, inputs, noisy)[0].double().mean())


def draws_at(
    evaluator: ConvEvaluator,
    setting: ConvSetting,
    prior: ConvChain,
    image: Tensor,
    label: int,
    draws: int,
    generator: torch.Generator,
) -> tuple[ConvPass, ConvInputs]:
    chain = evaluator.network
    inputs = inputs_of(chain, prior, image, label, draws)
    noise = standard_noise(chain, draws, generator)
    return conv_pass(chain, inputs, setting.sigmas, noise), inputs


def psi(r: float) -> float:
    return float(norm.pdf(r) - r * norm.sf(r))


def pool_lipschitz(pool: Pool, middle: tuple[int, int, int]) -> float:
    """From the pooling matrix written out (average), or counting windows (maximum)."""
    if pool.kind == "none":
        return 1.0
    units = torch.eye(middle[1] * middle[2], dtype=torch.float64).reshape(-1, 1, *middle[1:])
    linear = replace(pool, kind="average") if pool.kind == "max" else pool
    matrix = linear(units).flatten(1).numpy()
    if pool.kind == "max":
        return math.sqrt((matrix > 0).sum(1).max())
    return math.sqrt(matrix.sum(0).max() * matrix.sum(1).max())


def slow_threshold(
    chain: ConvChain,
    draw: Draw,
    label: int,
    rival: int,
    escape: float,
    *,
    sparse: bool,
    rate: float,
) -> float:
    """D with the network's own constants and the exponential tail, by loops over unrolled maps.

    Receptive fields are found by following which unit reads which, and windows by their units.
    """
    units, whole = draw.units, draw.whole
    stages, hidden = chain.stages, chain.hidden
    nu = [float(np.linalg.norm(unrolled(s.layer, s.before).numpy(), 2)) for s in stages[:-1]]
    rho = [float(np.linalg.norm(s.layer.matrix.numpy(), axis=1).max()) for s in stages[:-1]]
    pi = [pool_lipschitz(s.pool, s.middle) for s in stages[:-1]]
    v = (chain.output[label] - chain.output[rival]).numpy()
    kappa = float(np.linalg.norm(v))
    count = sum((j + 1) * s.units for j, s in enumerate(stages[:-1]))
    t = float(norm.isf(0.1 * escape / (2 * count)))
    quantile = t + psi(t)
    output = 0.9 * escape if sparse else escape

    def onward(k: int, end: int) -> float:
        return pi[k] * math.prod(nu[m] * pi[m] for m in range(k + 1, end + 1))

    def reach(k: int, j: int) -> np.ndarray:
        if k == j:
            return units[j]
        seen = _reads(chain, k, j)
        local = np.sqrt(seen @ np.square(units[k]))
        return rho[j] * onward(k, j - 1) * np.minimum(local, whole[k])

    shift: dict[tuple[int, int], float] = {}
    total = 0.0
    for j in range(hidden):
        for k in range(j + 1):
            away = quantile * reach(k, j)
            for other in range(k + 1, j + 1):
                away = away + quantile * reach(other, j)
                if other < j:
                    away = away + rho[j] * shift[other, j - 1]
            gaps = _slow_shifts(stages[j], draw, j, reach(k, j), away, sparse, own=k == j)
            inherited = pi[j] * nu[j] * shift[k, j - 1] if k < j else 0.0
            shift[k, j] = inherited + float(np.linalg.norm(gaps))
            if j == hidden - 1:
                total += float(np.maximum(v, 0.0) @ gaps) + kappa * inherited
    spreads = [whole[k] * kappa * onward(k, hidden - 1) for k in range(hidden)]
    if sparse:
        farthest = []
        for j in range(hidden):
            rooms = []
            for k in range(j + 1):
                steps = [quantile * reach(m, j) for m in range(k, j + 1)]
                for m in range(k, j):
                    steps[m - k] = steps[m - k] + rho[j] * shift[m, j - 1]
                rooms.append(sum(steps) + steps[0])
            farthest.append(np.max(rooms, axis=0))
        sharp = _slow_spreads(chain, draw, v, farthest, nu, pi)
        spreads = [min(one, other) for one, other in zip(spreads, sharp, strict=True)]
    variance = 2 * whole[hidden] ** 2 + sum(spread**2 for spread in spreads)
    return total + rate * variance / 2 + math.log(1 / output) / rate


def _reads(chain: ConvChain, k: int, j: int) -> np.ndarray:
    """Which positions of layer k's pre-activations each position of layer j's depends on."""
    stage = chain.stages[k]
    units = torch.eye(stage.positions, dtype=torch.float64).reshape(-1, 1, *stage.middle[1:])
    for index in range(k, j):
        pool, layer = chain.stages[index].pool, chain.stages[index + 1].layer
        units = replace(pool, kind="average")(units) if pool.kind == "max" else pool(units)
        ones = torch.ones(1, 1, *layer.weight.shape[2:], dtype=torch.float64)
        units = torch.nn.functional.conv2d(units, ones, None, layer.stride, layer.padding)
    return (units.flatten(1).T > 0).double().numpy()


def _slow_shifts(
    stage: Stage, draw: Draw, j: int, reach: np.ndarray, away: np.ndarray, sparse: bool, own: bool
) -> np.ndarray:
    values = draw.before[j]
    if stage.pool.kind != "max":
        gaps = np.array(
            [
                [
                    r * psi(max(0.0, abs(z) - a) / r if sparse else 0.0)
                    for z, r, a in zip(row, reach, away, strict=True)
                ]
                for row in values
            ]
        )
        image = torch.from_numpy(gaps).reshape(1, *stage.middle)
        return stage.pool(image).flatten().numpy()
    (high, wide), (down, right) = stage.pool.kernel, stage.pool.stride
    found = []
    for channel, y, x in itertools.product(*(range(side) for side in stage.after)):
        window = [
            (y * down + a) * stage.middle[2] + x * right + b
            for a in range(high)
            for b in range(wide)
        ]
        worst = max(reach[p] for p in window)
        size = len(window)
        most = worst * (size * _C if size <= 2 else size * float(norm.pdf(norm.isf(1.0 / size))))
        found.append(most)
        if not sparse:
            continue
        # Position None is the constant 0.
        members = [*window, None]
        low = {p: values[channel, p] - away[p] if p is not None else 0.0 for p in members}
        top = {p: values[channel, p] + away[p] if p is not None else 0.0 for p in members}
        largest = 0.0
        for best in members:
            if top[best] < max(low.values()):
                continue
            total = 0.0
            for other in members:
                if other == best:
                    continue
                if best is None or other is None:
                    span = reach[other if best is None else best]
                elif own:
                    span = draw.sigmas[j] * float(
                        np.linalg.norm(draw.rows[j][best] - draw.rows[j][other])
                    )
                else:
                    span = reach[best] + reach[other]
                gap = max(0.0, low[best] - top[other])
                total += span * psi(gap / span) if span > 0 else 0.0
            largest = max(largest, total)
        found[-1] = min(most, largest)
    return np.array(found)


def _slow_spreads(
    chain: ConvChain,
    draw: Draw,
    v: np.ndarray,
    away: list[np.ndarray],
    nu: list[float],
    pi: list[float],
) -> list[float]:
    """Gradients with the network's own weights (the prior's, here), by matrices written out."""
    gradient, radius = v, 0.0
    found = []
    for k in range(chain.hidden - 1, -1, -1):
        stage, rows = chain.stages[k], draw.rows[k]
        channels, positions = stage.middle[0], stage.positions
        a = gradient.reshape(channels, -1)
        r, unsure = np.zeros((channels, positions)), np.zeros((channels, positions))
        spoiled = np.zeros((channels, rows.shape[1]))
        radius *= pi[k]
        if stage.pool.kind == "max":
            (high, wide), (down, right) = stage.pool.kernel, stage.pool.stride
            lost = 0.0
            for c, (n, (y, x)) in itertools.product(
                range(channels),
                enumerate(itertools.product(range(stage.after[1]), range(stage.after[2]))),
            ):
                window = [
                    (y * down + i) * stage.middle[2] + x * right + j
                    for i in range(high)
                    for j in range(wide)
                ]
                low = [draw.before[k][c, p] - away[k][p] for p in window] + [0.0]
                top = [draw.before[k][c, p] + away[k][p] for p in window] + [0.0]
                best = int(np.argmax(low))
                if all(low[best] >= t for m, t in enumerate(top) if m != best):
                    if best < len(window):
                        r[c, window[best]] += a[c, n]
                else:
                    lost += a[c, n] ** 2
                    spoiled[c] += abs(a[c, n]) * np.abs(rows[window]).max(0)
            extra = pi[k] * math.sqrt(lost)
        else:
            units = torch.eye(positions, dtype=torch.float64).reshape(-1, 1, *stage.middle[1:])
            t = a @ stage.pool(units).flatten(1).numpy().T
            sure = np.abs(draw.before[k]) >= away[k]
            r = t * np.where(sure, draw.before[k] > 0, 0.5)
            unsure = 0.5 * np.abs(t) * ~sure
            spoiled = unsure @ np.abs(rows)
            extra = float(np.linalg.norm(unsure))
        size = float(np.linalg.norm(r @ rows)) + float(np.linalg.norm(spoiled))
        found.append(draw.sigmas[k] * size + draw.whole[k] * radius)
        radius = nu[k] * (radius + extra)
        gradient = unrolled(stage.layer, stage.before).numpy().T @ r.ravel()
    return found[::-1]
