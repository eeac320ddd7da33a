"""Every measure against a slow oracle on a tiny perceptron."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from nonvacuous.bounds import vc_upper
from nonvacuous.measures import MEASURES, Value
from nonvacuous.measures.certificates import NOISES, PRIOR_SCALES, certificate, complexity
from nonvacuous.measures.description_length import BITS, KEPT, rounded
from nonvacuous.measures.gauges import balanced
from nonvacuous.models import Cnn
from nonvacuous.seeds import derived_seed
from tests.measures import oracles
from tests.measures.worlds import made, world

NET = oracles.plain()
MARGIN = float(np.percentile(oracles.margins(NET), 10))
CHARGE = math.log(len(PRIOR_SCALES))
LENGTH = math.sqrt(np.mean([sum(v * v for v in x) for x in NET.inputs]))


def value(name: str, network: str = "mlp") -> float:
    result = MEASURES[name](world(network))
    assert isinstance(result, Value), result
    return result.number


@pytest.mark.slow_if("spectral")
@pytest.mark.parametrize("norm", oracles.NORMS)
def test_norms_and_distances(norm: str) -> None:
    function = oracles.NORMS[norm]
    own = [function(m) for m in NET.matrices]
    far = [function(m - s) for m, s in zip(NET.matrices, NET.starts, strict=True)]
    assert value(f"{norm}-product") == pytest.approx(math.prod(own), rel=1e-9)
    assert value(f"{norm}-sum") == pytest.approx(sum(own), rel=1e-9)
    assert value(f"{norm}-distance-product") == pytest.approx(math.prod(far), rel=1e-9)
    assert value(f"{norm}-distance-sum") == pytest.approx(sum(far), rel=1e-9)


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
def test_norms_in_the_gauge_of_smallest_norm(norm: str) -> None:
    weights = balanced(world("mlp"))
    own = [oracles.NORMS[norm](w.numpy()) for w in weights.values() if w.ndim == 2]
    assert value(f"balanced-{norm}-product") == pytest.approx(math.prod(own), rel=1e-9)
    assert value(f"balanced-{norm}-sum") == pytest.approx(sum(own), rel=1e-9)


def test_distance() -> None:
    squares = sum(
        float(((a - b) ** 2).sum())
        for a, b in zip([*NET.matrices, *NET.biases], [*NET.starts, *NET.start_biases], strict=True)
    )
    assert value("distance") == pytest.approx(math.sqrt(squares), rel=1e-12)


def test_margins() -> None:
    found = oracles.margins(NET)
    assert value("margin-10") == pytest.approx(np.percentile(found, 10), rel=1e-12)
    assert value("margin-median") == pytest.approx(np.percentile(found, 50), rel=1e-12)
    spreads = []
    for x in NET.inputs:
        f = oracles.scores(NET, x)
        spreads.append(math.sqrt(sum((v - sum(f) / len(f)) ** 2 for v in f)))
    shares = [m / s for m, s in zip(found, spreads, strict=True)]
    assert value("margin-normalized") == pytest.approx(np.percentile(shares, 10), rel=1e-12)


def test_margin_normalized_norms() -> None:
    spectral = [oracles.spectral(m) for m in NET.matrices]
    product = math.prod(spectral) * LENGTH / MARGIN
    for name, matrices in (
        ("", NET.matrices),
        ("distance-", [m - s for m, s in zip(NET.matrices, NET.starts, strict=True)]),
    ):
        rows = [oracles.two_one(m) for m in matrices]
        squares = [oracles.frobenius(m) for m in matrices]
        ratios = sum((b / s) ** (2 / 3) for b, s in zip(rows, spectral, strict=True))
        assert value(f"bartlett-{name}margin") == pytest.approx(product * ratios**1.5, rel=1e-9)
        stable = sum((f / s) ** 2 for f, s in zip(squares, spectral, strict=True))
        expected = product * math.sqrt(stable)
        assert value(f"neyshabur-{name}margin") == pytest.approx(expected, rel=1e-9)
    frobenius = math.prod(oracles.frobenius(m) for m in NET.matrices)
    assert value("frobenius-margin") == pytest.approx(frobenius * LENGTH / MARGIN, rel=1e-9)


def test_paths() -> None:
    paths = oracles.path_values(NET)
    first, second = sum(map(abs, paths)), math.sqrt(sum(v * v for v in paths))
    assert value("path-norm-1") == pytest.approx(first, rel=1e-12)
    assert value("path-norm-2") == pytest.approx(second, rel=1e-12)
    assert value("path-margin-1") == pytest.approx(first / MARGIN, rel=1e-12)
    assert value("path-margin-2") == pytest.approx(second / MARGIN, rel=1e-12)
    n = len(NET.inputs)
    spread = math.sqrt(max(n, *(sum(x[u] ** 2 for x in NET.inputs) for u in range(4))))
    constant = math.sqrt(3 * math.log(3) + math.log(3 * 5 * 3))  # three layers, no pooling
    expected = 4 * constant * spread / n * math.sqrt(2) / MARGIN * first
    assert value("gonon-gap") == pytest.approx(expected, rel=1e-12)
    # The bound: the margin below and the norm above, both on the grid 2^(j/4).
    gamma = 2 ** (math.floor(4 * math.log2(MARGIN)) / 4)
    norm = 2 ** (math.ceil(4 * math.log2(first)) / 4)
    below = sum(m < gamma for m in oracles.margins(NET)) / n
    tail = 3 * math.sqrt(math.log(2 * 481**2 / 0.05) / (2 * n))
    expected = below + 4 * constant * spread / n * math.sqrt(2) / gamma * norm + tail
    assert expected <= value("gonon-bound") <= expected * (1 + 1e-12)


def test_derivatives_by_explicit_hessian_and_differences() -> None:
    losses, vector = oracles.flat_loss()
    hessian = torch.autograd.functional.hessian(lambda w: losses(w).mean(), vector)
    assert value("sharpness-trace") == pytest.approx(float(hessian.trace()), rel=1e-9)
    largest = float(torch.linalg.eigvalsh(hessian)[-1])
    assert value("sharpness-largest") == pytest.approx(largest, rel=1e-9)
    weights = balanced(world("mlp"))
    even = torch.cat([weights[name].flatten() for name, _ in made("mlp")[0].named_parameters()])
    bent_there = torch.autograd.functional.hessian(lambda w: losses(w).mean(), even)
    assert value("sharpness-balanced") == pytest.approx(float(bent_there.trace()), rel=1e-9)
    bent = abs(float(vector @ hessian @ vector))
    assert value("sharpness-along-weights") == pytest.approx(bent, rel=1e-9)
    step = 1e-6
    slopes = (losses(vector * (1 + step)) - losses(vector * (1 - step))) / (2 * step)
    expected = math.sqrt(float(slopes.square().mean()))
    assert value("fisher-rao") == pytest.approx(expected, rel=1e-6)
    differences = [
        float(losses(vector + step * e).mean() - losses(vector - step * e).mean()) / (2 * step)
        for e in torch.eye(len(vector), dtype=torch.float64)
    ]
    assert value("gradient-norm") == pytest.approx(math.hypot(*differences), rel=1e-6)


def test_input_gradients_by_differences() -> None:
    module, _, (inputs, labels) = made("mlp")
    step, inputs = 1e-6, inputs.double()

    def losses(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return nn.functional.cross_entropy(module(x), labels, reduction="none")

    def leads(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            f = module(x)
        others = [max(f[i, k] for k in range(3) if k != y) for i, y in enumerate(labels)]
        return f.gather(1, labels[:, None]).squeeze(1) - torch.stack(others)

    squares = {losses: torch.zeros(len(labels)), leads: torch.zeros(len(labels))}
    for e in torch.eye(4, dtype=torch.float64):
        for function in squares:
            slope = (function(inputs + step * e) - function(inputs - step * e)) / (2 * step)
            squares[function] = squares[function] + slope**2
    expected = math.sqrt(float(squares[losses].mean()))
    assert value("input-gradient") == pytest.approx(expected, rel=1e-6)
    distances = leads(inputs) / squares[leads].sqrt()
    assert value("input-margin") == pytest.approx(np.median(distances.numpy()), rel=1e-6)


def test_ranks_and_activity() -> None:
    stable = [oracles.frobenius(m) ** 2 / oracles.spectral(m) ** 2 for m in NET.matrices]
    assert value("stable-rank") == pytest.approx(sum(stable), rel=1e-9)
    ranks = []
    for m in NET.matrices:
        values = np.sqrt(np.maximum(np.linalg.eigvalsh(m @ m.T), 0))
        shares = [v / values.sum() for v in values if v > 1e-9]
        ranks.append(math.exp(-sum(p * math.log(p) for p in shares)))
    assert value("effective-rank") == pytest.approx(sum(ranks), rel=1e-6)
    active = units = 0
    for x in NET.inputs:
        for matrix, bias in zip(NET.matrices[:-1], NET.biases[:-1], strict=True):
            x = np.maximum(matrix @ x + bias, 0)
            active, units = active + int((x > 0).sum()), units + len(x)
    assert value("active-share") == pytest.approx(active / units, rel=1e-15)

    # A network of ours that pools first for speed is the network that it says it is.
    module, _, (x, _) = made("cnn")
    assert isinstance(module, Cnn)
    x, lit = x.double(), []
    for layer in copy.deepcopy(module.blocks).double():
        x = layer(x)
        if isinstance(layer, nn.ReLU):
            lit.append((x > 0).flatten())
    share = float(torch.cat(lit).double().mean())
    assert value("active-share", "cnn") == pytest.approx(share, rel=1e-15)


def test_counts() -> None:
    assert value("parameter-count") == 4 * 5 + 5 + 5 * 6 + 6 + 6 * 3 + 3
    layers = {"parameters": [25, 0, 36, 0, 7], "comparisons": [0, 5, 0, 6, 1]}
    assert value("vc-dimension") == vc_upper(**layers)
    assert value("vc-dimension") == vc_upper(parameters=[25, 36, 7], comparisons=[5, 6, 1])
    # Convolution, ReLU on 6 x 6, pooling over 4 (six pairs) to 3 x 3; the same on 3 x 3 to 1 x 1.
    expected = vc_upper(
        parameters=[20, 0, 57, 0, 4],
        comparisons=[2 * 36, 2 * 9 * 6, 3 * 9, 3 * 6, 1],
    )
    assert value("vc-dimension", "cnn") == expected
    longest = max(math.sqrt(sum(v * v for v in x)) for x in NET.inputs)
    norms = math.prod(oracles.frobenius(m) for m in NET.matrices)
    golowich = longest * (math.sqrt(6 * math.log(2)) + 1) * norms / math.sqrt(len(NET.inputs))
    assert value("rademacher-frobenius") == pytest.approx(golowich, rel=1e-12)


def _errors(weights: dict[str, torch.Tensor]) -> int:
    module, _, (inputs, labels) = made("mlp")
    moved = copy.deepcopy(module)
    moved.load_state_dict(weights)
    wrong = 0
    for x, y in zip(inputs.double(), labels, strict=True):
        f = moved(x[None])[0]
        wrong += not all(f[y] > f[k] for k in range(3) if k != y)
    return wrong


@pytest.mark.parametrize("name", ["isotropic", "magnitude", "relative", "balanced"])
def test_flatness_stands_at_the_edge(name: str) -> None:
    subject = world("mlp")
    weights = balanced(subject) if name == "balanced" else dict(subject.weights)
    scale = value(f"flatness-{name}") ** -0.5
    allowed = _errors(weights) + 0.1 * len(NET.labels)

    def mean_errors(sigma: float) -> float:
        total = 0
        for draw in range(5):
            source = torch.Generator().manual_seed(derived_seed(5, "flatness", draw))
            noisy = {}
            for key, w in weights.items():
                spread = {
                    "relative": w.abs(),
                    "magnitude": (w**2 + 1e-6).sqrt(),
                }.get(name, torch.ones_like(w))
                u = torch.randn(w.shape, generator=source, dtype=torch.float64)
                noisy[key] = w + sigma * spread * u
            total += _errors(noisy)
        return total / 5

    assert mean_errors(scale) <= allowed < mean_errors(scale * 2 ** (1 / 8))


def test_the_balanced_gauge_has_the_smallest_norm() -> None:
    subject = world("mlp")
    found = balanced(subject)
    square = sum(float(w.square().sum()) for w in found.values())

    def norm(log_scales: np.ndarray) -> float:
        factors = subject.groups.factors(log_scales)
        return sum(
            float((w.numpy() ** 2 * factors[name] ** 2).sum())
            for name, w in subject.weights.items()
        )

    best = minimize(norm, np.zeros(subject.groups.size), method="BFGS", tol=1e-10)
    assert square == pytest.approx(best.fun, rel=1e-4)  # the narrow prior is not quite a norm
    assert subject.outputs(subject.inputs, found).allclose(subject.scores, rtol=1e-10)


def _nats(weights: dict[str, np.ndarray], noises: dict[str, np.ndarray], tau: float) -> float:
    """KL of independent Gaussians from N(0, tau²), number by number."""
    return sum(
        float(((s**2 + w**2) / tau**2 - 1 - np.log(s**2 / tau**2)).sum()) / 2
        for w, s in ((weights[n], noises[n]) for n in weights)
    )


def _plain_nats(noise: float) -> float:
    own = {name: w.numpy() for name, w in world("mlp").weights.items()}
    same = {name: np.full_like(w, noise) for name, w in own.items()}
    return CHARGE + min(_nats(own, same, tau) for tau in PRIOR_SCALES.scales)


def _least_nats(noise: float) -> float:
    """The smallest over the orbit and the prior's scale, by a general optimizer."""
    subject = world("mlp")
    start = {name: w.numpy() for name, w in balanced(subject).items()}

    def along(log_scales: np.ndarray, tau: float) -> float:
        factors = subject.groups.factors(log_scales)
        return _nats(
            {n: w * factors[n] for n, w in start.items()},
            {n: np.full_like(w, noise) * factors[n] for n, w in start.items()},
            tau,
        )

    zero = np.zeros(subject.groups.size)
    return CHARGE + min(
        minimize(along, zero, args=(tau,), method="BFGS").fun
        for tau in PRIOR_SCALES.scales
        if 0.1 < tau < 1.2
    )


@pytest.mark.slow
def test_kl_and_its_minimum_over_rescaling() -> None:
    noise = value("flatness-isotropic") ** -0.5
    assert value("kl") == pytest.approx(_plain_nats(noise), rel=1e-12)
    noise = value("flatness-balanced") ** -0.5
    assert value("rescaled-kl") == pytest.approx(_least_nats(noise), rel=1e-6)


def _naive_errors(weights: dict[str, torch.Tensor], noise: float, draws: int) -> int:
    """Errors with weights drawn whole, another seed."""
    subject = world("mlp")
    source, wrong = torch.Generator().manual_seed(1), 0
    for _ in range(draws):
        drawn = {
            k: w + noise * torch.randn(w.shape, generator=source, dtype=torch.float64)
            for k, w in weights.items()
        }
        wrong += int((subject.all_outputs(drawn).argmax(1) != subject.labels).sum())
    return wrong


@pytest.mark.slow_if("rescaled-kl")
@pytest.mark.parametrize("name", ["kl", "rescaled-kl"])
def test_certificates_from_naive_draws(name: str) -> None:
    """The same bound up to the noise of sampling, from another optimizer and another sampler."""
    subject, n, draws = world("mlp"), len(NET.labels), 100
    weights = dict(subject.weights) if name == "kl" else balanced(subject)
    found, best = [], []
    for noise in NOISES:
        nats = _plain_nats(noise) if name == "kl" else _least_nats(noise)
        exponent = (nats + math.log(2 * math.sqrt(n) / 0.04)) / n
        risk = _naive_errors(weights, noise, draws) / (draws * n)
        best.append(oracles.binary_kl_upper(risk, exponent))
        rescaled = name != "kl"
        nats = complexity(subject, noise, rescaled=rescaled)
        found.append(certificate(subject, noise, nats, rescaled=rescaled))
    # The library pays for sampling: above, but not by much.
    for one, other in zip(found, best, strict=True):
        assert other <= one + 0.01 and one == pytest.approx(other, abs=0.1)
    assert value(f"{name}-certificate") == min(found) <= 1.0


def test_description_length_by_hand() -> None:
    weight = torch.tensor([[0.9, -0.6, 0.02], [0.3, -1.0, 0.0]], dtype=torch.float64)
    decoded, length = rounded(weight, bits=3, kept=0.5)  # levels -3..3, the three largest
    step = float(np.float32(1.0 / 3.0))
    expected = [[3 * step, -2 * step, 0.0], [0.0, -3 * step, 0.0]]
    assert decoded.tolist() == expected
    by_hand = 32 + math.log2(7) + math.log2(math.comb(6, 3)) + 3 * math.log2(6)
    assert length == pytest.approx(by_hand, rel=1e-12)
    subject = world("mlp")
    allowed = _errors(dict(subject.weights)) + 0.1 * len(NET.labels)
    for prefix, weights in (("", dict(subject.weights)), ("balanced-", balanced(subject))):
        shortest, bounds = math.inf, []
        for bits, kept in itertools.product(BITS, KEPT):
            parts = {n: rounded(w, bits=bits, kept=kept) for n, w in weights.items()}
            total = math.log(2) * (
                math.log2(len(BITS) * len(KEPT)) + sum(length for _, length in parts.values())
            )
            wrong = _errors({n: tensor for n, (tensor, _) in parts.items()})
            if wrong <= allowed:
                shortest = min(shortest, total)
            exponent = (total + math.log(20)) / len(NET.labels)
            bounds.append(oracles.binary_kl_upper(wrong / len(NET.labels), exponent))
        assert value(f"{prefix}description-length") == pytest.approx(shortest, rel=1e-11)
        assert value(f"{prefix}occam-bound") == pytest.approx(min(bounds), abs=1e-9)


def test_the_code_of_a_tensor_is_a_prefix_code() -> None:
    """Its strings share out at most the whole prior: Σ 2^-length over all it can say is 1."""
    size, total = 4, 0.0  # two bits: levels -1, 0, 1
    for levels in itertools.product((-1.0, 0.0, 1.0), repeat=size):
        if not any(levels):
            continue
        weight = torch.tensor([levels], dtype=torch.float64)
        decoded, length = rounded(weight, bits=2, kept=1.0)
        assert decoded.tolist() == [list(levels)]
        total += 2.0 ** -(length - 32)  # for one of the 2^32 steps
    total += 1 / (size + 1)  # no level at all
    assert total == pytest.approx(1.0, rel=1e-9)
