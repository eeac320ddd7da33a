"""Theorem F: the lemma behind it, its caps, its constants, and what it gives at depth."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import pytest
import torch
from scipy.stats import norm

from nonvacuous.bounds.sparsity import expected_shortfall
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.sparsity import thresholds
from nonvacuous.sparsity.constants import check_covering, constants, measured
from nonvacuous.sparsity.noise import clean_pass, noisy_pass, read_inputs, standard_noise
from nonvacuous.sparsity.setting import SIZES, Setting
from nonvacuous.sparsity.training import initial_chain, limit_spectral_norms
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse, judge
from tests.sparsity.weight_noise import point_inputs, random_layers, tied, true_noise


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(4))
def test_pre_activations_under_all_noise_are_dominated_by_one_normal(seed: int) -> None:
    """Lemma 8, with noise on the weights and sizes of activations capped at what was drawn."""
    generator = _generator(seed)
    layers = random_layers((3, 5, 4, 4, 2), generator, bias=seed % 2 == 1)
    point = torch.randn(3, generator=generator).double()
    sigmas, draws = (0.15, 0.2, 0.25, 0.2), 60_000
    noisy, _ = true_noise(layers, point, sigmas, draws, generator)
    # The largest scale drawn serves as the cap: then the capped network is the drawn one.
    caps = [float(scales.max()) for scales in noisy.scales]
    grown = 0.0
    for j, (matrix, z) in enumerate(zip(layers.weights[:-1], noisy.before, strict=True)):
        for i in range(matrix.shape[0]):
            length = math.sqrt(caps[j] ** 2 + float(matrix[i].square().sum()) * grown)
            centered = z[:, i] - z[:, i].mean()
            assert float(centered.std()) <= length * 1.01
            for distance in (0.0, 0.5, 1.0, 2.0):
                bound = length * float(norm.pdf(distance) - distance * norm.sf(distance))
                for sign in (1.0, -1.0):
                    excess = (sign * centered - distance * length).clamp(min=0)
                    error = 5.0 * float(excess.std()) / math.sqrt(draws)
                    assert float(excess.mean()) <= bound + error
        stretch = float(torch.linalg.matrix_norm(matrix, 2)) ** 2 if j else 0.0
        grown = caps[j] ** 2 + (stretch + matrix.shape[0] * sigmas[j] ** 2) * grown


def test_mean_shifts_stay_below_what_the_proof_says() -> None:
    """Brute force at a point on the kinks of many units, where noise lifts means the most."""
    generator = _generator(5)
    layers = random_layers((2, 6, 6, 2), generator)
    point = torch.full((2,), 1e-9, dtype=torch.float64)
    layers = Layers.of(layers.weights, [torch.zeros(6), torch.zeros(6), torch.zeros(2)])
    sigmas, draws = (0.1, 0.1, 0.1), 100_000
    noisy, _ = true_noise(layers, point, sigmas, draws, generator)
    inputs = point_inputs(layers, layers, point, 0, 1)
    before = clean_pass(layers, inputs).before
    caps = [float(scales.max()) for scales in noisy.scales]
    grown = shift = 0.0
    for j in range(2):
        rows = layers.weights[j].square().sum(1) if j else torch.zeros(6).double()
        spread = (caps[j] ** 2 + rows * grown).sqrt()
        norm_j = float(torch.linalg.matrix_norm(layers.weights[j], 2)) if j else 0.0
        shift = norm_j * shift + float(spread.norm()) / math.sqrt(2 * math.pi)
        grown = caps[j] ** 2 + (norm_j**2 + 6 * sigmas[j] ** 2) * grown
        moved = (noisy.before[j].clamp(min=0).mean(0) - before[j][0].clamp(min=0)).norm()
        assert 0.05 * shift < float(moved) <= shift * 1.01


def test_an_example_beyond_its_cap_is_lost() -> None:
    generator = _generator(1)
    layers = random_layers((4, 8, 8, 3), generator)
    point = torch.randn(4, generator=generator).double()
    evaluator = judge(layers, layers, theorem="F", sparse=True)
    inputs = point_inputs(layers, layers, point, 0, 500)
    tight, wide = (Setting(-24, (0, 0), 5, SIZES, room, True) for room in (-16, 32))
    noisy, _ = true_noise(layers, point, tight.sigmas, 500, generator)
    assert bool(evaluator.judged(tight, inputs, noisy)[0].all())
    assert bool(evaluator.thresholds(tight, inputs, noisy).isinf().all())
    assert bool(evaluator.thresholds(wide, inputs, noisy).isfinite().all())


def test_row_norms_cover_every_unit_and_are_charged() -> None:
    generator = _generator(2)
    for seed in range(3):
        network = random_layers((5, 9, 7, 4), _generator(seed))
        for prior in (network, network.zero(), random_layers((5, 9, 7, 4), generator)):
            truth = measured(network, units=True)
            found = constants(network, prior, norms="all", sums=None, drift=True, units=True)
            check_covering(found, truth)
            assert found.rows[0].tolist() == [0.0]
            table = found.rows[1]
            slow = torch.stack([row.norm() for row in network.weights[1]])
            assert bool((table >= slow).all())
            difference = network.weights[1] - prior.weights[1]
            moved = found.moved[1]
            assert moved >= float(torch.linalg.matrix_norm(difference, 2))
            names = [line.name for line in found.charges]
            assert names.count("distance of layer 2 from the prior") == 1
            assert names.count("row norms of the units of layer 2") == 1
            short = dataclasses.replace(found, rows=(found.rows[0], table * 0.5))
            with pytest.raises(InvalidCertificate, match="row norms of hidden layer 2"):
                check_covering(short, truth)


def test_shifts_that_are_never_negative_meet_positive_products_only() -> None:
    generator = _generator(3)
    matrix = torch.randn(5, 7, generator=generator).double()
    gram = thresholds.positive_gram(matrix)
    largest = torch.rand(7, generator=generator).double()
    bound = float(largest @ gram @ largest)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 7).double() * largest
    assert float((corners @ matrix.T).square().sum(1).max()) <= bound
    inside = torch.rand(2000, 7, generator=generator).double() * largest
    assert float((inside @ matrix.T).square().sum(1).max()) <= bound
    # With signs at will the bound would be false.
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    opposed = thresholds.positive_gram(signs)
    assert float((signs @ torch.tensor([1.0, -1.0]).double()).square().sum()) > float(opposed.sum())


def test_forgetting_the_mean_shifts_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: without them errors at kinks escape more often than promised."""
    generator = _generator(8)
    width, escape, draws = 60, 0.3, 4000
    first = torch.ones(width, 1, dtype=torch.float64)
    bias = -torch.ones(width, dtype=torch.float64)
    output = torch.stack([torch.ones(width), torch.zeros(width)]).double()
    layers = Layers.of([first, output], [bias, torch.zeros(2)])
    point = torch.ones(1, dtype=torch.float64)
    layers = tied(layers, point, 0, 1)
    evaluator = judge(layers, layers, theorem="F", sparse=True)
    setting = Setting(-16, (-8,), 10, SIZES, 48, True)
    noisy, _ = true_noise(layers, point, setting.sigmas, draws, generator)
    inputs = point_inputs(layers, layers, point, 0, draws)
    honest = float(evaluator.judged(setting, inputs, noisy)[0].double().mean())
    found = thresholds.joint_levels(layers.widths, escape, sparse=True)
    blind = (found[0], -1e6)
    monkeypatch.setattr(thresholds, "joint_levels", lambda *_, **__: blind)
    without = thresholds.threshold_f(
        noisy,
        inputs,
        evaluator.constants(setting),
        dataclasses.replace(setting, factor=0),
        sparse=True,
        anchor=evaluator._anchor,
        grams=evaluator._grams,
    )
    assert honest >= 1 - escape
    margins = noisy.scores[:, 0] - noisy.scores[:, 1]
    assert float((margins <= without[:, 1]).double().mean()) < 1 - escape


@pytest.mark.slow
def test_at_depth_it_promises_less_risk_than_theorem_e() -> None:
    generator = _generator(4)
    sizes = (20, *[12] * 8, 3)
    prior = Layers.of(initial_chain(sizes, seed=1, start="identity", spread=0.2))
    network = Layers.of(
        [w + 1e-3 * torch.randn(w.shape, generator=generator).double() for w in prior.weights]
    )
    points = torch.rand(2000, 20, generator=generator)
    points = points / points.norm(dim=1, keepdim=True)
    values = points.double()
    for matrix in network.weights[:-1]:
        values = (values @ matrix.T).clamp(min=0)
    labels = (values @ network.weights[-1].T).argmax(1)
    examples = Examples(points, labels, ("a", "b", "c"), "points")
    risks = {
        theorem: certify_sparse(
            network, prior, examples, theorem=theorem, subset=150, passes=1
        ).risk_upper
        for theorem in ("E", "F")
    }
    assert risks["F"] < 0.9 * risks["E"] <= 0.9


def test_weights_whose_squares_vanish_are_refused() -> None:
    tiny = [torch.full((3, 4), 1e-70, dtype=torch.float64), torch.ones(2, 3)]
    with pytest.raises(BadInput, match=r"1e-70 as its largest weight.*nonvacuous rescale"):
        Layers.of(tiny)


def test_activations_whose_squares_vanish_count_as_losses() -> None:
    sizes = (4, 3, 3, 3, 2)
    layers = Layers.of([torch.full((b, a), 1e-50, dtype=torch.float64) for a, b in pairwise(sizes)])
    examples = Examples(torch.ones(100, 4), torch.zeros(100, dtype=torch.int64), ("a", "b"), "ones")
    inputs = read_inputs(layers, layers, examples)
    silent = [torch.zeros(100, size) for size in sizes[1:]]
    passed = noisy_pass(layers, inputs, [1e-50] * 4, [part.double() for part in silent])
    assert bool(torch.isnan(passed.scores).all())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("start", ["identity", "orthogonal"])
def test_with_norms_near_one_thresholds_grow_like_a_power_of_the_depth(
    sparse: bool, start: str
) -> None:
    """The proposition on depth, and that without it thresholds explode."""
    width, found = 12, {}
    generator = _generator(9)
    inputs = torch.rand(20, 6, generator=generator)
    examples = Examples(
        inputs / inputs.norm(dim=1, keepdim=True), torch.arange(20) % 3, ("a", "b", "c"), "points"
    )
    for hidden in (1, 2, 3, 5, 10, 20):
        chain = [m.double() for m in initial_chain((6, *[width] * hidden, 3), seed=1, start=start)]
        limit_spectral_norms(chain, 1.0)
        layers = Layers.of(chain)
        evaluator = judge(layers, layers, theorem="F", sparse=sparse)
        for anchored in (False, True) if sparse else (False,):
            setting = Setting(-36, (0,) * hidden, 5, SIZES, 4, anchored)
            sigmas, used = setting.sigmas, evaluator.constants(setting)
            norms = used.spectral[1:]
            rows = [float(value.max()) for value in used.rows[1:]]
            assert all(v**2 + width * sigmas[0] ** 2 <= 1 + 1 / hidden for v in norms)
            assert all(v**2 <= 1 + 1 / hidden for v in rows)
            seen = read_inputs(layers, layers, _repeated(examples))
            noise = standard_noise(layers, len(seen), generator)
            noisy = noisy_pass(layers, seen, sigmas, noise)
            values = evaluator.thresholds(setting, seen, noisy)
            room = [1.0] + [setting.tail_factor] * hidden
            caps = torch.stack([sigmas[k] * room[k] * seen.known[:, k] for k in range(hidden + 1)])
            largest = caps[:-1].amax(0)
            kappa = float(used.pair_norms[..., -1].max())
            if used.pair_sums is not None:
                kappa = max(kappa, float(used.pair_sums[..., -1].max()) / math.sqrt(width))
            if anchored:
                anchor = evaluator._anchor.flatten(0, 1).norm(dim=1).max()
                kappa = max(kappa, float(anchor) + float(used.drift or 0.0))
            split = thresholds.joint_levels(
                layers.widths, setting.escape_probability, sparse=sparse
            )
            tail = (math.e * hidden + 2 * (caps[-1] / (kappa * largest)) ** 2).sqrt()
            power = 2 / 3 * math.sqrt(math.e) * hidden**1.5 + hidden**0.5
            bound = math.sqrt(math.e * width / (2 * math.pi)) * power
            bound = kappa * largest * (bound + expected_shortfall(split[0]) * tail)
            finite = values[values.isfinite().all(1)]
            assert len(finite) > 50
            assert bool((finite <= bound[values.isfinite().all(1)][:, None] * (1 + 1e-6)).all())
        found[hidden] = float(finite.median())
    # Ten times as deep: far below ten to the power of the layers, and above nothing at all.
    assert found[20] / found[2] < 10**1.5 * 2
    loud = Layers.of([m * (1.5 if 0 < k < 20 else 1.0) for k, m in enumerate(chain)])
    evaluator = judge(loud, loud, theorem="F", sparse=sparse)
    seen = read_inputs(loud, loud, _repeated(examples))
    noisy = noisy_pass(loud, seen, sigmas, standard_noise(loud, len(seen), generator))
    values = evaluator.thresholds(setting, seen, noisy)
    assert float(values[values.isfinite()].median()) > 100 * found[20]


def _repeated(examples: Examples) -> Examples:
    """As many as a certificate asks for."""
    return dataclasses.replace(
        examples, inputs=examples.inputs.repeat(6, 1), labels=examples.labels.repeat(6)
    )
