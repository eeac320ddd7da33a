"""What is refused, before any work, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nonvacuous.errors import BadInput
from nonvacuous.interpolation import (
    Limits,
    gaussian,
    interpolate,
    linear,
    make_plan,
    one_hot,
    polynomial,
)

CPU = torch.device("cpu")


def refuse(*arguments, match: str, **options) -> None:
    with pytest.raises(BadInput, match=match):
        interpolate(*arguments, **options)


def test_conflicting_repetitions():
    points = np.random.default_rng(0).normal(size=(10, 3))
    points[7] = points[2]
    values = {"same": np.zeros(10), "other": np.arange(10.0)}
    refuse(points, values, kernel=gaussian(1.0), match=r"points 2 and 7 under 'other'")
    points[7] += 0.0
    points[2, 0], points[7, 0] = 0.0, -0.0
    refuse(points, values, kernel=gaussian(1.0), match="no function passes through both")


def test_constant_features_leave_equal_points():
    refuse(np.ones((5, 4)), np.arange(5.0), match="equal an earlier point")
    found = interpolate(np.ones((5, 4)), np.full(5, 2.0), kernel=gaussian(1.0))
    assert found.predict(np.ones((1, 4))) == pytest.approx([2.0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none(bad):
    points = np.zeros((4, 2))
    points[:, 0] = range(4)
    broken = points.copy()
    broken[2, 1] = bad
    refuse(broken, np.zeros(4), match="the first is point 2")
    refuse(points, [0.0, bad, 0.0, 0.0], match="the value at point 1")


def test_shapes():
    refuse(np.zeros((0, 3)), [], match="at least one point")
    refuse(np.zeros((3, 0)), [1, 2, 3], match="without coordinates")
    refuse(np.eye(3), [1.0, 2.0], match="3 points need values of shape")
    refuse(np.eye(3), {}, match="no values")
    refuse(np.eye(3) * 1j, [1, 2, 3], match="complex")
    refuse(np.eye(3), np.array([1j, 2, 3]), match="values: complex")
    for unreadable in (["a", "b", "c"], [[0.0], [1.0, 2.0]], None):
        refuse(unreadable, [1, 2, 3], match="points: expected numbers in rows of equal length")
        refuse(np.eye(3), {"these": unreadable}, match="these: expected numbers")
    refuse(np.eye(3), [1, 2, 3], match="method is one of", method="qr")
    refuse(np.eye(3), [1, 2, 3], match="precision is one of", precision="float16")
    with pytest.raises(BadInput, match="there are no values 'other'; there are values"):
        interpolate(np.eye(3), [1, 2, 3]).predictions(np.eye(3), names=("other",))
    for limits in ({"tile": 0}, {"iterations": -1}):
        with pytest.raises(BadInput, match="must be at least"):
            Limits(**limits)
    for number in (None, "wide", 0):
        with pytest.raises(BadInput, match="gamma must be"):
            gaussian(number)
        with pytest.raises(BadInput, match="degree must be a whole number"):
            polynomial(number)
    with pytest.raises(BadInput, match="tolerance"):
        Limits(tolerance=0.0)


def test_kernels_with_too_few_functions():
    points = np.random.default_rng(0).normal(size=(30, 4))
    refuse(points, np.zeros(30), kernel=linear(), match="at most 4 dimensions")
    refuse(points, np.zeros(30), kernel=polynomial(2), match="at most 15 dimensions")
    wide = np.concatenate([points, np.zeros((30, 40))], 1)
    refuse(wide, np.zeros(30), kernel=linear(), match="on 4 coordinates")


def test_a_point_where_the_kernel_is_zero():
    points = [[1.0, 0.0], [0.0, 0.0]]
    refuse(points, [1.0, 1.0], kernel=polynomial(2, offset=0.0), match="at most 1 dim")
    points = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    refuse(points, [1.0, 1.0, 1.0], kernel=linear(), match="point 1 with itself is 0")


def test_singular_names_the_pivot_and_its_neighbor():
    points = np.random.default_rng(0).normal(size=(20, 3))
    points[15] = points[3] + 1e-12
    with pytest.raises(BadInput) as error:
        interpolate(points, np.arange(20.0), kernel=gaussian(0.5))
    assert "pivot at point 15" in str(error.value)
    assert "Most like it is point 3" in str(error.value)
    assert "no ridge" in str(error.value)


def test_more_points_than_memory_and_disk(tmp_path):
    with pytest.raises(BadInput, match=r"too many here.*TB|too many here.*GB"):
        make_plan(100_000_000, 10, 10, device=CPU, memory=10**13, folder=tmp_path)
    with pytest.raises(BadInput, match="conjugate-gradient"):
        make_plan(10_000_000, 10, 10, device=CPU, memory=10**11, folder=tmp_path)
    with pytest.raises(BadInput, match="conjugate gradients need"):
        make_plan(10**7, 10, 10, device=CPU, memory=10**8, method="conjugate-gradient")


def test_labels():
    with pytest.raises(BadInput, match="whole numbers from 0"):
        one_hot([0.5])
    with pytest.raises(BadInput, match="only 2 classes"):
        one_hot([0, 2], 2)
