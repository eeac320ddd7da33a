"""Sparse norms and the babel function against brute force over all submatrices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.norms import (
    babel_norm,
    frobenius_norm,
    reduced_gram,
    row_norm,
    row_norms,
    sparse_norm,
    sparse_norms,
    spectral_norm,
)
from tests.sparsity.number_oracles import babel

#: How far beyond the exact value rounding outward may go.
SLACK = 1e-11


def brute_norm(matrix: np.ndarray, rows: int, columns: int) -> float:
    """The largest spectral norm of any submatrix, by trying them all."""
    tall, wide = matrix.shape
    return max(
        float(np.linalg.norm(matrix[np.ix_(up, across)], 2))
        for up in itertools.combinations(range(tall), rows)
        for across in itertools.combinations(range(wide), columns)
    )


def brute_gram(matrix: np.ndarray, columns: int) -> np.ndarray:
    """The largest |inner product| of two rows over any so many entries, by trying them all."""
    return np.max(
        [
            np.abs(matrix[:, list(chosen)] @ matrix[:, list(chosen)].T)
            for chosen in itertools.combinations(range(matrix.shape[1]), columns)
        ],
        axis=0,
    )


def brute_babel(matrix: np.ndarray, rows: int, columns: int) -> float:
    gram = brute_gram(matrix, columns)
    best = 0.0
    for chosen in itertools.combinations(range(len(matrix)), rows):
        for j in chosen:
            best = max(best, sum(gram[i, j] for i in chosen if i != j))
    return best / gram.diagonal().max()


def some_matrix(seed: int) -> np.ndarray:
    """Small matrices of every kind: dense, sparse, rank one, repeated rows, huge, tiny."""
    generator = np.random.default_rng(seed)
    tall, wide = generator.integers(1, 6), generator.integers(1, 7)
    matrix = generator.normal(size=(tall, wide))
    kind = seed % 6
    if kind == 1:
        matrix *= generator.random((tall, wide)) < 0.4
        matrix[0, 0] = 1.0
    elif kind == 2:
        matrix = np.outer(generator.normal(size=tall), generator.normal(size=wide))
    elif kind == 3:
        matrix[:] = matrix[0] * generator.choice([-1, 1], size=(tall, 1))
    elif kind == 4:
        matrix = np.round(matrix * 2) * 1e200
        matrix[0, 0] = 1e200
    elif kind == 5:
        matrix *= 1e-200
    return matrix


#: Sixty matrices at a time, and more of them at night.
SIXTIES = [0, 60, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(120, 360, 60))]


@pytest.mark.slow
@pytest.mark.parametrize("start", SIXTIES)
def test_every_bound_is_above_brute_force(start):
    beaten = dict.fromkeys(("exact", "spectral", "frobenius", "babel"), 0)
    for seed in range(start, start + 60):
        matrix = some_matrix(seed)
        weight = torch.from_numpy(matrix)
        tall, wide = matrix.shape
        table = sparse_norms(weight)
        scale = np.abs(matrix).max()
        for rows, columns in itertools.product(range(1, tall + 1), range(1, wide + 1)):
            # The brute force squares nothing large: it works on the scaled matrix.
            exact = brute_norm(matrix / scale, rows, columns) * scale
            found = sparse_norm(weight, rows=rows, columns=columns)
            assert "babel" in found.bounds
            below = exact * (1 - 1e-14)
            for bound in (
                found.value,
                found.bounds["spectral"],
                found.bounds["frobenius"],
                found.bounds["babel"],
            ):
                assert bound >= below
            assert float(table[rows, columns]) >= below
            assert found.value == min(
                found.value,
                found.bounds["spectral"],
                found.bounds["frobenius"],
                found.bounds["babel"],
            )
            beaten[found.way] += 1
            if rows == 1 or columns == 1:
                assert found.way == "exact"
                assert found.value <= exact * (1 + SLACK)
            if rows == 1:
                assert row_norm(weight, columns=columns) <= exact * (1 + SLACK)
                assert float(row_norms(weight)[columns]) == pytest.approx(exact, rel=SLACK)
        assert float(table[tall, wide]) <= spectral_norm(weight) * (1 + SLACK)
        assert float(table[0].abs().max()) == 0.0
    assert beaten["exact"] > 50 and beaten["spectral"] > 50
    assert beaten["frobenius"] + beaten["babel"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("start", SIXTIES)
def test_the_babel_function_is_its_definition(start):
    for seed in range(start, start + 60):
        matrix = some_matrix(seed)
        matrix = matrix / np.abs(matrix).max()
        weight = torch.from_numpy(matrix)
        tall, wide = matrix.shape
        for columns in range(1, wide + 1):
            exact_gram = brute_gram(matrix, columns)
            found = reduced_gram(weight, columns=columns).numpy()
            np.testing.assert_allclose(found, exact_gram, rtol=1e-12, atol=1e-14)
            chunked = reduced_gram(weight, columns=columns, products=1).numpy()
            np.testing.assert_allclose(chunked, found, rtol=1e-14, atol=1e-15)
            for rows in range(1, tall + 1):
                mu = babel(weight, rows=rows, columns=columns)
                assert mu == pytest.approx(brute_babel(matrix, rows, columns), rel=1e-10, abs=1e-12)
                lemma = row_norm(weight, columns=columns) * math.sqrt(1 + mu)
                tight = babel_norm(weight, rows=rows, columns=columns)
                assert tight <= lemma * (1 + 1e-12)
                assert tight >= brute_norm(matrix, rows, columns) * (1 - 1e-14)


@given(st.integers(0, 10**6))
def test_norms_grow_with_what_is_active_and_lie_between_entry_and_spectral_norm(seed):
    weight = torch.from_numpy(some_matrix(seed))
    table = sparse_norms(weight)
    assert bool((table.diff(dim=0) >= 0).all()) and bool((table.diff(dim=1) >= 0).all())
    assert float(table[1, 1]) >= float(weight.abs().max())
    rows = row_norms(weight)
    assert bool((rows.diff() >= 0).all())


@given(st.integers(0, 10**6), st.sampled_from([2.0, 0.37, 1e3]))
def test_norms_scale_with_the_matrix_and_babel_does_not(seed, factor):
    weight = torch.from_numpy(some_matrix(seed % 4))
    tall, wide = weight.shape
    rows, columns = 1 + seed % tall, 1 + seed % wide
    one = sparse_norm(weight, rows=rows, columns=columns)
    other = sparse_norm(weight * factor, rows=rows, columns=columns)
    assert other.value == pytest.approx(factor * one.value, rel=1e-9)
    mu = babel(weight, rows=rows, columns=columns)
    assert babel(weight * factor, rows=rows, columns=columns) == pytest.approx(mu, abs=1e-9)


def test_the_spectral_norm_is_above_the_true_one():
    # Singular values known by construction: orthogonal factors around a diagonal.
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        left, _ = torch.linalg.qr(torch.randn(40, 40, generator=generator, dtype=torch.float64))
        right, _ = torch.linalg.qr(torch.randn(60, 40, generator=generator, dtype=torch.float64))
        values = torch.linspace(3.0, 0.1, 40, dtype=torch.float64)
        weight = left @ values.diag() @ right.T
        assert 3.0 * (1 - 1e-14) <= spectral_norm(weight) <= 3.0 * (1 + 1e-11)
        # Power iteration comes from below: it must not be what is returned.
        vector = torch.randn(60, generator=generator, dtype=torch.float64)
        for _ in range(5):
            vector = weight.T @ (weight @ vector)
            vector /= vector.norm()
        assert float((weight @ vector).norm()) < spectral_norm(weight)


def test_babel_beats_the_others_on_nearly_orthogonal_rows_with_few_entries():
    weight = torch.eye(30, dtype=torch.float64) + 0.01
    found = sparse_norm(weight, rows=10, columns=4)
    assert found.way == "babel"
    assert "babel" in found.bounds and found.bounds["babel"] < min(
        found.bounds["spectral"], found.bounds["frobenius"]
    )
    assert sparse_norm(weight, rows=10, columns=4, babel=False).bounds.keys() == {
        "spectral",
        "frobenius",
    }


def test_a_zero_matrix_and_float32_weights():
    zero = torch.zeros(3, 4)
    assert sparse_norm(zero, rows=2, columns=2).value == 0.0
    assert babel(zero, rows=2, columns=2) == 0.0
    weight = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert row_norm(weight, columns=3) == row_norm(weight.double(), columns=3)
    before = weight.clone()
    sparse_norm(weight, rows=2, columns=3)
    assert torch.equal(weight, before)


@pytest.mark.parametrize(
    ("weight", "rows", "columns", "message"),
    [
        (torch.ones(3), 1, 1, "matrix"),
        (torch.ones(0, 3), 1, 1, "matrix"),
        ("weights", 1, 1, "matrix"),
        (torch.tensor([[1.0, math.nan]]), 1, 1, "NaN"),
        (torch.ones(2, 2), 0, 1, "at least 1"),
        (torch.ones(2, 2), 3, 1, "only 2"),
        (torch.ones(2, 2), 1, 3, "only 2"),
        (torch.ones(2, 2), 1.5, 1, "integer"),
    ],
)
def test_what_is_not_a_matrix_is_refused(weight, rows, columns, message):
    with pytest.raises(BadInput, match=message):
        sparse_norm(weight, rows=rows, columns=columns)
    with pytest.raises(BadInput, match=message):
        frobenius_norm(weight, rows=rows, columns=columns)
