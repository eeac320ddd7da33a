"""binary_kl and its two inverses against 60-digit arithmetic, at every extreme.

An inverse is judged without inverting: p is on the safe side when kl(q, p) >= c, and tight when
stepping back by the tolerance makes kl fall to c or less. That needs two evaluations of the
exact kl and no root finding.
"""

from __future__ import annotations

import importlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.bounds import binary_kl, kl_inverse_lower, kl_inverse_upper

from . import oracles
from .checks import DETERMINISTIC
from .oracles import mpf

RELATIVE, ABSOLUTE = mpf(10) ** -12, mpf(10) ** -15
EXTREME_QS = [0.0, 5e-324, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0]
EXTREME_CS = [0.0, 5e-324, 1e-18, 1e-9, 0.1, 1.0, 50.0, 700.0, 1e6, math.inf]


def upper_fault(q: float, c: float, p: float) -> str | None:
    """Why p is not an acceptable upper inverse, or None."""
    if not q <= p <= 1.0:
        return "outside [q, 1]"
    if p < 1.0 and oracles.binary_kl(q, p) < c:
        return "below the true inverse"
    back = (mpf(p) - ABSOLUTE) / (1 + RELATIVE)
    if back > q and oracles.binary_kl(q, back) > c:
        return "loose"
    return None


def lower_fault(q: float, c: float, p: float) -> str | None:
    """Why p is not an acceptable lower inverse, or None."""
    if not 0.0 <= p <= q:
        return "outside [0, q]"
    if p > 0.0 and oracles.binary_kl(q, p) < c:
        return "above the true inverse"
    forth = (mpf(p) + ABSOLUTE) / (1 - RELATIVE)
    if forth < q and oracles.binary_kl(q, forth) > c:
        return "loose"
    return None


def faults(qs: np.ndarray, cs: np.ndarray) -> list[tuple]:
    """Every (function, q, c, value, why) that is wrong, from one vectorized call of each.

    The scalar path is another computation: its value is judged too where it is another one.
    """
    found = []
    for name, inverse, fault in (
        ("upper", kl_inverse_upper, upper_fault),
        ("lower", kl_inverse_lower, lower_fault),
    ):
        for q, c, p in zip(qs.tolist(), cs.tolist(), inverse(qs, cs).tolist(), strict=True):
            for value in {p, inverse(q, c)}:
                why = fault(q, c, value)
                if why is not None:
                    found.append((name, q, c, value, why))
    return found


def log_uniform(generator: np.random.Generator, low: float, high: float, size: int) -> np.ndarray:
    return 10.0 ** generator.uniform(low, high, size)


def ordinary(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Risks and complexities as certificates have them."""
    return generator.uniform(0, 1, size), log_uniform(generator, -6, 1, size)


def near_zero(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    return log_uniform(generator, -323, 0, size), log_uniform(generator, -20, 6, size)


def near_one(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    return 1.0 - log_uniform(generator, -16, 0, size), log_uniform(generator, -20, 6, size)


def tiny_complexity(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    qs = np.where(
        generator.random(size) < 0.5,
        generator.uniform(0, 1, size),
        log_uniform(generator, -30, 0, size),
    )
    return qs, log_uniform(generator, -323.3, -10, size)


def inverse_close_to_q(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """c = kl(q, p) for a p that is a few to a few million floats away from q."""
    qs = np.where(
        generator.random(size) < 0.5,
        generator.uniform(0, 1, size),
        log_uniform(generator, -20, 0, size),
    )
    shift = log_uniform(generator, -16, -5, size)
    return qs, qs * shift**2 / (2 * np.maximum(1 - qs, 2.0**-53))


def inverse_close_to_one(
    generator: np.random.Generator, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """c such that 1 - p is about 10^-1 to 10^-18: where a careless inverse returns 1 or clamps."""
    qs = generator.uniform(0, 1, size)
    gap = log_uniform(generator, -18, -1, size)
    entropy = qs * np.log(qs) + (1 - qs) * np.log1p(-qs)
    return qs, np.maximum(entropy - (1 - qs) * np.log(gap) - qs * np.log1p(-gap), 0.0)


def inverse_is_a_float(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """c is the exact kl at a double p, rounded: the true inverse is within a float of p."""
    qs = generator.integers(0, 1025, size) / 1024
    ps = generator.integers(1, 1024, size) / 1024
    return qs, np.array(
        [float(oracles.binary_kl(q, p)) for q, p in zip(qs.tolist(), ps.tolist(), strict=True)]
    )


def counts(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """q = k/n and c = nats/n."""
    examples = np.round(log_uniform(generator, 0, 9, size))
    errors = np.floor(generator.random(size) ** 4 * (examples + 1))
    return errors / examples, log_uniform(generator, -3, 4, size) / examples


def lower_inverse_close_to_zero(
    generator: np.random.Generator, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """c such that the lower inverse is a subnormal float or rounds to zero."""
    qs = generator.uniform(0, 1, size)
    return qs, qs * generator.uniform(650, 760, size)


FAMILIES = [
    (ordinary, 4000),
    (near_zero, 3000),
    (near_one, 3000),
    (tiny_complexity, 3000),
    (inverse_close_to_q, 3000),
    (inverse_close_to_one, 3000),
    (inverse_is_a_float, 1500),
    (counts, 2000),
    (lower_inverse_close_to_zero, 1500),
]


@pytest.mark.parametrize(("family", "size"), FAMILIES, ids=[f.__name__ for f, _ in FAMILIES])
def test_inverses_are_safe_and_tight(family, size: int) -> None:
    qs, cs = family(np.random.default_rng(20260), size)
    found = faults(qs, cs)
    assert not found, f"{len(found)} of {2 * size} wrong, among them {found[:5]}"


def test_enough_points_are_tried() -> None:
    assert sum(size for _, size in FAMILIES) >= 20_000


def test_inverses_on_the_grid_of_extremes() -> None:
    pairs = np.array(list(itertools.product(EXTREME_QS, EXTREME_CS)))
    found = faults(pairs[:, 0], pairs[:, 1])
    assert not found, found


def test_inverses_on_a_wide_grid() -> None:
    gaps = [2.0**-power for power in range(2, 54, 3)]
    qs = [0.0, *(10.0**-power for power in range(1, 320, 21)), *gaps, *(1 - gap for gap in gaps)]
    cs = [*(10.0**power for power in range(-320, 7, 13)), math.log(2), 36.7, 37.5, 709.8, 745.2]
    pairs = np.array(list(itertools.product(qs, cs)))
    found = faults(pairs[:, 0], pairs[:, 1])
    assert not found, found[:5]


def test_the_judge_rejects_wrong_inverses() -> None:
    """One float to the wrong side, or 10^-11 too far to the right one, is noticed."""
    q, c = 0.1, 0.05
    true = oracles.kl_inverse_upper(q, c)
    nearest = float(true)
    below = nearest if mpf(nearest) < true else math.nextafter(nearest, 0.0)
    assert upper_fault(q, c, below) == "below the true inverse"
    assert upper_fault(q, c, nearest * (1 + 1e-11)) == "loose"
    assert upper_fault(q, c, 1.0) == "loose"
    assert upper_fault(q, c, math.nextafter(nearest, 1.0)) is None
    true = oracles.kl_inverse_lower(q, c)
    nearest = float(true)
    above = nearest if mpf(nearest) > true else math.nextafter(nearest, 1.0)
    assert lower_fault(q, c, above) == "above the true inverse"
    assert lower_fault(q, c, nearest * (1 - 1e-11)) == "loose"
    assert lower_fault(q, c, math.nextafter(nearest, 0.0)) is None


def test_exact_values_of_the_inverses() -> None:
    for q in EXTREME_QS:
        assert kl_inverse_upper(q, math.inf) == 1.0
        assert kl_inverse_lower(q, math.inf) == 0.0
    for c in EXTREME_CS:
        assert kl_inverse_upper(1.0, c) == 1.0
        assert kl_inverse_lower(0.0, c) == 0.0
    # At q = 1 an inverse that starts from the wrong end returns 0; at q = 0 one that clamps q
    # away from 0 is too large.
    assert kl_inverse_upper(0.0, math.log(2)) == pytest.approx(0.5, rel=1e-12)
    assert kl_inverse_lower(1.0, math.log(2)) == pytest.approx(0.5, rel=1e-12)


@DETERMINISTIC
@given(q=st.floats(0, 1), c=st.floats(0, 1e6))
def test_inverses_by_hypothesis(q: float, c: float) -> None:
    assert upper_fault(q, c, kl_inverse_upper(q, c)) is None
    assert lower_fault(q, c, kl_inverse_lower(q, c)) is None


@DETERMINISTIC
@given(q=st.floats(0, 1), c=st.floats(0, 50))
def test_the_library_agrees_with_itself(q: float, c: float) -> None:
    """kl(q, upper) reaches c up to the accuracy of binary_kl."""
    upper, lower = kl_inverse_upper(q, c), kl_inverse_lower(q, c)
    assert upper == 1.0 or binary_kl(q, upper) >= c * (1 - 1e-12)
    assert lower == 0.0 or binary_kl(q, lower) >= c * (1 - 1e-12)


@DETERMINISTIC
@given(
    q=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    c=st.tuples(st.floats(0, 100), st.floats(0, 100)).map(sorted),
)
def test_inverses_are_monotone(q: list[float], c: list[float]) -> None:
    for inverse in (kl_inverse_upper, kl_inverse_lower):
        assert inverse(q[0], c[0]) <= inverse(q[1], c[0]) + 1e-12
    assert kl_inverse_upper(q[0], c[0]) <= kl_inverse_upper(q[0], c[1]) + 1e-12
    assert kl_inverse_lower(q[0], c[0]) >= kl_inverse_lower(q[0], c[1]) - 1e-12


# --------------------------------------------------------------------------- the divergence itself


def assert_kl_accurate(qs: np.ndarray, ps: np.ndarray) -> None:
    found = []
    for q, p, value in zip(qs.tolist(), ps.tolist(), binary_kl(qs, ps).tolist(), strict=True):
        true = oracles.binary_kl(q, p)
        for one in {value, binary_kl(q, p)}:
            if math.isinf(true) or math.isinf(one):
                accurate = mpf(one) == true
            else:
                # The absolute part is the grain of floats near zero, nothing more.
                accurate = one >= 0 and abs(mpf(one) - true) <= true * mpf(1e-13) + mpf(1e-307)
            if not accurate:
                found.append((q, p, one, float(true)))
    assert not found, f"{len(found)} of {len(qs)} inaccurate, among them {found[:5]}"


def kl_pairs(kind: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    qs, ps = generator.uniform(0, 1, size), generator.uniform(0, 1, size)
    if kind == "small":
        return log_uniform(generator, -320, 0, size), log_uniform(generator, -320, 0, size)
    if kind == "near one":
        gaps = log_uniform(generator, -16, 0, (2, size))
        return 1 - gaps[0], 1 - gaps[1]
    if kind == "small and near one":
        first, second = log_uniform(generator, -300, 0, size), log_uniform(generator, -16, 0, size)
        swap = generator.random(size) < 0.5
        return np.where(swap, first, 1 - second), np.where(swap, 1 - second, first)
    if kind == "close":
        sign = generator.choice([-1.0, 1.0], size)
        return qs, np.clip(qs * (1 + sign * log_uniform(generator, -16, 0, size)), 0, 1)
    if kind == "close and small":
        qs = log_uniform(generator, -100, -1, size)
        return qs, qs * (1 + log_uniform(generator, -16, 1, size))
    if kind == "close and near one":
        gaps = log_uniform(generator, -12, -1, size)
        return 1 - gaps, 1 - gaps * (1 + log_uniform(generator, -6, 0, size))
    if kind == "subnormal":
        return qs, log_uniform(generator, -323.5, -300, size)
    if kind == "neighboring floats":
        grain = np.nextafter(qs, 1.0) - qs
        return qs, np.clip(qs + grain * generator.integers(-4, 5, size), 0, 1)
    return qs, ps


@pytest.mark.parametrize(
    "kind",
    [
        "anywhere",
        "small",
        "near one",
        "small and near one",
        "close",
        "close and small",
        "close and near one",
        "neighboring floats",
        "subnormal",
    ],
)
def test_kl_is_accurate(kind: str) -> None:
    assert_kl_accurate(*kl_pairs(kind, 1500))


def test_kl_on_the_grid_of_extremes() -> None:
    values = [0.0, 5e-324, 1e-300, 1e-16, 0.25, 0.5, 1 - 1e-10, 1 - 2.0**-53, 1.0]
    pairs = np.array(list(itertools.product(values, values)))
    assert_kl_accurate(pairs[:, 0], pairs[:, 1])


def test_kl_at_the_corners() -> None:
    assert binary_kl(0.0, 0.0) == 0.0
    assert binary_kl(1.0, 1.0) == 0.0
    assert binary_kl(0.5, 0.5) == 0.0
    assert binary_kl(0.5, 0.0) == binary_kl(0.5, 1.0) == math.inf
    assert binary_kl(5e-324, 0.0) == math.inf
    assert binary_kl(0.0, 1.0) == binary_kl(1.0, 0.0) == math.inf
    assert binary_kl(0.0, 0.5) == pytest.approx(math.log(2), rel=1e-15)
    assert binary_kl(1.0, 0.5) == pytest.approx(math.log(2), rel=1e-15)


@DETERMINISTIC
@given(q=st.floats(0, 1), p=st.floats(0, 1))
def test_kl_is_zero_only_at_equality_and_beats_pinsker(q: float, p: float) -> None:
    value = binary_kl(q, p)
    assert value >= 0
    assert value >= 2 * (p - q) ** 2 * (1 - 1e-12) - 1e-307
    if q == p:
        assert value == 0
    elif abs(q - p) > 1e-100:
        assert value > 0


def test_a_scalar_takes_the_scalar_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are made of scalars: none of these may need an array, nor numpy."""
    module = importlib.import_module("nonvacuous.bounds.binary_kl")
    monkeypatch.setattr(module, "_numbers", None)
    generator = np.random.default_rng(3)
    for family, _ in FAMILIES[:1] + FAMILIES[7:8]:
        for q, c in zip(*(column.tolist() for column in family(generator, 500)), strict=True):
            assert kl_inverse_lower(q, c) <= q <= kl_inverse_upper(q, c)
            assert binary_kl(q, 0.5) >= 0.0
