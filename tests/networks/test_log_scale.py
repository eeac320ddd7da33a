"""Labels move with the elements that they label: compared with NumPy on the elements."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.networks.log_scale import LogScale, Term, as_power, concatenate

VALUES = np.random.default_rng(0).normal(size=1000)
VALUES[0] = 0.0


def evaluated(scale: LogScale) -> np.ndarray:
    """The logarithm of every element's factor when label k has the value VALUES[k]."""
    total = np.zeros(scale.shape)
    for term in scale.terms:
        total = total + float(term.power) * VALUES[term.labels]
    return np.broadcast_to(total, scale.shape)


@st.composite
def scales(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> LogScale:
    if shape is None:
        shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    terms = []
    for _ in range(draw(st.integers(0, 2))):
        axes = draw(st.sets(st.integers(0, len(shape) - 1)))
        sizes = [size if k in axes else 1 for k, size in enumerate(shape)]
        labels = draw(
            st.lists(st.integers(0, 9), min_size=math.prod(sizes), max_size=math.prod(sizes))
        )
        power = draw(st.sampled_from([1, -1, 2, Fraction(1, 2)]))
        terms.append(Term(power, np.array(labels, dtype=np.int64).reshape(sizes), frozenset(axes)))
    return LogScale(shape, tuple(terms))


def check(scale: LogScale, expected: np.ndarray) -> None:
    assert scale.shape == expected.shape
    np.testing.assert_allclose(evaluated(scale), expected, atol=1e-12)
    for term in scale.terms:
        # Labels vary only along the axes on which a term says that it depends.
        assert all(size == 1 or axis in term.axes for axis, size in enumerate(term.labels.shape))


@given(scales(), st.data())
def test_reshape(scale: LogScale, data: st.DataObject) -> None:
    remaining, shape = math.prod(scale.shape), []
    while remaining > 1:
        size = data.draw(
            st.sampled_from([d for d in range(1, remaining + 1) if remaining % d == 0])
        )
        shape.append(size)
        remaining //= size
        if len(shape) > 5:
            shape.append(remaining)
            break
    check(scale.reshape(shape), evaluated(scale).reshape(shape))


def test_what_has_no_elements_takes_any_shape_without_any() -> None:
    assert LogScale((2, 0, 3)).reshape((0,)).shape == (0,)
    assert LogScale((0,)).reshape((3, 0)).shape == (3, 0)


@given(scales(), st.data())
def test_permute_take_select_and_new_axes(scale: LogScale, data: st.DataObject) -> None:
    values = evaluated(scale)
    order = data.draw(st.permutations(range(scale.dimensions)))
    check(scale.permute(order), values.transpose(order))
    axis = data.draw(st.integers(-scale.dimensions, scale.dimensions - 1))
    size = scale.shape[axis]
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    check(scale.take(axis, positions), values.take(positions, axis))
    check(scale.select(axis, positions[0]), values.take(positions[0], axis))
    check(scale.repeat_along(axis, 3), values.repeat(3, axis))
    place = data.draw(st.integers(0, scale.dimensions))
    check(scale.unsqueeze(place), np.expand_dims(values, place))
    check(scale.unsqueeze(place).squeeze(place), values)


@given(scales((2, 6, 3)), st.sampled_from([(2, 3), (1, 6), (6, 1), (3, 2, 1)]))
def test_split(scale: LogScale, sizes: tuple[int, ...]) -> None:
    check(scale.split(1, sizes), evaluated(scale).reshape(2, *sizes, 3))


@given(scales((2, 3)), scales((4, 2, 3)), scales((2, 1)))
def test_broadcast_product_quotient_and_power(a: LogScale, b: LogScale, c: LogScale) -> None:
    check(a.broadcast_to((4, 2, 3)), np.broadcast_to(evaluated(a), (4, 2, 3)))
    check(c.broadcast_to((2, 5)), np.broadcast_to(evaluated(c), (2, 5)))
    check(a.times(b), evaluated(a) + evaluated(b))
    check(b.over(c), evaluated(b) - evaluated(c))
    check(a.power(3), 3 * evaluated(a))
    assert a.over(a).terms == ()


@given(scales((2, 1, 3)), scales((2, 4, 3)), scales((2, 2, 3)))
def test_concatenate(a: LogScale, b: LogScale, c: LogScale) -> None:
    check(concatenate([a, b, c], 1), np.concatenate([evaluated(s) for s in (a, b, c)], 1))


@pytest.mark.parametrize(
    ("value", "power"), [(2, 2), (2.0, 2), (0.5, Fraction(1, 2)), (1 / 3, Fraction(1, 3))]
)
def test_exponents_become_exact(value: float, power: Fraction) -> None:
    assert as_power(value) == power
    assert as_power(math.pi) == Fraction(math.pi)
