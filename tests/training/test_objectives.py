"""Objectives against the bounds of the same name, and against slow references."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous import bounds
from nonvacuous.errors import BadInput
from nonvacuous.training.objectives import (
    OBJECTIVES,
    Plan,
    bounded_cross_entropy,
)
from nonvacuous.training.posterior import PosteriorSettings

N, FAILURE = 2000, 0.05
RISKS = st.floats(1e-4, 0.6)
KLS = st.floats(0.0, 2000.0)


def value(
    name: str, risk: float, kl: float, *, parameter: float | None = None, n: int = N
) -> float:
    best = OBJECTIVES[name].best_parameter
    if parameter is None and best is not None:
        parameter = best(**arguments(risk, kl, n))
    tensor = OBJECTIVES[name].function(
        torch.tensor(risk, dtype=torch.float64),
        torch.tensor(kl, dtype=torch.float64),
        Plan(n, FAILURE, parameter),
    )
    assert tensor.shape == () and tensor.dtype == torch.float64
    return tensor.item()


def arguments(risk: float, kl: float, n: int = N) -> dict[str, float | int]:
    return {"empirical_risk": risk, "kl_nats": kl, "examples": n, "failure": FAILURE}


@pytest.mark.parametrize("name", ["seeger", "mcallester", "quadratic"])
@given(risk=RISKS, kl=KLS)
def test_objective_equals_the_bound_below_one(name: str, risk: float, kl: float) -> None:
    bound = getattr(bounds, name)(**arguments(risk, kl))
    assert min(1.0, value(name, risk, kl)) == pytest.approx(bound, rel=1e-9)


@given(risk=RISKS, kl=KLS, trade_off=st.floats(0.05, 1.9), temperature=st.floats(0.05, 8.0))
def test_objectives_with_a_parameter_equal_their_bounds(
    risk: float, kl: float, trade_off: float, temperature: float
) -> None:
    thiemann = bounds.thiemann(**arguments(risk, kl), trade_off=trade_off)
    catoni = bounds.catoni(**arguments(risk, kl), temperature=temperature)
    assert min(1.0, value("thiemann", risk, kl, parameter=trade_off)) == pytest.approx(thiemann)
    assert min(1.0, value("catoni", risk, kl, parameter=temperature)) == pytest.approx(catoni)


@given(risk=RISKS, kl=KLS, trade_off=st.floats(0.05, 1.9))
def test_every_relaxation_lies_above_the_bound_it_relaxes(
    risk: float, kl: float, trade_off: float
) -> None:
    floor = bounds.seeger(**arguments(risk, kl)) - 1e-9
    assert value("seeger", risk, kl) >= floor
    assert value("mcallester", risk, kl) >= floor
    assert value("quadratic", risk, kl) >= floor
    assert value("thiemann", risk, kl, parameter=trade_off) >= floor


@given(risk=st.floats(1e-3, 0.5), kl=st.floats(0.0, 800.0))
def test_best_parameters_are_minima(risk: float, kl: float) -> None:
    for name, best in (("thiemann", bounds.best_trade_off), ("catoni", bounds.best_temperature)):
        parameter = best(**arguments(risk, kl))
        least = value(name, risk, kl, parameter=parameter)
        for factor in (0.8, 0.97, 1.03, 1.2):
            if name == "catoni" or parameter * factor < 2.0:
                assert value(name, risk, kl, parameter=parameter * factor) >= least - 1e-12
    budget = (kl - math.log(FAILURE)) / N
    assert value("catoni", risk, kl) == pytest.approx(bounds.kl_inverse_upper(risk, budget))
    assert value("thiemann", risk, kl) == pytest.approx(value("quadratic", risk, kl))


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize(("risk", "kl"), [(0.01, 0.0), (0.05, 100.0), (0.4, 900.0)])
def test_gradients_against_finite_differences(name: str, risk: float, kl: float) -> None:
    parameter = {"thiemann": 0.7, "catoni": 1.3}.get(name)
    q = torch.tensor(risk, dtype=torch.float64, requires_grad=True)
    k = torch.tensor(kl, dtype=torch.float64, requires_grad=True)
    OBJECTIVES[name].function(q, k, Plan(N, FAILURE, parameter)).backward()
    step_q, step_k = 1e-6, 1e-3
    slope_q = (
        value(name, risk + step_q, kl, parameter=parameter)
        - value(name, risk - step_q, kl, parameter=parameter)
    ) / (2 * step_q)
    slope_k = (
        value(name, risk, kl + step_k, parameter=parameter)
        - value(name, risk, kl - step_k, parameter=parameter)
    ) / (2 * step_k)
    assert q.grad is not None and k.grad is not None
    assert q.grad.item() == pytest.approx(slope_q, rel=1e-5)
    assert k.grad.item() == pytest.approx(slope_k, rel=1e-5)
    assert q.grad.item() > 0.0 and k.grad.item() > 0.0


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_objectives_rise_with_risk_and_kl_and_fall_with_examples(name: str) -> None:
    assert value(name, 0.05, 50.0) < value(name, 0.06, 50.0)
    assert value(name, 0.05, 50.0) < value(name, 0.05, 60.0)
    assert value(name, 0.05, 50.0) > value(name, 0.05, 50.0, n=2 * N)


def test_bounded_cross_entropy_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = 10.0 * torch.randn(200, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (200,), generator=generator)
    losses = bounded_cross_entropy(outputs, labels, minimum_probability=1e-4)
    for row, label, loss in zip(outputs.tolist(), labels.tolist(), losses.tolist(), strict=True):
        top = max(row)
        probability = math.exp(row[label] - top) / sum(math.exp(x - top) for x in row)
        slow = -math.log(max(probability, 1e-4)) / math.log(1e4)
        assert loss == pytest.approx(slow, abs=1e-12)
    assert losses.min() >= 0.0 and losses.max() == 1.0


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, math.nan])
def test_bounded_cross_entropy_refuses_a_bad_minimum(bad: float) -> None:
    with pytest.raises(BadInput, match="minimum_probability"):
        bounded_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), minimum_probability=bad)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(BadInput, match=r"'quadratic', 'seeger', .*'elbo'"):
        PosteriorSettings(objective="elbo")
