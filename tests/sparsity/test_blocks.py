"""Units that are active in blocks: norms against brute force, the sensitivity, and Theorem A."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from nonvacuous.bounds.sparsity import block_noise_quantile, row_noise_quantile
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity import SparseSettings, certify_sparse
from nonvacuous.sparsity.norms import (
    babel_norm,
    frobenius_norm,
    reduced_gram,
    row_norm,
    sparse_norm,
)
from nonvacuous.sparsity.setting import ESCAPES, UniformSetting
from nonvacuous.sparsity.theorem_a import growths
from tests.sparsity.calls import judge
from tests.sparsity.number_oracles import babel
from tests.sparsity.weight_noise import point_inputs, random_layers, tied, uniform_hit_rate

SHAPES = [((4, 6), (1, 2)), ((4, 6), (2, 1)), ((6, 6), (2, 2)), ((6, 6), (3, 2)), ((6, 8), (2, 4))]


def chosen(count: int, block: int, number: int):
    """The units of every choice of ``number`` blocks."""
    for blocks in itertools.combinations(range(count // block), number):
        yield [block * b + i for b in blocks for i in range(block)]


def matrices(shape):
    """Dense, mostly zero, nearly of rank one, and with a heavy block."""
    generator = np.random.default_rng(sum(shape))
    for kind in range(8):
        matrix = generator.normal(size=shape)
        if kind % 4 == 1:
            matrix *= generator.random(shape) < 0.4
        elif kind % 4 == 2:
            matrix = np.outer(matrix[:, 0], matrix[0]) + 0.05 * matrix
        elif kind % 4 == 3:
            matrix[:2, :2] *= 20.0
        yield matrix + 1e-9


@pytest.mark.parametrize(("shape", "blocks"), SHAPES)
def test_every_bound_is_above_every_choice_of_blocks(shape, blocks):
    ways = set()
    for matrix in matrices(shape):
        weight = torch.from_numpy(matrix)
        tall, wide = shape[0] // blocks[0], shape[1] // blocks[1]
        for rows, columns in itertools.product(range(1, tall + 1), range(1, wide + 1)):
            exact = max(
                float(np.linalg.norm(matrix[np.ix_(up, across)], 2))
                for up in chosen(shape[0], blocks[0], rows)
                for across in chosen(shape[1], blocks[1], columns)
            )
            sizes = {"rows": rows, "columns": columns, "blocks": blocks}
            found = sparse_norm(weight, **sizes)
            below = exact * (1 - 1e-13)
            assert (
                min(
                    found.value,
                    found.bounds["spectral"],
                    found.bounds["frobenius"],
                    found.bounds["babel"],
                )
                >= below
            )
            assert found.bounds["babel"] == babel_norm(weight, **sizes)
            ways.add(found.way)
            if rows == 1 and columns == 1:
                # One block: the bound by its spectral norm is exact.
                assert frobenius_norm(weight, **sizes) <= exact * (1 + 1e-11)
            # The lemma in the form of the paper: the longest block of rows and the babel function.
            gram = reduced_gram(weight, columns=columns, blocks=blocks)
            lemma = math.sqrt(float(gram.diagonal().max()) * (1 + babel(weight, **sizes)))
            assert below <= lemma * (1 + 1e-10) and found.bounds["babel"] <= lemma * (1 + 1e-10)
            # More groups are more: a bound for units is no smaller.
            units = {"rows": rows * blocks[0], "columns": columns * blocks[1]}
            assert row_norm(weight, columns=columns, block=blocks[1]) <= row_norm(
                weight, columns=units["columns"]
            ) * (1 + 1e-12)
            if rows == columns == 1:
                assert found.bounds["frobenius"] <= sparse_norm(weight, **units).bounds[
                    "frobenius"
                ] * (1 + 1e-11)
    assert {"spectral", "frobenius"} <= ways or "exact" in ways


@pytest.mark.parametrize(("shape", "blocks"), SHAPES)
def test_the_gram_matrix_of_blocks_covers_every_choice(shape, blocks):
    for matrix in matrices(shape):
        tall, wide = shape[0] // blocks[0], shape[1] // blocks[1]
        pieces = matrix.reshape(tall, blocks[0], shape[1])
        for columns in range(1, wide + 1):
            found = reduced_gram(torch.from_numpy(matrix), columns=columns, blocks=blocks).numpy()
            for a, b in itertools.product(range(tall), repeat=2):
                exact = max(
                    float(np.linalg.norm(pieces[a][:, across] @ pieces[b][:, across].T, 2))
                    for across in chosen(shape[1], blocks[1], columns)
                )
                assert found[a, b] >= exact * (1 - 1e-12) - 1e-13 * np.abs(matrix).max() ** 2
                if blocks[0] == 1 or columns == wide:
                    assert found[a, b] == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_blocks_of_one_unit_are_units():
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).double()
    for rows, columns in ((1, 3), (3, 1), (4, 5), (5, 7)):
        plain = sparse_norm(weight, rows=rows, columns=columns)
        assert sparse_norm(weight, rows=rows, columns=columns, blocks=(1, 1)) == plain
        # All columns in one block, or one by one, are the same matrix.
        whole = babel_norm(weight, rows=rows, columns=1, blocks=(1, 7))
        assert whole == pytest.approx(babel_norm(weight, rows=rows, columns=7), rel=1e-12)
    with pytest.raises(BadInput, match="do not divide"):
        sparse_norm(weight, rows=1, columns=1, blocks=(2, 1))


def test_noise_quantiles_hold_for_every_choice_of_blocks():
    generator, broken = np.random.default_rng(1), [0, 0]
    rows, columns, block, active, failure = 6, 8, 2, 2, 0.2
    row_limit = row_noise_quantile(
        rows=rows, columns=columns // block, active=active, failure=failure, block=block
    )
    limit = block_noise_quantile(
        rows=rows // block, active_rows=1, columns=columns // block, active_columns=active,
        failure=failure, blocks=(block, block),
    )  # fmt: skip
    for _ in range(300):
        noise = generator.standard_normal((rows, columns))
        squares = np.sort((noise**2).reshape(rows, -1, block).sum(2), axis=1)[:, -active:].sum(1)
        broken[0] += bool(np.sqrt(squares.max()) > row_limit)
        broken[1] += any(
            np.linalg.norm(noise[np.ix_(up, across)], 2) > limit
            for up in chosen(rows, block, 1)
            for across in chosen(columns, block, active)
        )
    assert max(broken) <= 0.2 * 300
    # Fewer sets than those of as many single units: that is the gain.
    assert row_limit < row_noise_quantile(
        rows=rows, columns=columns, active=active * block, failure=failure
    )


def silent(generator, sizes, block):
    """A network whose hidden layers have blocks that are wholly inactive at a positive point."""
    layers = random_layers(sizes, generator)
    for k, matrix in enumerate(layers.weights[:-1]):
        matrix[: matrix.shape[0] // 2 // block * block] = -matrix[
            : matrix.shape[0] // 2 // block * block
        ].abs()
        if k:
            matrix[matrix.shape[0] // 2 :] = matrix[matrix.shape[0] // 2 :].abs()
    return layers


def test_no_inactive_block_wakes_up_and_outputs_move_as_little_as_said():
    """Lemma 12, with perturbations as large as they may be, of three kinds."""
    generator = torch.Generator().manual_seed(3)
    checked = 0
    for sizes, block in (((5, 8, 3), 2), ((5, 8, 8, 3), 4), ((4, 6, 6, 6, 2), 3)):
        for _ in range(6):
            layers = silent(generator, sizes, block)
            point = torch.rand(sizes[0], generator=generator).double()
            evaluator = judge(layers, layers, theorem="A", sparse=True, block=block)
            asked = tuple(max(1, m // 2 - 1) for m in evaluator.groups)
            setting = UniformSetting(asked, -28, (0,) * layers.hidden, 5)
            used, gammas = evaluator.constants(asked), growths(setting.epsilons)
            x, size, level_met, sums = point, float(point.norm()), True, []
            for k, matrix in enumerate(layers.weights[:-1]):
                sums.append(matrix @ x)
                level = gammas[k] * used.xi[k] * size
                quiet = evaluator.grouped(sums[-1][None])[0] <= -level
                level_met &= int(quiet.sum()) >= asked[k]
                x, size = sums[-1].clamp(min=0), size * used.nu[k]
            if not level_met:
                continue
            scores = layers.weights[-1] @ x
            for kind in range(3):
                values, length = point, float(point.norm())
                for k, matrix in enumerate(layers.weights):
                    noise = torch.randn(matrix.shape, generator=generator).double()
                    if kind == 1:
                        noise = torch.outer(noise[:, 0], values)
                    elif kind == 2:
                        noise = torch.zeros_like(noise)
                        noise[0] = values
                    active = evaluator._active(asked)[k]
                    size = evaluator._block(k)
                    room = (
                        setting.epsilons[k]
                        * used.xi[k]
                        / row_norm(noise, columns=active, block=size)
                    )
                    if k < layers.hidden:
                        rows = evaluator.groups[k] - asked[k]
                        norm = sparse_norm(noise, rows=rows, columns=active, blocks=(block, size))
                        room = min(room, setting.epsilons[k] * used.nu[k] / norm.value)
                    moved = (matrix + (1 - 1e-9) * room * noise) @ values
                    if k == layers.hidden:
                        shift = gammas[-1] * used.xi[-1] * length
                        assert float((moved - scores).abs().max()) <= shift
                        break
                    limit = gammas[k] * used.xi[k] * length
                    assert float((moved - sums[k]).abs().max()) <= limit * (1 + 1e-12)
                    was = evaluator.grouped(sums[k][None])[0] <= -limit
                    now = evaluator.grouped(moved[None])[0] <= 0
                    assert bool(now[was].all())
                    checked += int(was.sum())
                    values, length = moved.clamp(min=0), length * used.nu[k]
    assert checked > 50


def test_theorem_a_with_blocks_sees_errors_and_passes_good_points():
    generator = torch.Generator().manual_seed(5)
    passed = 0
    for sizes, block in (((6, 8, 3), 2), ((5, 8, 4, 3), 4), ((4, 6, 6, 6, 2), 3)):
        layers = silent(generator, sizes, block)
        point = torch.rand(sizes[0], generator=generator).double()
        wrong = tied(layers, point, 0, 1)
        inactive = tuple(max(0, width // block - 1) for width in wrong.widths)
        evaluator = judge(wrong, wrong, theorem="A", sparse=True, block=block)
        setting = UniformSetting(inactive, -8, (0,) * wrong.hidden, ESCAPES.index(0.2))
        assert uniform_hit_rate(evaluator, setting, point, 0, draws=800, generator=generator) >= 0.8
        calm = judge(layers, layers, theorem="A", sparse=True, block=block)
        quiet = UniformSetting((1,) * wrong.hidden, -60, (0,) * wrong.hidden, ESCAPES.index(0.2))
        if not all(count < groups for count, groups in zip((1,) * 9, calm.groups, strict=False)):
            continue
        for label in range(layers.classes):
            inputs = point_inputs(layers, layers, point, label, 1)
            if not bool(calm.judged(quiet, inputs)[0][0]):
                passed += 1
                seen = uniform_hit_rate(calm, quiet, point, label, draws=300, generator=generator)
                assert seen <= 0.2
    assert passed


def world(generator, count):
    """Points on a circle and the network that labels them, but for a fifth of coin flips."""
    angles = torch.arange(40, dtype=torch.float64) * (2 * math.pi / 40)
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    return points[torch.randint(40, (count,), generator=generator)].float().double()


def test_claims_hold_in_repeated_samples_of_a_world_whose_risk_is_known():
    generator = torch.Generator().manual_seed(6)
    network = silent(generator, (2, 20, 2), 5)
    failures, planted, promises, repeats = 0, 0, [], 30
    for repeat in range(repeats):
        points = world(generator, 400)
        scores = (points @ network.weights[0].T).clamp(min=0) @ network.weights[1].T
        labels = (scores[:, 1] > scores[:, 0]).long()
        wrong = torch.rand(400, generator=generator) < 0.2
        labels = torch.where(wrong, 1 - labels, labels)
        certificate = certify_sparse(
            network,
            network,
            Examples(points.float(), labels, ("a", "b"), "circle"),
            SparseSettings(theorem="A", block=5, confidence=0.6, subset=100),
            seed=repeat,
        )
        assert certificate.details["block"] == 5
        promises.append(certificate.risk_upper)
        failures += certificate.risk_upper < 0.2
        planted += certificate.network_errors / 400 < 0.2
    assert failures <= 0.4 * repeats and planted >= 0.3 * repeats
    assert np.median(promises) < 1.0


def test_without_sparsity_blocks_change_nothing_and_wrong_ones_are_refused():
    generator = torch.Generator().manual_seed(7)
    layers = random_layers((4, 12, 3), generator)
    points = torch.randn(120, 4, generator=generator).double()
    examples = Examples(points.float(), torch.arange(120) % 3, ("a", "b", "c"), "points")
    dense = [
        certify_sparse(
            layers, layers, examples, SparseSettings(theorem="A", variant="dense", block=block)
        ).risk_upper
        for block in (1, 4)
    ]
    assert dense[0] == dense[1]
    with pytest.raises(BadInput, match="do not divide hidden layers"):
        certify_sparse(layers, layers, examples, SparseSettings(theorem="A", block=5))
    with pytest.raises(BadInput, match="for Theorem A"):
        SparseSettings(theorem="E", block=2)
    biased = random_layers((4, 12, 3), generator, bias=True)
    with pytest.raises(BadInput, match="without biases"):
        certify_sparse(biased, biased, examples, SparseSettings(theorem="A", block=4))
