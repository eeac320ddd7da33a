from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.errors import BadInput
from nonvacuous.interpolation import kernels
from nonvacuous.interpolation.kernels import DistanceGram, PointGram, product
from tests.interpolation import oracles

CASES = {
    "gaussian": (kernels.gaussian(0.3), oracles.gaussian_value(0.3)),
    "laplace": (kernels.laplace(0.7), oracles.laplace_value(0.7)),
    "polynomial": (
        kernels.polynomial(3, offset=0.5, scale=2.0),
        oracles.polynomial_value(3, 0.5, 2.0),
    ),
    "linear": (kernels.linear(), oracles.linear_value()),
}


def some_points(n: int = 13, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("name", CASES)
def test_tiles_products_and_predictions_are_those_of_the_definition(name):
    kernel, value = CASES[name]
    points = some_points()
    gram = PointGram(kernel, torch.from_numpy(points))
    whole = oracles.matrix(points, value)
    rows, columns = slice(3, 11), slice(0, 7)
    assert np.allclose(gram.tile(rows, columns), whole[rows, columns], rtol=0, atol=1e-12)
    assert np.allclose(gram.diagonal(), np.diagonal(whole), rtol=0, atol=1e-12)
    vectors = torch.from_numpy(some_points(13, 3, seed=1))
    for chunk in (1, 4, 5, 13, 100):
        assert np.allclose(product(gram, vectors, chunk=chunk), whole @ vectors.numpy(), atol=1e-11)
    others = some_points(5, 4, seed=2)
    across = [[value(a, b) for b in points] for a in others]
    assert np.allclose(gram.across(torch.from_numpy(others)), across, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_tiles_leave_the_points_alone(name):
    points = torch.from_numpy(some_points())
    before = points.clone()
    gram = PointGram(CASES[name][0], points)
    first = gram.tile(slice(0, 13), slice(0, 13))
    assert torch.equal(first, gram.tile(slice(0, 13), slice(0, 13)))
    gram.diagonal()
    assert torch.equal(points, before)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_distances_serve_as_well_as_points(name):
    kernel, _ = CASES[name]
    points = torch.from_numpy(some_points())
    distances = torch.cdist(points, points).square()
    kept = distances.clone()
    one, other = PointGram(kernel, points), DistanceGram(kernel, distances)
    everything = slice(0, 13)
    assert torch.allclose(one.tile(everything, everything), other.tile(everything, everything))
    assert torch.equal(distances, kept)
    assert torch.allclose(one.across(points[:2]), other.across(distances[:2]), atol=1e-6)


def test_the_distance_of_a_point_to_itself_is_zero_exactly():
    points = torch.from_numpy(some_points(6, 50) * 1e6)
    tile = PointGram(kernels.laplace(1.0), points).tile(slice(2, 6), slice(0, 4))
    assert float(tile[0, 2]) == float(tile[1, 3]) == 1.0


@given(st.sampled_from(sorted(CASES)), st.integers(0, 1000))
def test_kernel_matrices_have_no_negative_eigenvalue(name, seed):
    kernel, _ = CASES[name]
    points = torch.from_numpy(some_points(9, 3, seed))
    values = PointGram(kernel, points).tile(slice(0, 9), slice(0, 9))
    eigenvalues = torch.linalg.eigvalsh((values + values.T) / 2)
    assert float(eigenvalues.min()) > -1e-10 * float(eigenvalues.max())


@pytest.mark.parametrize(
    ("degree", "offset", "dimension"), [(2, 1.0, 3), (3, 1.0, 2), (2, 0.0, 3), (4, 0.0, 2)]
)
def test_the_rank_limit_is_the_rank(degree, offset, dimension):
    kernel = kernels.polynomial(degree, offset=offset)
    points = torch.from_numpy(some_points(40, dimension))
    values = PointGram(kernel, points).tile(slice(0, 40), slice(0, 40))
    assert int(torch.linalg.matrix_rank(values, rtol=1e-10)) == kernel.rank_limit(dimension)


def test_median_squared_distance():
    points = torch.tensor([[0.0], [1.0], [3.0]])
    assert kernels.median_squared_distance(points) == 4.0
    assert kernels.median_squared_distance(points[:1]) == 1.0


@pytest.mark.parametrize(
    ("name", "numbers", "message"),
    [
        ("gausian", {}, "did you mean gaussian"),
        ("gaussian", {"gamma": 0.0}, "gamma must be positive"),
        ("laplace", {"gamma": float("nan")}, "gamma must be finite"),
        ("polynomial", {"degree": 1.5}, "whole number"),
        ("polynomial", {"offset": -1.0}, "offset must not be negative"),
        ("linear", {"gamma": 1.0}, "does not take gamma"),
    ],
)
def test_bad_kernels(name, numbers, message):
    with pytest.raises(BadInput, match=message):
        kernels.kernel_of(name, **numbers)


def test_a_kernel_of_ones_own(monkeypatch):
    mine = kernels.Kernel("cauchy", {}, "distances", lambda d: d.add_(1).reciprocal_())
    monkeypatch.setitem(kernels.KERNELS, "cauchy", lambda: mine)
    assert kernels.kernel_of("cauchy") is mine
