"""Term by term and side by side: numbers that must agree with the certificate they stand beside."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nonvacuous import bounds
from nonvacuous.comparison import compare, side_by_side, term_by_term
from nonvacuous.records import BoundRecord, BudgetRecord, ComplexityRecord, SpendRecord
from tests.report import samples


@pytest.mark.parametrize("name", ["posterior", "vacuous", "hopeless", "conditional", "holdout"])
def test_the_terms_end_at_the_certificate(name: str) -> None:
    certificate = samples.SAMPLES[name]()
    steps = term_by_term(certificate)
    assert steps[-1].risk_upper == certificate.risk_upper
    values = [step.risk_upper for step in steps]
    assert values == sorted(values)


def test_each_term_is_switched_on_in_turn() -> None:
    certificate = samples.posterior()
    inputs = {
        "empirical_risk": certificate.empirical.risk_upper,
        "examples": 30_000,
        "failure": certificate.bound.inputs["failure"],
        "exact_moment": True,
    }
    steps = {step.key: step.risk_upper for step in term_by_term(certificate)}
    assert list(steps) == ["counted", "sampling", "examples", "complexity"]
    assert steps["counted"] == 1_531 / 200_000
    assert steps["sampling"] == certificate.empirical.risk_upper
    assert steps["examples"] == bounds.seeger(**inputs, kl_nats=0.0)
    assert steps["complexity"] == bounds.seeger(**inputs, kl_nats=61.7)


def test_a_search_is_a_term_of_its_own() -> None:
    certificate = samples.hopeless()
    steps = term_by_term(certificate)
    assert steps[-1].key == "searches"
    inputs = dict(certificate.bound.inputs) | {"failure": 0.04, "exact_moment": True}
    assert steps[-2].risk_upper == bounds.seeger(**inputs)
    assert steps[-2].risk_upper < steps[-1].risk_upper


def test_confidence_left_to_other_certificates_counts_as_a_search() -> None:
    """Two certificates share the confidence: half of every line goes to the other one."""
    inputs = dict(samples.posterior().bound.inputs) | {"failure": 0.02}
    call = {key: value for key, value in inputs.items() if key != "exact_moment"}
    budget = BudgetRecord(
        failure=0.05,
        entries=(
            SpendRecord(name="other certificates", failure=0.025, reason="two in all"),
            SpendRecord(name="sampling", failure=0.005, reason="Monte Carlo"),
            SpendRecord(name="bound", failure=0.02, reason="the bound"),
        ),
    )
    certificate = samples.build(
        budget=budget,
        bound=BoundRecord(name="seeger", theorem="PAC-Bayes-kl", inputs=inputs),
        risk_upper=bounds.seeger(**call, exact_moment=True),
    )
    steps = {step.key: step.risk_upper for step in term_by_term(certificate)}
    alone = bounds.seeger(**{**call, "failure": 0.04}, exact_moment=True)
    assert steps["complexity"] == pytest.approx(alone, rel=1e-12)
    assert steps["searches"] == certificate.risk_upper > alone


def test_an_unknown_bound_is_shown_whole() -> None:
    steps = term_by_term(samples.close())
    assert [step.key for step in steps] == ["counted", "sampling", "rest"]
    assert steps[-1].risk_upper == 0.0291


def test_a_bound_that_does_not_give_the_certificate_is_shown_whole() -> None:
    certificate = samples.build(risk_upper=0.02)
    assert [step.key for step in term_by_term(certificate)] == ["counted", "sampling", "rest"]


def test_the_marked_row_is_the_certificate_and_each_other_is_its_theorem() -> None:
    certificate = samples.posterior()
    rows = {row.key: row for row in side_by_side(certificate)}
    assert [row.key for row in rows.values() if row.promised] == ["seeger_exact"]
    assert rows["seeger_exact"].risk_upper == certificate.risk_upper
    call = {
        "empirical_risk": certificate.empirical.risk_upper,
        "kl_nats": 61.7,
        "examples": 30_000,
        "failure": certificate.bound.inputs["failure"],
    }
    assert rows["seeger"].risk_upper == bounds.seeger(**call)
    assert rows["mcallester"].risk_upper == bounds.mcallester(**call)
    assert rows["catoni_union"].risk_upper == bounds.catoni_union(**call)
    values = [row.risk_upper for row in side_by_side(certificate)]
    assert values == sorted(values)


def test_a_drawn_network_is_compared_with_bounds_for_drawn_networks_only() -> None:
    ratio = 55.2
    call = {"empirical_risk": 0.01, "examples": 30_000, "failure": 0.05}
    certificate = samples.build(
        predictor="drawn",
        complexity=ComplexityRecord(
            terms=samples.terms({"weight": (10, 61.7)}), kl_nats=61.7, log_density_ratio=ratio
        ),
        bound=BoundRecord(
            name="disintegrated", theorem="one draw", inputs={**call, "log_density_ratio": ratio}
        ),
        empirical=samples.RiskRecord(
            errors=300,
            trials=30_000,
            scheme="every example once",
            identical=True,
            seed=0,
            risk_upper=0.01,
        ),
        risk_upper=bounds.disintegrated(**call, log_density_ratio=ratio),
    )
    assert {row.key for row in side_by_side(certificate)} == {
        "disintegrated",
        "disintegrated_exact",
    }
    assert [step.key for step in term_by_term(certificate)] == ["counted", "examples", "complexity"]


def test_a_held_out_test_is_compared_with_held_out_tests() -> None:
    rows = {row.key: row for row in side_by_side(samples.holdout())}
    assert set(rows) == {"holdout", "chernoff", "seeger_exact"}
    assert rows["holdout"].promised
    ordered = [rows[key].risk_upper for key in ("holdout", "chernoff", "seeger_exact")]
    assert ordered == sorted(ordered)


def test_a_refused_certificate_is_compared_with_nothing() -> None:
    assert compare(samples.refused()).steps == ()
    assert compare(samples.refused()).bounds == ()


def test_comparing_needs_no_torch() -> None:
    code = "import nonvacuous.comparison, nonvacuous.report, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, "torch"
