"""The rules between a certificate's numbers: exact, outward, and the same for maker and checker."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous import bounds
from nonvacuous.audit.claim_checks import solves_its_equation
from nonvacuous.bounds.table import title_and_detail
from nonvacuous.certificate import Certificate
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.records import (
    Assumption,
    BoundRecord,
    BudgetRecord,
    KlTerm,
    LossRecord,
    SpendRecord,
)
from nonvacuous.rules.arithmetic import (
    CERTIFYING,
    bound_record,
    recompute_bound,
    sampled_risk,
    statement_of,
    theorem,
    total_nats,
)
from tests.audit import worlds

nats = st.floats(min_value=0.0, max_value=1e9, allow_subnormal=False)


@given(st.lists(nats, min_size=1, max_size=30))
def test_the_total_is_never_below_the_exact_sum(values: list[float]) -> None:
    exact = sum(map(Fraction, values))
    total = total_nats(values)
    assert Fraction(total) >= exact
    assert total == 0.0 if exact == 0 else Fraction(total) <= exact * (1 + Fraction(1, 2**51))


@given(st.lists(nats, min_size=1, max_size=10), st.randoms())
def test_the_total_does_not_depend_on_the_order(values: list[float], dice: object) -> None:
    shuffled = list(values)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert total_nats(shuffled) == total_nats(values)


def test_the_total_of_terms_of_a_mapping_and_of_a_distribution() -> None:
    module = worlds.network()
    posterior = DiagonalGaussian.around(module, scale=0.1)
    prior = DiagonalGaussian.centered(module, scale=0.3)
    by_name = posterior.kl_to(prior)
    terms = tuple(KlTerm(tensor=name, size=1, nats=value) for name, value in by_name.items())
    assert total_nats(terms) == total_nats(by_name) == posterior.kl_nats(prior)


def risk(scheme: str, **counts: object) -> SimpleNamespace:
    return SimpleNamespace(
        **{"errors": None, "total": None, "trials": 1000, "identical": True, **counts},
        scheme=scheme,
    )


def test_the_sampling_rule_is_the_one_of_the_scheme() -> None:
    pairs = risk("pairs", errors=31)
    assert sampled_risk(pairs, 0.01) == bounds.sampling(errors=31, trials=1000, failure=0.01)
    different = risk("pairs", errors=31, identical=False)
    assert sampled_risk(different, 0.01) == bounds.sampling(
        errors=31, trials=1000, failure=0.01, identical=False
    )
    soft = risk("pairs", total=30.5)
    assert sampled_risk(soft, 0.01) == bounds.sampling_bounded(
        total=30.5, trials=1000, failure=0.01
    )
    assert sampled_risk(risk("every example once", errors=31), None) == 0.031
    assert sampled_risk(risk("every example once", total=30.5), None) >= 0.0305


@pytest.mark.parametrize(
    ("counts", "failure"),
    [
        (risk("pairs", errors=31), None),
        (risk("pairs"), 0.01),
        (risk("every example once"), None),
    ],
)
def test_sampling_that_cannot_be_priced(counts: SimpleNamespace, failure: float | None) -> None:
    with pytest.raises(BadInput):
        sampled_risk(counts, failure)


def test_shares_of_the_ledger() -> None:
    entry = SpendRecord(name="bound", failure=0.04, reason="x", choices=25)
    budget = BudgetRecord(failure=0.05, entries=(entry,))
    assert (
        budget.bound.share
        == bounds.ConfidenceBudget(0.05).union("bound", 0.04, choices=25, reason="x")[0]
    )
    with pytest.raises(BadInput, match="no line 'sampling'"):
        _ = budget.sampling
    with pytest.raises(BadInput, match="nothing is left"):
        _ = entry.model_copy(update={"choices": 10**400}).share


# ---------------------------------------------------------------------------------- theorems


@pytest.mark.parametrize("name", CERTIFYING)
def test_a_theorem_is_registered_as_the_function_that_it_names(name: str) -> None:
    entry = theorem(name)
    assert entry.function is getattr(bounds, name)
    assert {*entry.fixed_before, *entry.free} <= set(entry.parameters)
    assert not set(entry.fixed_before) & set(entry.free)
    assert "failure" in entry.required
    # Progressive tests call every bound example a trial.
    assert {"examples", "trials"} & set(entry.required)
    assert entry.complexity is None or entry.complexity in entry.required
    assert entry.readings and all(title_and_detail(r.name) for r in entry.readings)


def test_a_bound_is_recomputed_from_its_record() -> None:
    call = {"empirical_risk": 0.02, "kl_nats": 50.0, "examples": 6_000, "failure": 0.04}
    record = bound_record("seeger", **call, exact_moment=True)
    assert record.inputs["exact_moment"] == 1
    assert recompute_bound(record) == bounds.seeger(**call, exact_moment=True)
    grid = {"grid.0": 0.5, "grid.1": 1.5}
    union = bound_record("catoni_union", **call, **grid)
    assert recompute_bound(union) == bounds.catoni_union(**call, grid=(0.5, 1.5))


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("magic", {}, "not a bound"),
        ("seeger", {"empirical_risk": 0.1}, "missing examples, failure, kl_nats"),
        ("holdout", {"errors": 1, "examples": 9, "failure": 0.1, "luck": 1}, "unknown luck"),
        ("holdout", {"errors": 1.5, "examples": 9, "failure": 0.1}, "integer"),
        ("holdout", {"errors": 1, "examples": 9, "failure": 2.0}, "failure"),
        (
            "seeger",
            {"empirical_risk": 0, "kl_nats": 0, "examples": 9, "failure": 0.1, "exact_moment": 2},
            "0 or 1",
        ),
        (
            "catoni_union",
            {"empirical_risk": 0, "kl_nats": 0, "examples": 9, "failure": 0.1, "grid.1": 1.0},
            "without gaps",
        ),
    ],
)
def test_records_that_no_theorem_fits(name: str, inputs: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        recompute_bound(BoundRecord(name=name, theorem="x", inputs=inputs))


@given(
    q=st.floats(0.0, 1.0),
    kl=st.floats(0.0, 1e5),
    n=st.integers(1, 10**6),
    failure=st.floats(1e-9, 0.5),
    exact=st.booleans(),
)
def test_the_plain_equation_accepts_every_bound(
    q: float, kl: float, n: int, failure: float, exact: bool
) -> None:
    inputs = {
        "empirical_risk": q,
        "kl_nats": kl,
        "examples": n,
        "failure": failure,
        "exact_moment": int(exact),
    }
    value = recompute_bound(bound_record("seeger", **inputs))
    assert solves_its_equation("seeger", inputs, value)


@given(q=st.floats(0.0, 0.9), kl=st.floats(1.0, 500.0), n=st.integers(500, 10**6))
def test_the_plain_equation_finds_a_bound_that_is_too_small(q: float, kl: float, n: int) -> None:
    inputs = {"empirical_risk": q, "kl_nats": kl, "examples": n, "failure": 0.05}
    value = recompute_bound(bound_record("seeger", **inputs))
    smaller = q + 0.999 * (value - q)
    if value < 1.0:
        assert not solves_its_equation("seeger", inputs, smaller)


# --------------------------------------------------------------------------------- statements


def sentence(**changes: Any) -> str:
    fields = {
        "predictor": "stochastic",
        "loss": LossRecord(name="zero-one"),
        "risk_upper": 0.12345,
        "confidence": 0.95,
        "data": SimpleNamespace(name="digits", bound=SimpleNamespace(examples=719)),
        "bound": BoundRecord(name="seeger", theorem="x", inputs={}),
        "empirical": SimpleNamespace(scheme="pairs"),
        "assumptions": (),
    }
    return statement_of(Certificate.model_construct(**{**fields, **changes}))


@given(st.floats(0.0, 1.0))
def test_the_sentence_never_promises_less_than_the_number(risk_upper: float) -> None:
    text = sentence(risk_upper=risk_upper)
    promised = Fraction(text.split("at most ")[1].split()[0].rstrip("."))
    assert Fraction(risk_upper) <= promised < Fraction(risk_upper) + Fraction(1, 10_000)


def test_the_sentence_names_predictor_confidence_and_examples() -> None:
    assert sentence() == (
        "With confidence 0.95 over the draw of the 719 bound examples of digits and of the "
        "Monte-Carlo trials, the zero-one risk of the randomized network (weights drawn afresh "
        "from the posterior for each input) is at most 0.1235."
    )
    assert "the one network drawn from the posterior" in sentence(predictor="drawn")
    assert "says nothing" in sentence(risk_upper=1.0)
    with pytest.raises(KeyError):
        sentence(predictor="ensemble")


def test_the_sentence_of_a_conditional_and_of_a_refused_certificate() -> None:
    doubt = Assumption(name="A holds", status="violated", detail="x", effect="conditional")
    broken = Assumption(name="B holds", status="violated", detail="x", effect="refused")
    assert sentence(assumptions=(doubt,)).endswith("only on the condition that: A holds.")
    refused = sentence(assumptions=(doubt, broken))
    assert refused.startswith("No promise") and "Found false: B holds." in refused
    assert "0.12" not in refused


def test_nothing_in_a_statement_is_rounded_into_a_stronger_claim() -> None:
    assert "confidence 0.999999999" in sentence(confidence=0.999999999)
    assert math.isclose(float(sentence().split("at most ")[1].rstrip(".")), 0.1235)
