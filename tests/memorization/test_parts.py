"""The parts one by one: fixed point, projection, construction, lemma, networks, files."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from nonvacuous.errors import BadInput
from nonvacuous.memorization import check_lemma, load, memorize, projection, what_it_does_not_say
from nonvacuous.memorization.construction import construct, hidden_widths, stored_weights
from nonvacuous.memorization.networks import MemorizingNetwork, class_head, nearest_class
from tests.examples import some
from tests.memorization.oracles import dense

ANY = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=some(300))
@given(
    rows=st.one_of(
        hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=ANY),
        hnp.arrays(
            np.int64,
            st.tuples(st.integers(1, 4), st.integers(1, 5)),
            elements=st.integers(-(2**63) + 1, 2**63 - 1),
        ),
    ),
    seed=st.integers(0, 9),
)
def test_sums_of_limbs_are_exact(rows, seed):
    generator = np.random.default_rng(seed)
    weights = generator.integers(-(2**28) + 1, 2**28, size=rows.shape[1])
    weights[0] = 2**28 - 1
    exponents = generator.integers(-40, 40, size=rows.shape[1])
    lowest = projection.lowest_digit(rows, exponents)
    found = projection.wide_sums(rows, weights, exponents, lowest=lowest)
    for row, total in zip(rows, found, strict=True):
        exact = sum(
            Fraction(value) * weight * Fraction(2) ** exponent
            for value, weight, exponent in zip(
                row.tolist(), weights.tolist(), exponents.tolist(), strict=True
            )
        )
        assert exact == total * Fraction(2) ** lowest


@given(hnp.arrays(np.float64, (3, 4), elements=ANY))
def test_the_scan_bounds_what_it_says(rows):
    found = projection.scan(rows)
    for row in rows.tolist():
        for value, exponent in zip(row, found.exponents.tolist(), strict=True):
            assert abs(Fraction(value)) < Fraction(2) ** exponent or value == 0
            assert (Fraction(value) / Fraction(2) ** found.lowest).denominator == 1
        assert sum(abs(Fraction(v)) for v in row) <= (
            Fraction(found.largest_sum) if np.isfinite(found.largest_sum) else Fraction(2) ** 2000
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pixels_are_recognized_and_nothing_else_is(dtype):
    every = (np.arange(256) / dtype(255)).astype(dtype)[:, None]
    assert projection.pixel_grid(every) == 255
    assert projection.to_pixels(every, 255)[:, 0].tolist() == list(range(256))
    for other in (every + dtype(1e-3), -every, every * 2, np.nextafter(every, dtype(2))):
        assert projection.pixel_grid(other.astype(dtype)) is None
    assert projection.pixel_grid(every.astype(np.float16)) is None


def test_data_of_another_scale_are_read_like_the_ones_memorized():
    pixels = np.random.default_rng(0).integers(0, 256, size=(40, 5), dtype=np.uint8)
    labels = np.arange(40) % 3
    found = memorize((pixels / np.float32(255)).astype(np.float32), labels)
    np.testing.assert_array_equal(found.predict(pixels), labels)
    network = found.module(scores=False)
    for inputs in (torch.from_numpy(pixels), torch.from_numpy(pixels).double() / 255):
        assert network(inputs)[:, 0].detach().numpy() == pytest.approx(labels, abs=1e-8)


@settings(max_examples=some(120))
@given(
    places=st.lists(st.integers(-(10**20), 10**20), min_size=1, max_size=9, unique=True),
    data=st.data(),
)
def test_the_construction_solves_the_lemmas_equations(places, data):
    places = sorted(places)
    values = data.draw(
        st.lists(st.integers(-(10**6), 10**6), min_size=len(places), max_size=len(places))
    )
    made = construct(places, values)
    for z, y in zip(places, values, strict=True):
        pairs = zip(made.weights, made.knots, strict=True)
        assert sum(w * max(z - b, 0) for w, b in pairs) == y
    check = check_lemma(made.positions, made.knots)
    assert check.holds and check.rank == len(places)
    gaps = [z - b for z, b in zip(made.positions, made.knots, strict=True)]
    assert check.smallest_eigenvalue == min(gaps)


def test_the_smallest_eigenvalue_is_what_a_library_finds():
    made = construct([3, 5, 6, 10], [1, 2, 3, 4])
    matrix = np.maximum(np.subtract.outer(made.positions, made.knots), 0).astype(float)
    assert np.abs(np.linalg.eigvals(matrix)).min() == pytest.approx(1.0, rel=1e-6)
    # Knots that do not interleave break the lemma, and the check says so.
    broken = check_lemma([1, 2, 3], [0, 0, 0])
    assert not broken.holds and broken.rank == 1
    with pytest.raises(BadInput, match="give a part"):
        check_lemma(range(1, 1000), range(999))


@settings(max_examples=some(80))
@given(
    gaps=st.lists(st.integers(1, 2**40), min_size=3, max_size=30),
    depth=st.integers(2, 8),
    seed=st.integers(0, 99),
)
def test_feedback_keeps_errors_at_one_rounding(gaps, depth, seed):
    places = np.cumsum(gaps).tolist()
    values = np.random.default_rng(seed).integers(-9, 9, size=len(gaps)).tolist()
    made = construct(places, values, depth=min(depth, len(gaps) + 1))
    stored = stored_weights(made, unit=0, fraction_bits=0)
    # Half a unit in the last place of each weight, over the gap that it acts on.
    allowed = max(
        abs(float(w)) * (z - b) * 2.0**-52
        for w, z, b in zip(made.weights, made.positions, made.knots, strict=True)
    )
    assert stored.largest_error <= 4 * allowed + 1e-300


@pytest.mark.parametrize("depth", [2, 3, 4, 5, 13])
def test_dense_layers_compute_the_same(depth):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(60, 4), dtype=np.uint8)
    labels = generator.integers(0, 5, size=60)
    found = memorize(pixels, labels, depth=depth)
    network = found.module()
    layers = dense(network)
    kinds = {type(layer) for layer in layers}
    assert kinds == {nn.Flatten, nn.Linear, nn.ReLU}
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert len(linear) == depth + 1  # the last one turns the value into class scores
    widths = hidden_widths(found.construction.blocks, 60)
    assert [layer.out_features for layer in linear[:-2]] == widths
    assert max(widths) == found.width <= -(-60 // (depth - 1)) + 4
    inputs = torch.from_numpy(generator.integers(0, 256, size=(200, 4))).double()
    with torch.no_grad():
        torch.testing.assert_close(layers(inputs), network(inputs), rtol=1e-6, atol=1e-6)
        assert (layers(torch.from_numpy(pixels).double()).argmax(1).numpy() == labels).all()


def test_the_same_function_between_the_points_at_every_depth():
    generator = np.random.default_rng(1)
    points = generator.normal(size=(25, 3))
    values = generator.normal(size=25)
    elsewhere = generator.normal(size=(100, 3)) * 3
    wanted = memorize(points, values).predict(elsewhere)
    for depth in (2, 3, 7, 26):
        found = memorize(points, values, depth=depth)
        np.testing.assert_array_equal(found.predict(elsewhere), wanted)
        np.testing.assert_allclose(found.forward(elsewhere), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("depth", [2, 5])
@pytest.mark.parametrize("kind", ["pixels", "real values"])
def test_files_keep_every_number(tmp_path, depth, kind):
    generator = np.random.default_rng(0)
    points = (generator.integers(0, 256, size=(30, 4)) / np.float32(255)).astype(np.float32)
    values = generator.integers(0, 3, 30) if kind == "pixels" else generator.normal(size=30)
    found = memorize(points, values, depth=depth)
    path = found.save(tmp_path / "folder" / "network.safetensors")
    again = load(path)
    inputs = torch.from_numpy(points)
    with torch.no_grad():
        assert torch.equal(again(inputs), found.module()(inputs))
    assert again.classes == found.classes and again.depth == depth
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match="safetensors"):
        load(path)


def test_class_scores_are_largest_at_the_nearest_class():
    values = np.linspace(-2, 6, 161)
    scores = class_head(5, torch.float64)(torch.from_numpy(values)[:, None])
    np.testing.assert_array_equal(scores.argmax(1).numpy(), nearest_class(values, 5))


def test_what_is_not_said_names_the_users_numbers():
    text = " ".join(what_it_does_not_say(memorize([[1, 2], [3, 4], [5, 6]], [1, 2, 3]).sizes))
    for expected in ("3 hidden units", "8 in one hidden layer", "no 3 points", "gradient descent"):
        assert expected in text


def test_the_record_is_plain():
    import json

    record = memorize([[1, 2], [3, 4]], [0, 1], depth=3).to_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["parameters"] == 7 and record["certificate"]["mismatches"] == 0


@settings(max_examples=some(120))
@given(
    places=st.lists(st.integers(-12, 12), min_size=4, max_size=20, unique=True),
    depth=st.integers(2, 9),
    seed=st.integers(0, 9),
)
def test_networks_built_from_stored_numbers(places, depth, seed):
    # Small positions on both sides of zero: a block may well start at zero itself.
    places = sorted(places)
    values = np.random.default_rng(seed).integers(-9, 9, size=len(places))
    made = construct(places, values.tolist(), depth=min(depth, len(places) + 1))
    stored = stored_weights(made, unit=0, fraction_bits=0)
    network = MemorizingNetwork(
        torch.ones(1, dtype=torch.float64),
        torch.from_numpy(stored.knots),
        torch.from_numpy(stored.weights),
        end=stored.end,
        blocks=stored.blocks,
    )
    positions = torch.tensor(places, dtype=torch.float64)[:, None]
    with torch.no_grad():
        for found in (network(positions), dense(network)(positions)):
            np.testing.assert_allclose(found[:, 0].numpy(), values, atol=1e-11)
