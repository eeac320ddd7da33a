"""binary_kl and its two inverses: arrays, scalars, and what they refuse."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from nonvacuous.bounds import binary_kl, kl_inverse_lower, kl_inverse_upper
from nonvacuous.errors import BadInput

EXTREMES = [0.0, 5e-324, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0]
FUNCTIONS = [binary_kl, kl_inverse_upper, kl_inverse_lower]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_vectorized_equals_scalar(function) -> None:
    generator = np.random.default_rng(3)
    qs, seconds = generator.uniform(0, 1, 300), generator.uniform(0, 1, 300)
    qs[:6], seconds[:6] = [0, 0, 1, 1, 0.5, 5e-324], [0, 1, 0, 1, 0.5, 1e-9]
    pairs = zip(qs.tolist(), seconds.tolist(), strict=True)
    # Two computations, each judged by the oracle: they may differ by rounding, nothing more.
    alone = [function(q, second) for q, second in pairs]
    assert function(qs, seconds).tolist() == pytest.approx(alone, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_scalars_give_a_python_float(function) -> None:
    for q, second in [(0.1, 0.2), (0, 1), (1, 1), (0.5, 0)]:
        assert type(function(q, second)) is float
    for q, second in [(np.float64(0.1), np.float64(0.2)), (np.float32(0.5), np.int64(1))]:
        result = function(q, second)
        assert isinstance(result, float)
        assert result == function(float(q), float(second))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arrays_keep_their_shape_and_broadcast(function) -> None:
    qs = np.linspace(0.05, 0.95, 12).reshape(3, 4)
    seconds = np.array([0.1, 0.2, 0.3, 0.4])
    result = function(qs, seconds)
    assert isinstance(result, np.ndarray)
    assert result.shape == (3, 4)
    assert result.dtype == np.float64
    assert function(qs, 0.3).shape == (3, 4)
    assert function(0.3, seconds).shape == (4,)
    assert function(qs[:, :, None], seconds).shape == (3, 4, 4)
    alone = function(float(qs[2, 0]), 0.4)
    assert function(qs[:, :1], seconds)[2, 3] == pytest.approx(alone, rel=1e-13)
    assert function(np.empty((0, 3)), 0.5).shape == (0, 3)
    alone = function(float(qs[1, 2]), float(seconds[2]))
    assert result[1, 2] == pytest.approx(alone, rel=1e-13)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arguments_are_not_changed(function) -> None:
    qs, seconds = np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.5, 1.0])
    function(qs, seconds)
    assert qs.tolist() == seconds.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_floating_point_warnings(function) -> None:
    pairs = np.array(list(itertools.product(EXTREMES, [0.0, 5e-324, 1e-9, 0.5, 1.0])))
    with np.errstate(all="raise", under="ignore"):
        function(pairs[:, 0], pairs[:, 1])


BAD_RISKS = [-0.1, 1.1, -5e-324, math.nextafter(1.0, 2.0), math.nan, math.inf, -math.inf]
BAD_COMPLEXITIES = [-1.0, -5e-324, math.nan, -math.inf]
BAD_TYPES = ["0.5", None, True, False, 0.5j]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("bad", BAD_RISKS + BAD_TYPES, ids=repr)
def test_bad_first_argument(function, bad: object) -> None:
    with pytest.raises(BadInput) as caught:
        function(bad, 0.5)
    assert re.search(r"\bq\b", str(caught.value))
    assert str(bad) in str(caught.value)


@pytest.mark.parametrize("bad", BAD_RISKS + BAD_TYPES, ids=repr)
def test_bad_second_argument_of_kl(bad: object) -> None:
    with pytest.raises(BadInput) as caught:
        binary_kl(0.5, bad)
    assert re.search(r"\bp\b", str(caught.value))
    assert str(bad) in str(caught.value)


@pytest.mark.parametrize("function", [kl_inverse_upper, kl_inverse_lower])
@pytest.mark.parametrize("bad", BAD_COMPLEXITIES + BAD_TYPES, ids=repr)
def test_bad_complexity(function, bad: object) -> None:
    with pytest.raises(BadInput) as caught:
        function(0.5, bad)
    assert re.search(r"\bc\b", str(caught.value))
    assert str(bad) in str(caught.value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_bad_element_spoils_an_array(function) -> None:
    for bad in (-0.25, math.nan):
        with pytest.raises(BadInput, match=str(bad)):
            function(np.array([0.1, bad, 0.3]), 0.5)
        with pytest.raises(BadInput, match=str(bad)):
            function(0.5, np.array([0.1, bad, 0.3]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_arrays_are_refused(function) -> None:
    for bad in (np.array([True, False]), np.array(["0.5"]), np.array([0.5 + 0j])):
        with pytest.raises(BadInput):
            function(bad, 0.5)
        with pytest.raises(BadInput):
            function(0.5, bad)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_shapes_that_do_not_broadcast_are_refused(function) -> None:
    with pytest.raises(BadInput):
        function(np.full(3, 0.5), np.full(4, 0.5))
