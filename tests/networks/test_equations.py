"""The solver of linear equations against the rank of the matrix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.networks.equations import Equations
from nonvacuous.networks.log_scale import Term

UNKNOWNS = 6
ROWS = st.lists(
    st.lists(
        st.tuples(st.integers(0, UNKNOWNS), st.sampled_from([-2, -1, 1, 2])), min_size=1, max_size=4
    ),
    max_size=8,
)


@given(ROWS)
def test_as_many_are_free_as_the_rank_leaves_and_every_equation_holds(rows: list) -> None:
    equations = Equations()
    equations.fresh(UNKNOWNS)
    matrix = np.zeros((len(rows), UNKNOWNS + 1))
    for k, row in enumerate(rows):
        for label, power in row:
            matrix[k, label] += power
    matrix = matrix[:, 1:]
    news = equations.require_rows(rows)
    rank = np.linalg.matrix_rank(matrix) if rows else 0
    free = [label for label in range(1, UNKNOWNS + 1) if equations.is_free(label)]
    assert news == rank
    assert len(free) == UNKNOWNS - rank
    basis = np.zeros((UNKNOWNS, len(free)))
    for label in range(1, UNKNOWNS + 1):
        for root, factor in equations.resolve(label).items():
            basis[label - 1, free.index(root)] = float(factor)
    np.testing.assert_allclose(matrix @ basis, 0, atol=1e-9)


def test_the_oldest_unknown_stays_and_reasons_travel() -> None:
    equations = Equations()
    a, b, c = equations.fresh(3).tolist()
    equations.require_rows([[(c, 1), (b, -1)], [(b, 1), (a, -2)]])
    assert equations.resolve(c) == {a: 2}
    assert equations.require_rows([[(c, 1)]], reason="it is an output") == 1
    assert equations.require_rows([[(b, 1)]], reason="too late") == 0
    for label in (a, b, c):
        assert equations.resolve(label) == {}
        assert equations.reason(label) == "it is an output"


def test_terms_are_spread_over_one_another() -> None:
    equations = Equations()
    rows, columns = equations.fresh(2), equations.fresh(3)
    left = Term(1, rows.reshape(2, 1), frozenset({0}))
    right = Term(-1, columns.reshape(1, 3), frozenset({1}))
    assert equations.require_zero([left, right]) == 4
    assert {tuple(equations.resolve(int(k))) for k in (*rows, *columns)} == {(int(rows[0]),)}
    assert equations.require_zero([]) == 0
