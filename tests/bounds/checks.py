"""What the tests of this folder share: outward comparison, and reproducible random inputs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.examples import some

from .oracles import mpf

# Property tests draw the same examples every time: a red run can be repeated.
DETERMINISTIC = settings(
    derandomize=True,
    deadline=None,
    max_examples=some(240),
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# For the tests whose oracle inverts a function in 60 digits.
DETERMINISTIC_FEW = settings(DETERMINISTIC, max_examples=some(120))

RELATIVE = mpf(10) ** -9
ABSOLUTE = mpf(10) ** -12


def assert_upper(value: float, oracle: mpf) -> None:
    """The value is a float in [0, 1], never below the true bound, and hardly above it."""
    assert type(value) is float
    assert 0.0 <= value <= 1.0
    assert mpf(value) >= oracle, f"{value!r} is below the true bound by {oracle - mpf(value)}"
    assert mpf(value) <= oracle * (1 + RELATIVE) + ABSOLUTE, f"{value!r} is loose: {oracle}"


def assert_lower(value: float, oracle: mpf) -> None:
    """The same for a lower bound: never above the true one, and hardly below it."""
    assert type(value) is float
    assert 0.0 <= value <= 1.0
    assert mpf(value) <= oracle, f"{value!r} is above the true bound by {mpf(value) - oracle}"
    assert mpf(value) >= oracle * (1 - RELATIVE) - ABSOLUTE, f"{value!r} is loose: {oracle}"


def log_uniform(low_exponent: float, high_exponent: float) -> st.SearchStrategy[float]:
    """10 to a uniform power."""
    return st.floats(low_exponent, high_exponent).map(lambda power: 10.0**power)


risks = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5, 1e-300, 1.0 - 2.0**-53]),
    st.floats(0.0, 1.0),
    log_uniform(-12, 0),
    log_uniform(-12, 0).map(lambda gap: 1.0 - gap),
)
nats = st.one_of(st.just(0.0), log_uniform(-6, 6))
signed_nats = st.one_of(nats, nats.map(lambda value: -value))
sizes = st.one_of(
    st.integers(1, 50),
    st.integers(1, 10**9),
    log_uniform(0, 9).map(lambda value: max(1, round(value))),
)
failures = st.one_of(st.floats(0.001, 0.999), log_uniform(-12, -0.01))
