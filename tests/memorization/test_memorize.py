"""``memorize``: the whole call against the theorem's statement, on friendly and hostile points."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nonvacuous.data import Examples
from nonvacuous.errors import Unsupported
from nonvacuous.memorization import memorize, random_labels
from tests.examples import some
from tests.memorization.oracles import network_value, stored_value


def cloud(points: int, dimensions: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(points, dimensions)), generator.normal(size=points)


@pytest.mark.parametrize("depth", [2, 3, 4, 5, 16, 31])
@pytest.mark.parametrize("kind", ["floats", "bytes", "pixels", "integers"])
def test_exact_at_every_depth_and_for_every_kind_of_number(depth, kind):
    generator = np.random.default_rng(depth)
    pixels = generator.integers(0, 256, size=(30, 6), dtype=np.uint8)
    points = {
        "floats": generator.normal(size=(30, 6)),
        "bytes": pixels,
        "pixels": pixels.astype(np.float32) / np.float32(255),
        "integers": generator.integers(-(2**62), 2**62, size=(30, 6)),
    }[kind]
    values = generator.normal(size=30) * 10
    found = memorize(points, values, depth=depth, seed=depth)
    assert found.depth == depth
    assert found.certificate.mismatches == 0
    assert found.certificate.distinct == 30
    assert found.direction.is_exact == (kind in ("bytes", "pixels"))
    assert found.direction.grid == (255 if kind == "pixels" else None)
    for point, value in zip(points, values, strict=True):
        assert network_value(found, point) == Fraction(value)
    np.testing.assert_array_equal(found.predict(points), values)
    assert found.residual(points, values).largest < 1e-9


FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64)
VALUES = st.one_of(FLOATS, st.integers(-(10**15), 10**15).map(float))


@settings(max_examples=some(160))
@given(data=st.data())
def test_any_floats_whatever_their_range(data):
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    points = data.draw(hnp.arrays(np.float64, shape, elements=FLOATS))
    values = np.array(data.draw(st.lists(VALUES, min_size=shape[0], max_size=shape[0])))
    depth = data.draw(st.integers(2, 3))
    distinct = len({tuple(row) for row in points.tolist()})
    found = memorize(points, values, depth=min(depth, distinct + 1), conflicts="majority")
    assert found.certificate.mismatches == 0
    assert found.duplicates.distinct == distinct
    kept: dict[tuple[float, ...], list[float]] = {}
    for point, value in zip(points.tolist(), values.tolist(), strict=True):
        kept.setdefault(tuple(point), []).append(value)
    for point in points:
        exact = network_value(found, point)
        same = kept[tuple(point.tolist())]
        assert exact in same
        assert same.count(float(exact)) == max(same.count(value) for value in same)


@settings(max_examples=some(120))
@given(
    near=st.lists(st.integers(-3, 3), min_size=2, max_size=12, unique=True),
    base=st.floats(1.0, 2.0),
    seed=st.integers(0, 5),
)
def test_points_that_nearly_coincide(near, base, seed):
    # Neighbors in float64: one step of the last binary digit apart.
    step = 2.0**-52
    points = np.array([[base + k * step, -base] for k in near])
    distinct = len(np.unique(points, axis=0))
    values = np.arange(len(near), dtype=np.float64)
    found = memorize(points, values, seed=seed, conflicts="majority")
    assert found.certificate.mismatches == 0
    assert found.duplicates.distinct == distinct
    for point in points:
        assert network_value(found, point).denominator == 1
    try:
        stored = found.weights
    except Unsupported as refusal:
        assert "float64 cannot tell" in str(refusal)
    else:
        worst = max(abs(stored_value(found, p) - network_value(found, p)) for p in points)
        assert float(worst) == pytest.approx(stored.largest_error, rel=1e-9, abs=1e-300)


@settings(max_examples=some(120))
@given(
    pixels=hnp.arrays(np.uint8, st.tuples(st.integers(1, 25), st.integers(1, 5))),
    depth=st.integers(2, 6),
    seed=st.integers(0, 3),
)
def test_bytes_in_float64_are_as_good_as_exact(pixels, depth, seed):
    labels = np.random.default_rng(seed).integers(0, 4, size=len(pixels))
    distinct = len(np.unique(pixels, axis=0))
    found = memorize(
        pixels, labels, depth=min(depth, distinct + 1), seed=seed, conflicts="majority"
    )
    kept = found.predict(pixels)
    assert set(kept) <= set(labels.astype(float))
    forward = found.forward(pixels)
    assert np.abs(forward - kept).max() < 1e-7
    if found.depth == 2:
        worst = max(abs(stored_value(found, p) - network_value(found, p)) for p in pixels)
        assert float(worst) == pytest.approx(found.weights.largest_error, rel=1e-9, abs=1e-300)


def test_counts_are_those_of_the_theorem():
    points, values = cloud(50, 7)
    for depth, more in ((2, 0), (3, 1), (11, 1)):
        found = memorize(points, values, depth=depth)
        assert found.parameters == 2 * 50 + 7 + more
        assert found.theorem_parameters == 107
        numbers = sum(p.numel() for p in found.module().parameters())
        assert numbers == found.parameters


def test_all_kinds_of_arguments_agree():
    points, _ = cloud(12, 3)
    labels = np.arange(12) % 4
    one = memorize(points, labels)
    for other in (
        memorize(torch.from_numpy(points), torch.from_numpy(labels)),
        memorize(points.tolist(), labels.tolist()),
        memorize(points.reshape(12, 3, 1), labels[:, None]),
    ):
        assert other.construction.weights == one.construction.weights
    examples = Examples.of((points.astype(np.float32), labels))
    narrow = memorize(examples)
    assert narrow.classes == 4
    np.testing.assert_array_equal(narrow.classify(examples), labels)
    np.testing.assert_array_equal(memorize(examples, labels[::-1]).classify(examples), labels[::-1])


def test_nothing_given_is_changed():
    points, values = cloud(20, 3)
    before = points.copy(), values.copy()
    points.setflags(write=False)
    values.setflags(write=False)
    memorize(points, values, depth=3).residual(points, values)
    np.testing.assert_array_equal(points, before[0])
    np.testing.assert_array_equal(values, before[1])


def test_the_seed_decides_and_nothing_else():
    points, values = cloud(20, 3)
    one, again, other = (memorize(points, values, seed=s) for s in (1, 1, 2))
    assert one.construction.knots == again.construction.knots
    assert one.construction.knots != other.construction.knots
    examples = Examples.of((points, np.arange(20) % 2))
    assert (random_labels(examples, seed=1) == random_labels(examples, seed=1)).all()
    assert (random_labels(examples, seed=1) != random_labels(examples, seed=2)).any()


def test_one_point_and_one_number_per_point():
    found = memorize([3.5], [-2.25])
    assert (found.parameters, found.certificate.distinct) == (3, 1)
    assert found.predict([3.5]).tolist() == [-2.25]
    assert found.module()(torch.tensor([[3.5]])).item() == pytest.approx(-2.25, abs=1e-12)
    assert memorize([[0.0, 0.0]], [7]).predict([[0.0, 0.0]]).tolist() == [7.0]


def test_copies_count_once():
    found = memorize([[1, 2], [3, 4], [1, 2], [1, 2]], [5, 6, 5, 5])
    assert (found.points, found.duplicates.distinct, found.parameters) == (4, 2, 6)
    assert found.duplicates.conflicting == found.duplicates.floor == 0
    assert found.predict([[1, 2], [3, 4]]).tolist() == [5.0, 6.0]


def test_minus_zero_is_zero():
    found = memorize([[0.0], [-0.0], [1.0]], [1, 1, 2])
    assert found.duplicates.distinct == 2


@pytest.mark.parametrize("depth", [2, 3])
def test_values_far_beyond_the_range_of_small_numbers(depth):
    points = np.array([[1e-300, 1e300], [2e-300, 1e300], [1e-300, -1e300], [0.0, 0.0]])
    values = np.array([1e300, -1e300, 1e-300, 0.0])
    found = memorize(points, values, depth=depth)
    np.testing.assert_array_equal(found.predict(points), values)
    for point, value in zip(points, values, strict=True):
        assert network_value(found, point) == Fraction(value)


def test_progress_is_told():
    told = []
    points, values = cloud(10, 2)
    memorize(points, values, progress=lambda phase, done, total, _: told.append((phase, done)))
    assert [phase for phase, _ in told][::2] == ["projecting", "constructing", "certifying"]


@pytest.mark.slow
def test_sixty_thousand_digits_with_random_labels(data_dir):
    from nonvacuous.data import load

    train = load("mnist", data_dir=data_dir).train
    labels = random_labels(train, seed=1)
    found = memorize(train, labels, seed=1)
    assert found.certificate.mismatches == 0
    assert found.certificate.points == found.certificate.projections == 60_000
    assert found.parameters == 2 * 60_000 + 784
    assert (found.classify(train) == labels).all()
    assert found.weights.largest_error < 1e-9
    # Every unit of a deep network, for some of the points.
    deep = memorize(train, labels, seed=1, depth=601)
    some = slice(0, 60_000, 40)
    assert deep.residual(train.inputs[some], labels[some]).largest <= 1e-7
