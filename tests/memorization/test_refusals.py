"""What cannot be memorized is refused before any work, with the reason and the remedy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nonvacuous.errors import BadInput, InvalidCertificate, Unsupported
from nonvacuous.memorization import ConflictingValues, inputs, memorize
from nonvacuous.memorization.inputs import BYTES_PER_POINT, check_memory

GOOD = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        ([[1.0, np.nan], [2.0, 3.0]], [1, 2], "position 0 contains NaN"),
        ([[1.0, 2.0], [np.inf, 3.0]], [1, 2], "position 1 contains NaN or infinity"),
        (GOOD, [1.0, np.inf, 2.0], "NaN or infinite, the first at position 1"),
        (GOOD, [1.0, 2.0, np.nan], "the first at position 2"),
        (GOOD, [1, 2], "one number for each point"),
        (GOOD, np.eye(3), "argmax"),
        (GOOD, ["a", "b", "c"], "not a kind of real number"),
        (GOOD, None, "there are none"),
        (np.zeros((0, 2)), [], "there are none"),
        (np.zeros((3, 0)), [1, 2, 3], "empty"),
        (5.0, [1], "not a list of points"),
        (GOOD.astype(complex), [1, 2, 3], "complex"),
        ([[1], [2, 3]], [1, 2], "points"),
        (np.ones((2, 1), dtype=np.uint64), [1, 2], "uint64"),
        (np.array([[-(2**63)], [1]]), [1, 2], "no opposite"),
    ],
)
def test_bad_points_and_values(points, values, message):
    with pytest.raises(BadInput, match=message):
        memorize(points, values)


@pytest.mark.parametrize("depth", [1, 0, -3, 2.5, True, 5])
def test_depths_that_make_no_sense(depth):
    with pytest.raises(BadInput, match="depth"):
        memorize(GOOD, [1, 2, 3], depth=depth)


def test_conflicting_copies_are_counted():
    points = [[1, 1], [2, 2], [1, 1], [1, 1], [3, 3], [2, 2]]
    with pytest.raises(ConflictingValues, match=r"positions 0 and 3.*at least 2 of 6") as caught:
        memorize(points, [7, 5, 7, 8, 1, 6])
    assert (caught.value.duplicates.conflicting, caught.value.duplicates.floor) == (2, 2)
    found = memorize(points, [7, 5, 7, 8, 1, 6], conflicts="majority")
    assert found.duplicates.floor == found.certificate.unreachable == 2
    assert found.predict([[1, 1], [2, 2], [3, 3]]).tolist() == [7.0, 5.0, 1.0]
    assert "2 points contradict" in str(found.certificate)
    with pytest.raises(BadInput, match="conflicts"):
        memorize(points, [7] * 6, conflicts="ignore")


def test_constant_features():
    # Some constant features do no harm; nothing but constants leaves one point.
    assert memorize([[5, 1], [5, 2]], [1, 2]).certificate.mismatches == 0
    with pytest.raises(ConflictingValues, match="all points are identical"):
        memorize(np.ones((4, 3)), [1, 2, 1, 1])
    assert memorize(np.ones((4, 3)), [1, 1, 1, 1]).duplicates.distinct == 1


def test_too_many_points_are_refused_before_they_are_read():
    # A billion rows that share one number: reading them would take hours.
    huge = np.broadcast_to(np.zeros((1, 1)), (10**11, 1))
    with pytest.raises(BadInput, match="GiB"):
        memorize(huge, np.broadcast_to(np.zeros(1), 10**11))


def test_the_memory_needed_is_estimated(monkeypatch):
    needed = 1000 * BYTES_PER_POINT + 640
    monkeypatch.setattr(inputs, "available_memory", lambda: needed)
    check_memory(1000, 10)
    monkeypatch.setattr(inputs, "available_memory", lambda: needed - 1)
    with pytest.raises(BadInput, match="memorize a part"):
        check_memory(1000, 10)


def test_other_number_types_are_refused_with_a_count():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(3000, 10), dtype=np.uint8)
    found = memorize(pixels, generator.integers(0, 10, 3000))
    with pytest.raises(Unsupported, match=r"float32 is refused.* of 3,000 labels would be wrong"):
        found.module(dtype=torch.float32)
    assert found.residual_in(torch.float32).wrong > 100
    assert found.residual_in(torch.float64).wrong == 0
    real = memorize(pixels, generator.normal(size=3000))
    with pytest.raises(Unsupported, match="largest error at 3,000 points"):
        real.module(dtype=torch.float16)
    with pytest.raises(BadInput, match="floating-point"):
        found.residual_in(torch.int64)


def test_weights_outside_float64_are_refused():
    found = memorize([[0.0], [5e-324], [1.0]], [1e308, -1e308, 1.0])
    assert found.certificate.mismatches == 0
    with pytest.raises((Unsupported, BadInput)):
        found.module()
    tiny = memorize([[5e-324], [1e-323]], [1, 2])
    assert tiny.predict([[1e-323]]).tolist() == [2.0]
    with pytest.raises((Unsupported, BadInput), match="float64"):
        tiny.module()


def test_points_of_another_shape():
    found = memorize(GOOD, [1, 2, 3])
    with pytest.raises(BadInput, match="was made for"):
        found.predict([[1.0, 2.0, 3.0]])
    with pytest.raises(BadInput, match="position 1 contains NaN"):
        found.predict([[1.0, 2.0], [np.nan, 1.0]])


def test_values_that_are_not_classes_have_no_scores():
    found = memorize(GOOD, [0.5, 1.5, 2.5])
    assert found.classes is None
    for call in (lambda: found.classify(GOOD), lambda: found.module(scores=True)):
        with pytest.raises(BadInput, match="classes"):
            call()
    assert memorize(GOOD, [-1, 0, 1]).classes is None


def test_a_wrong_weight_is_found():
    from dataclasses import replace
    from fractions import Fraction

    from nonvacuous.memorization.exact import certify_exactly
    from nonvacuous.memorization.inputs import read_points
    from nonvacuous.memorization.projection import line_up

    rows, _ = read_points(GOOD)
    ordered = line_up(rows, seed=0)
    made = memorize(GOOD, [1, 2, 3]).construction
    assert certify_exactly(made, ordered, rows).mismatches == 0
    weights = list(made.weights)
    weights[1] += Fraction(1, 10**30)
    with pytest.raises(InvalidCertificate, match="2 of 3 values differ"):
        certify_exactly(replace(made, weights=tuple(weights)), ordered, rows)
    with pytest.raises(InvalidCertificate, match="does not lie between"):
        certify_exactly(replace(made, knots=made.knots[::-1]), ordered, rows)
    moved = replace(ordered, positions=tuple(z + 1 for z in ordered.positions))
    with pytest.raises(InvalidCertificate, match="positions differ"):
        certify_exactly(made, moved, rows)
