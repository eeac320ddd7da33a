from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

import nonvacuous.interpolation.factor as factor_module
from nonvacuous.errors import BadInput
from nonvacuous.interpolation import (
    Limits,
    gaussian,
    interpolate,
    interpolate_distances,
    laplace,
    linear,
    one_hot,
    polynomial,
)
from nonvacuous.interpolation.equations import solve_equations
from nonvacuous.interpolation.kernels import PointGram
from nonvacuous.interpolation.plan import Plan
from tests.examples import some
from tests.interpolation import oracles


def problem(n: int = 60, d: int = 5, outputs: int = 3, seed: int = 0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)), generator.normal(size=(n, outputs))


@pytest.mark.parametrize(
    ("kernel", "value", "d"),
    [
        (gaussian(0.5), oracles.gaussian_value(0.5), 5),
        (laplace(0.5), oracles.laplace_value(0.5), 5),
        (polynomial(3), oracles.polynomial_value(3, 1.0, 1.0), 8),
        (linear(), oracles.linear_value(), 80),
    ],
)
@pytest.mark.parametrize("tile", [17, 2000])
def test_against_a_direct_solution(kernel, value, d, tile):
    points, values = problem(d=d)
    found = interpolate(points, values, kernel=kernel, limits=Limits(tile=tile))
    k = oracles.matrix(points, value)
    expected = linalg.solve(k, values, assume_a="pos")
    others = problem(7, d, seed=3)[0]
    across = np.array([[value(x, y) for y in points] for x in others])
    assert np.allclose(found.predict(others), across @ expected, rtol=1e-6, atol=1e-7)
    assert np.allclose(found.predict(points), values, atol=1e-8)
    assert found.norms["values"] == pytest.approx(np.sqrt(np.trace(values.T @ expected)), rel=1e-7)
    assert found.residual < 1e-8
    assert found.residual == pytest.approx(
        np.abs(k @ found.coefficients["values"] - values).max(), abs=1e-9
    )


def test_against_many_digits():
    points, values = problem(9, 2, 1)
    found = interpolate(points, values[:, 0], kernel=gaussian(1.0))
    expected, norm = oracles.exact_gaussian_solution(points, values[:, 0], 1.0)
    assert np.allclose(found.coefficients["values"], expected, rtol=1e-8)
    assert found.norms["values"] == pytest.approx(norm, rel=1e-10)


def test_float32_is_refined_to_the_answer_of_float64():
    points, values = problem(300, 8)
    single = interpolate(
        points, values, kernel=gaussian(0.2), precision="float32", limits=Limits(tile=64)
    )
    double = interpolate(
        points, values, kernel=gaussian(0.2), precision="float64", limits=Limits(tile=64)
    )
    assert single.plan.precision == "float32"
    assert len(single.refinements) > 1
    assert single.refinements[-1] < 1e-3 * single.refinements[0]
    assert single.residual <= 1e-6
    others = problem(50, 8, seed=4)[0]
    assert np.allclose(single.predict(others), double.predict(others), atol=1e-5)
    assert single.norms["values"] == pytest.approx(double.norms["values"], rel=1e-6)


def test_several_values_at_once_are_the_same_as_one_by_one():
    points, values = problem(80)
    together = interpolate(points, {"a": values, "b": values[:, 0]}, kernel=gaussian(0.5))
    alone = interpolate(points, values[:, 0], kernel=gaussian(0.5))
    assert together.names == ("a", "b")
    assert together.coefficients["b"].shape == (80,)
    assert np.allclose(together.coefficients["b"], alone.coefficients["values"], rtol=1e-6)
    assert together.norms["b"] == pytest.approx(alone.norms["values"])
    found = together.predictions(points)
    assert found["a"].shape == (80, 3) and found["b"].shape == (80,)
    assert np.allclose(together.predict(points, "b"), found["b"], atol=1e-9)
    with pytest.raises(BadInput, match="say which"):
        together.predict(points)
    with pytest.raises(BadInput, match="no values 'c'"):
        together.predict(points, "c")
    with pytest.raises(BadInput, match="coordinates"):
        alone.predict(points[:, :2])


def test_the_interpolant_has_the_smallest_norm():
    # Any other function through the points, here one through two more points, has a larger norm.
    points, values = problem(30, 3, 1)
    more = np.concatenate([points, problem(2, 3, seed=9)[0]])
    small = interpolate(points, values, kernel=gaussian(0.5)).norms["values"]
    for extra in (-1.0, 0.0, 2.0):
        large = interpolate(more, np.concatenate([values, [[extra], [0.3]]]), kernel=gaussian(0.5))
        assert large.norms["values"] >= small


@settings(max_examples=some(40))
@given(st.integers(1, 40), st.integers(1, 6), st.floats(0.3, 3.0), st.integers(0, 99))
def test_values_are_met_and_norms_scale(n, d, gamma, seed):
    points, values = problem(n, d, 1, seed)
    one = interpolate(points, values, kernel=laplace(gamma))
    two = interpolate(points, 3 * values, kernel=laplace(gamma))
    assert np.allclose(one.predict(points), values, atol=1e-6)
    assert two.norms["values"] == pytest.approx(3 * one.norms["values"], rel=1e-6)


def test_permuting_points_permutes_coefficients():
    points, values = problem(50)
    order = np.random.default_rng(1).permutation(50)
    one = interpolate(points, values, kernel=laplace(1.0), limits=Limits(tile=16))
    other = interpolate(points[order], values[order], kernel=laplace(1.0), limits=Limits(tile=16))
    assert np.allclose(one.coefficients["values"][order], other.coefficients["values"], atol=1e-8)


def test_tiles_on_disk_give_the_same_and_leave_nothing(tmp_path):
    points, values = problem(200, 4)
    options = {"kernel": laplace(0.5), "precision": "float32", "limits": Limits(tile=20)}
    memory = interpolate(points, values, **options)
    disk = interpolate(points, values, memory=100_000, folder=tmp_path, **options)
    assert disk.plan.place == "disk" and str(tmp_path) in str(disk.plan)
    assert np.array_equal(memory.coefficients["values"], disk.coefficients["values"])
    assert list(tmp_path.iterdir()) == []
    nameless = interpolate(points, values, memory=100_000, **options)
    assert nameless.plan.place == "disk" and not nameless.plan.folder.exists()


@pytest.mark.parametrize("memory", [None, 100_000])
def test_a_factorization_that_was_stopped_goes_on(tmp_path, memory, monkeypatch):
    points, values = problem(200, 4)
    options = {
        "kernel": laplace(0.5),
        "precision": "float32",
        "limits": Limits(tile=20),
        "memory": memory,
    }
    expected = interpolate(points, values, **options)
    keep = factor_module._Keeper.keep

    def stop(self, tiles, column):
        if column == 6:
            raise KeyboardInterrupt
        keep(self, tiles, column)

    monkeypatch.setattr(factor_module._Keeper, "keep", stop)
    with pytest.raises(KeyboardInterrupt):
        interpolate(points, values, folder=tmp_path, **options)
    assert json.loads((tmp_path / "factor.json").read_text())["columns"] == 6
    made = []
    monkeypatch.setattr(
        factor_module._Keeper, "keep", lambda self, tiles, c: (made.append(c), keep(self, tiles, c))
    )
    found = interpolate(points, values, folder=tmp_path, **options)
    assert made == [6, 7, 8, 9]
    assert np.array_equal(found.coefficients["values"], expected.coefficients["values"])


def test_a_factor_of_other_points_is_not_gone_on_with(tmp_path):
    points, values = problem(60, 4)
    (tmp_path / "factor.bin").write_bytes(b"\0" * 100_000)
    (tmp_path / "factor.json").write_text('{"identity": "other", "columns": 3}')
    found = interpolate(
        points, values, kernel=laplace(0.5), folder=tmp_path, limits=Limits(tile=20)
    )
    assert found.residual < 1e-9


def test_distances_instead_of_points():
    points, values = problem(70, 4)
    x = torch.from_numpy(points)
    others = torch.from_numpy(problem(9, 4, seed=5)[0])
    one = interpolate(points, values, kernel=gaussian(0.3))
    two = interpolate_distances(torch.cdist(x, x).square(), values, kernel=gaussian(0.3))
    assert np.allclose(
        one.predict(others), two.predict(torch.cdist(others, x).square()), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(BadInput, match="inner products"):
        interpolate_distances(x @ x.T, values, kernel=linear())
    with pytest.raises(BadInput, match="square"):
        interpolate_distances(x, values, kernel=gaussian(0.3))


def test_too_coarse_float32_is_solved_again_in_float64():
    points = np.linspace(0, 1, 40)[:, None]
    values = np.sin(6 * points[:, 0])
    found = interpolate(points, values, kernel=gaussian(150.0), precision="auto", memory=200_000)
    assert found.residual <= 1e-6
    single = _forced_single(points, values)
    assert any("solved again in float64" in warning for warning in single.warnings)
    assert single.plan.precision == "float64"
    assert single.residual <= 1e-6


def _forced_single(points, values):
    import nonvacuous.interpolation.plan as plan_module

    before = plan_module._SMALL
    plan_module._SMALL = 0
    try:
        return interpolate(points, values, kernel=gaussian(150.0))
    finally:
        plan_module._SMALL = before


def test_near_singular_is_told_and_nothing_is_added():
    points = np.linspace(0, 1, 6)[:, None]
    found = interpolate(points, np.sin(points[:, 0]), kernel=gaussian(0.05))
    assert found.pivots.smallest < 1e-8
    assert any("near-singular" in warning for warning in found.warnings)


def test_repeated_points_count_once():
    points, values = problem(20, 3)
    twice = np.concatenate([points, points[4:6]])
    found = interpolate(twice, np.concatenate([values, values[4:6]]), kernel=gaussian(0.5))
    plain = interpolate(points, values, kernel=gaussian(0.5))
    assert found.coefficients["values"].shape == (22, 3)
    assert not found.coefficients["values"][20:].any()
    assert np.allclose(found.predict(twice)[20:], values[4:6], atol=1e-8)
    assert found.norms["values"] == pytest.approx(plain.norms["values"])
    assert "2 points only repeat others" in found.warnings[0]


def test_one_point():
    found = interpolate([[2.0]], [3.0], kernel=gaussian(1.0))
    assert found.predict([[2.0]]) == pytest.approx([3.0])
    assert found.norms["values"] == pytest.approx(3.0)
    assert "one point" in found.warnings[0]


def test_results_are_frozen_and_short_to_read():
    found = interpolate([[0.0], [1.0]], [0.0, 1.0], kernel=gaussian(1.0))
    assert str(found).startswith("Interpolant of 2 points: gaussian (gamma 1), norm values 1.0")
    with pytest.raises(AttributeError):
        found.residual = 0.0
    with pytest.raises(ValueError, match="read-only"):
        found.coefficients["values"][0] = 1
    with pytest.raises(TypeError):
        found.norms["values"] = 1


def test_errors_are_counted_by_the_largest_output():
    points, _ = problem(40, 3)
    labels = np.arange(40) % 4
    found = interpolate(points, {"x": one_hot(labels)}, kernel=gaussian(0.5))
    assert found.errors(points, labels) == {"x": 0}
    assert found.errors(points, (labels + 1) % 4) == {"x": 40}
    with pytest.raises(BadInput, match="one label for each point"):
        found.errors(points, labels[:3])
    with pytest.raises(BadInput, match="one output for each class"):
        interpolate(points, labels * 1.0, kernel=gaussian(0.5)).errors(points, labels)


def test_progress_is_told():
    told = []
    interpolate(
        *problem(60),
        kernel=gaussian(0.5),
        limits=Limits(tile=10),
        progress=lambda *entry: told.append(entry),
    )
    assert {entry[0] for entry in told} >= {"factorizing", "refining"}
    assert all(0 <= done <= total for _, done, total, _ in told)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_way_of_the_gpu_taken_on_a_processor(precision):
    points, values = problem(150, 6)
    gram = PointGram(polynomial(4, scale=0.1), torch.from_numpy(points))
    plan = Plan(150, 6, 3, "cholesky", "device", precision, 0, 0, 0.0)
    targets = torch.from_numpy(values)
    found = solve_equations(gram, targets, plan)
    expected = interpolate(points, values, kernel=polynomial(4, scale=0.1))
    assert found.residual <= 1e-6
    norm = (found.coefficients * found.fitted).sum().sqrt()
    assert np.allclose(norm, expected.norms["values"], rtol=1e-4)
    assert found.pivots.point == expected.pivots.point


@pytest.mark.gpu
def test_the_gpu_gives_the_same():
    points, values = problem(500, 6)
    one = interpolate(points, values, kernel=gaussian(0.5))
    other = interpolate(points, values, kernel=gaussian(0.5), device="cuda")
    assert other.plan.place == "device" and other.plan.precision == "float64"
    assert np.allclose(one.coefficients["values"], other.coefficients["values"], rtol=1e-6)
