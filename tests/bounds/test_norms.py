"""The bounds from norms against many-digit arithmetic, and their properties."""

from __future__ import annotations

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.bounds.norms import (
    bartlett_gap,
    golowich_gap,
    grid_point,
    grid_share,
    margin_risk,
    neyshabur_gap,
)
from nonvacuous.errors import BadInput

mp = mpmath.MPContext()
mp.dps = 50
TOLERANCE = 1e-11

norms = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)
samples = st.integers(2, 10**7)
failures = st.floats(1e-200, 0.5)
margins = st.floats(1e-3, 1e3)


def near(found: float, exact: object) -> bool:
    """Never below, and above by rounding only."""
    return mp.mpf(found) >= exact and mp.mpf(found) <= exact * (1 + mp.mpf(TOLERANCE))


@given(norms, st.floats(0.1, 10), margins, st.floats(0, 1e4), st.integers(1, 5000), samples,
       failures)  # fmt: skip
def test_bartlett(spectral, ratio, margin, length, width, n, failure):
    sums = [ratio * s * (1 + k) for k, s in enumerate(spectral)]
    found = bartlett_gap(
        margin=margin, inputs_norm=length, spectral_norms=spectral, row_sums=sums, width=width,
        examples=n, failure=failure,
    )  # fmt: skip
    # Written without quotients: each term is b_i times the spectral norms of the other layers.
    terms = mp.mpf(0)
    for i, b in enumerate(sums):
        product = mp.mpf(b)
        for j, s in enumerate(spectral):
            product *= mp.mpf(s) if j != i else 1
        terms += mp.cbrt(product) ** 2
    main = 72 * mp.mpf(length) * mp.log(2 * width) * mp.log(n) / (mp.mpf(margin) * n)
    tail = mp.sqrt(9 * mp.log(2 / mp.mpf(failure)) / (2 * n))
    assert near(found, mp.mpf(8) / n + main * mp.sqrt(terms) ** 3 + tail)


@given(norms, st.floats(1, 30), margins, st.floats(1e-2, 100), st.integers(2, 5000), samples,
       failures)  # fmt: skip
def test_neyshabur(spectral, ratio, margin, length, width, n, failure):
    frobenius = [ratio * s for s in spectral]
    found = neyshabur_gap(
        margin=margin, input_norm=length, spectral_norms=spectral, frobenius_norms=frobenius,
        width=width, examples=n, failure=failure,
    )  # fmt: skip
    d = len(spectral)
    product = mp.mpf(1)
    for s in spectral:
        product *= mp.mpf(s) ** 2
    # b^2 t^(2d-2) = (1 + 1/d)^(2d-2) * product of the squared spectral norms.
    kl = product * (1 + mp.mpf(1) / d) ** (2 * d - 2)
    kl *= sum((mp.mpf(f) / mp.mpf(s)) ** 2 for f, s in zip(frobenius, spectral, strict=True))
    kl *= (42 * d * mp.mpf(length) / mp.mpf(margin)) ** 2 * width * mp.log(4 * width * d) / 2
    cover = mp.ceil(d * mp.root(mp.mpf(n), 2 * d))
    exact = 4 * mp.sqrt((kl + mp.log(6 * n * cover / mp.mpf(failure))) / (n - 1))
    assert near(found, exact)


@given(norms, margins, st.floats(0, 100), st.integers(2, 1000), samples, failures)
def test_golowich(frobenius, margin, length, classes, n, failure):
    found = golowich_gap(
        margin=margin, input_norm=length, frobenius_norms=frobenius, classes=classes, examples=n,
        failure=failure,
    )  # fmt: skip
    product = mp.mpf(4 * classes) * mp.mpf(length) / mp.mpf(margin)
    for f in frobenius:
        product *= mp.mpf(f)
    depth = 1 + mp.sqrt(len(frobenius) * mp.log(4))
    exact = (product * depth + mp.sqrt(mp.log(1 / mp.mpf(failure)) / 2)) / mp.sqrt(n)
    assert near(found, exact)


BARTLETT = {
    "margin": 1.0, "inputs_norm": 30.0, "spectral_norms": [2.0, 3.0], "row_sums": [5.0, 4.0],
    "width": 100, "examples": 1000, "failure": 0.05,
}  # fmt: skip
NEYSHABUR = {
    "margin": 1.0, "input_norm": 1.0, "spectral_norms": [2.0, 3.0], "frobenius_norms": [5.0, 4.0],
    "width": 100, "examples": 1000, "failure": 0.05,
}  # fmt: skip
GOLOWICH = {
    "margin": 1.0, "input_norm": 1.0, "frobenius_norms": [5.0, 4.0], "classes": 10,
    "examples": 1000, "failure": 0.05,
}  # fmt: skip
ALL = [(bartlett_gap, BARTLETT), (neyshabur_gap, NEYSHABUR), (golowich_gap, GOLOWICH)]


@pytest.mark.parametrize(("gap", "given_numbers"), ALL)
def test_gaps_fall_with_margin_and_examples_and_grow_with_norms(gap, given_numbers):
    value = gap(**given_numbers)
    assert gap(**given_numbers | {"margin": 2.0}) < value
    assert gap(**given_numbers | {"examples": 4000}) < value
    assert gap(**given_numbers | {"failure": 0.01}) > value
    for name, numbers in given_numbers.items():
        if isinstance(numbers, list):
            for layer in range(len(numbers)):
                larger = list(numbers)
                larger[layer] *= 1.1
                assert gap(**given_numbers | {name: larger}) > value
    for name in ("input_norm", "inputs_norm", "width", "classes"):
        if name in given_numbers:
            assert gap(**given_numbers | {name: given_numbers[name] * 2}) > value


@pytest.mark.parametrize(("gap", "given_numbers"), ALL)
def test_bad_numbers_are_refused(gap, given_numbers):
    for change, message in (
        ({"margin": 0.0}, "margin must be positive"),
        ({"margin": float("nan")}, "finite"),
        ({"examples": 0}, "examples"),
        ({"examples": 10.5}, "integer"),
        ({"failure": 0.0}, "failure"),
    ):
        with pytest.raises(BadInput, match=message):
            gap(**given_numbers | change)
    for name, numbers in given_numbers.items():
        if isinstance(numbers, list):
            for bad in ([], [0.0, 1.0], "12", [1.0, float("inf")], 3.0):
                with pytest.raises(BadInput, match=name):
                    gap(**given_numbers | {name: bad})


def test_layers_must_match():
    with pytest.raises(BadInput, match="2 layers"):
        bartlett_gap(**BARTLETT | {"row_sums": [1.0]})
    with pytest.raises(BadInput, match="2 layers"):
        neyshabur_gap(**NEYSHABUR | {"frobenius_norms": [1.0, 2.0, 3.0]})
    with pytest.raises(BadInput, match="at least 2"):
        neyshabur_gap(**NEYSHABUR | {"examples": 1})


@given(st.floats(1e-17, 1e17))
def test_the_grid_brackets_and_is_idempotent(value):
    above, below = grid_point(value), grid_point(value, downward=True)
    assert below <= value <= above
    assert above <= value * 2**0.25 * (1 + 1e-12)
    assert below >= value / 2**0.25 * (1 - 1e-12)
    assert grid_point(above) == above == grid_point(above, downward=True)


def test_the_grid_ends_and_its_shares_add_up():
    with pytest.raises(BadInput, match="outside the grid"):
        grid_point(1e30)
    assert 481**3 * grid_share(0.05, numbers=3) <= 0.05
    assert grid_share(0.05, numbers=0) <= 0.05
    with pytest.raises(BadInput):
        grid_share(0.05, numbers=200)
    assert margin_risk(margin_errors=3, examples=10, gap=5.0) == 1.0
    assert margin_risk(margin_errors=0, examples=10, gap=0.0) == 0.0
