from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from nonvacuous.interpolation import cholesky, kernels
from nonvacuous.interpolation.cholesky import Tiles, entries
from nonvacuous.interpolation.kernels import PointGram
from tests.examples import some


def gram_of(n: int, seed: int = 0) -> PointGram:
    points = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 5)))
    return PointGram(kernels.gaussian(0.5), points)


def lower(tiles: Tiles) -> np.ndarray:
    found = np.zeros((tiles.size, tiles.size))
    for row in range(tiles.count):
        for column in range(row + 1):
            found[tiles.span(row), tiles.span(column)] = tiles.view(row, column)
    return np.tril(found)


@given(st.integers(1, 60), st.integers(1, 25))
def test_tiles_cover_the_triangle_without_overlap(size, tile):
    tiles = Tiles(size, tile, np.zeros(entries(size, tile), dtype=np.int64))
    written = 0
    for column in range(tiles.count):
        for row in range(column, tiles.count):
            view = tiles.view(row, column)
            assert view.flags.f_contiguous
            assert view.shape == (tiles.length(row), tiles.length(column))
            view += 1
            written += view.size
    assert written == len(tiles.flat)
    assert (tiles.flat == 1).all()
    assert tiles.stretch(tiles.count - 1).stop == len(tiles.flat)


@settings(max_examples=some(50))
@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 10))
def test_the_factor_is_that_of_scipy(size, tile, seed):
    gram = gram_of(size, seed)
    scales = np.random.default_rng(seed).uniform(0.5, 2, size)
    tiles = Tiles.in_memory(size, np.dtype("float64"), tile=tile)
    cholesky.factorize(gram, tiles, scales)
    whole = gram.tile(slice(0, size), slice(0, size)).numpy() * scales * scales[:, None]
    assert np.allclose(lower(tiles), linalg.cholesky(whole, lower=True), atol=1e-8)
    right = np.random.default_rng(seed).normal(size=(size, 3))
    assert np.allclose(whole @ cholesky.solve(tiles, right), right, atol=1e-6)
    pivots = cholesky.pivots(tiles)
    assert pivots.smallest == pytest.approx(np.diagonal(lower(tiles)).min() ** 2)


@settings(max_examples=15)
@given(st.integers(1, 50), st.integers(1, 20))
def test_the_factor_in_place_is_that_of_scipy(size, block):
    gram = gram_of(size)
    matrix = gram.tile(slice(0, size), slice(0, size))
    whole = matrix.numpy().copy()
    cholesky.factorize_in_place(matrix, block=block)
    assert np.allclose(np.tril(matrix), linalg.cholesky(whole, lower=True), atol=1e-8)
    right = torch.from_numpy(np.random.default_rng(0).normal(size=(size, 2)))
    kept = right.clone()
    found = cholesky.solve_in_place(matrix, right, block=block)
    assert np.allclose(whole @ found.numpy(), right, atol=1e-6)
    assert torch.equal(right, kept)


@pytest.mark.parametrize("tile", [3, 8, 100])
def test_a_pivot_that_is_not_positive_is_named(tile):
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 5)))
    points[13] = points[4]
    gram = PointGram(kernels.linear(), torch.cat([points, torch.eye(20).double()], 1))
    gram.points[13] = gram.points[4]
    tiles = Tiles.in_memory(20, np.dtype("float64"), tile=tile)
    ones = np.ones(20)
    with pytest.raises(cholesky.NotPositive) as trouble:
        # The last pivot of an exact repetition may round to either side of zero; make it negative.
        cholesky.factorize(_Lowered(gram, 13), tiles, ones)
    assert trouble.value.point == 13
    matrix = _Lowered(gram, 13).tile(slice(0, 20), slice(0, 20))
    with pytest.raises(cholesky.NotPositive) as trouble:
        cholesky.factorize_in_place(matrix, block=tile)
    assert trouble.value.point == 13


class _Lowered:
    """A matrix with one diagonal entry made smaller."""

    def __init__(self, gram: PointGram, point: int) -> None:
        self.gram, self.point = gram, point

    def tile(self, rows: slice, columns: slice) -> torch.Tensor:
        values = self.gram.tile(rows, columns)
        if rows.start <= self.point < rows.stop and columns.start <= self.point < columns.stop:
            values[self.point - rows.start, self.point - columns.start] -= 1e-3
        return values


def test_the_number_of_multiplications():
    counted = []
    tiles = Tiles.in_memory(50, np.dtype("float64"), tile=8)
    cholesky.factorize(gram_of(50), tiles, np.ones(50), report=lambda: counted.append(1))
    assert sum(counted) == cholesky.multiplications(tiles.count, tiles.count)


def test_columns_that_are_there_are_not_made_again(tmp_path):
    gram = gram_of(40)
    first = Tiles.on_disk(40, np.dtype("float32"), tmp_path / "f", fresh=True, tile=7)
    cholesky.factorize(gram, first, np.ones(40))
    again = Tiles.on_disk(40, np.dtype("float32"), tmp_path / "f", fresh=False, tile=7)
    third = again.stretch(3)
    again.flat[third.start :] = 0
    cholesky.factorize(gram, again, np.ones(40), first=3)
    memory = Tiles.in_memory(40, np.dtype("float32"), tile=7)
    cholesky.factorize(gram, memory, np.ones(40))
    assert np.array_equal(again.flat, memory.flat)
