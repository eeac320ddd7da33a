"""``nonvacuous bound``: the right numbers, honestly compared, rounded outward."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous import bounds
from nonvacuous.bounds.table import SAME_EVENT, compare
from nonvacuous.cli import exits
from nonvacuous.cli.app import main
from nonvacuous.cli.bound import _calculate

POSTERIOR = {"--risk": "0.02", "--kl": "5000", "--examples": "60000"}
SAMPLED = {"risk": None, "errors": "1", "trials": "5"}
CALL = {"empirical_risk": 0.02, "kl_nats": 5000.0, "examples": 60_000}


def flags(**changes: str | None) -> list[str]:
    chosen = POSTERIOR | {"--" + k.replace("_", "-"): v for k, v in changes.items()}
    return ["bound", *(part for k, v in chosen.items() if v is not None for part in (k, v) if part)]


def record(capsys, arguments: list[str]) -> dict:
    assert main([*arguments, "--json"]) == exits.DONE
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def values(result: dict) -> dict[str, float]:
    return {row["name"]: row["risk_upper"] for row in result["bounds"]}


def test_every_family_agrees_with_the_library_exactly(capsys):
    result = record(capsys, flags(temperature="2", second_moment="0.01"))
    call = CALL | {"failure": 0.05}
    assert values(result) == {
        "seeger_exact": bounds.seeger(**call, exact_moment=True),
        "seeger": bounds.seeger(**call),
        "quadratic": bounds.quadratic(**call),
        "thiemann": bounds.thiemann(**call, trade_off=bounds.best_trade_off(**call)),
        "thiemann_union": bounds.thiemann_union(**call),
        "mcallester": bounds.mcallester(**call),
        "catoni_union": bounds.catoni_union(**call),
        "empirical_bernstein": bounds.empirical_bernstein(**call, second_moment=0.01),
        "catoni": bounds.catoni(**call, temperature=2.0),
    }
    charges = {row["name"]: row["charge"] for row in result["bounds"]}
    assert charges["thiemann"] == "free"
    assert charges["catoni_union"] == charges["thiemann_union"] == "paid"
    assert charges["catoni"] == "asserted"
    assert charges["seeger"] == "none"


def test_the_marked_bound_is_chosen_before_looking(capsys):
    result = record(capsys, flags())
    # catoni_union is smaller for these numbers: a report of the minimum would not be valid.
    assert values(result)["catoni_union"] < values(result)["seeger_exact"]
    assert result["best"] == "seeger_exact"
    assert result["risk_upper"] == values(result)["seeger_exact"]
    assert result["smaller_but_not_chosen"] == ["catoni_union"]


@pytest.mark.parametrize(("temperature", "events"), [(None, 2), ("2", 3)])
def test_a_paid_comparison_splits_the_failure_over_the_events(capsys, temperature, events):
    result = record(capsys, [*flags(temperature=temperature), "--compare-paid"])
    share = 0.05 / events
    assert result["events"] == events
    assert result["failure_each"] == share
    assert values(result)["catoni_union"] == bounds.catoni_union(**CALL, failure=share)
    assert values(result)["seeger"] == bounds.seeger(**CALL, failure=share)
    assert result["risk_upper"] == min(values(result).values())
    # The number reported at the whole failure probability must not come back through the window.
    assert result["risk_upper"] > record(capsys, flags())["risk_upper"] - 1e-4


unit = st.floats(0.0, 1.0)


@given(
    risk=unit,
    kl=st.floats(0.0, 1e6),
    examples=st.integers(1, 10**7),
    failure=st.floats(1e-12, 0.99),
)
def test_rows_that_follow_from_the_first_are_never_smaller(risk, kl, examples, failure):
    given = {"empirical_risk": risk, "kl_nats": kl, "examples": examples}
    comparison = compare("stochastic", given, failure)
    first = comparison.rows[0]
    assert comparison.best == first.name
    for row in comparison.rows:
        if row.relation == SAME_EVENT:
            assert row.risk_upper >= first.risk_upper * (1 - 1e-12)


@given(st.data())
def test_the_exact_test_is_never_beaten_by_its_comparisons(data):
    examples = data.draw(st.integers(1, 100_000))
    errors = data.draw(st.integers(0, examples))
    result = _calculate(examples, 0.95, {"--errors": errors})
    assert len(result["bounds"]) == 3
    assert all(row["risk_upper"] >= result["risk_upper"] * (1 - 1e-12) for row in result["bounds"])


def test_one_drawn_network(capsys):
    result = record(
        capsys, ["bound", "--risk", "0.02", "--log-ratio", "-3.5", "--examples", "1000"]
    )
    call = {"empirical_risk": 0.02, "log_density_ratio": -3.5, "examples": 1000, "failure": 0.05}
    assert result["predictor"] == "drawn"
    assert values(result) == {
        "disintegrated_exact": bounds.disintegrated(**call, exact_moment=True),
        "disintegrated": bounds.disintegrated(**call),
    }


def test_held_out_examples(capsys):
    result = record(capsys, ["bound", "--errors", "150", "--examples", "10000"])
    assert result["risk_upper"] == bounds.holdout(errors=150, examples=10_000, failure=0.05)
    assert result["risk_lower"] == bounds.holdout_lower(errors=150, examples=10_000, failure=0.05)
    half = {"errors": 150, "examples": 10_000, "failure": 0.025}
    assert result["interval"] == [bounds.holdout_lower(**half), bounds.holdout(**half)]
    assert result["risk_lower"] < 0.015 < result["risk_upper"]


def test_a_sampled_risk_pays_for_its_sampling(capsys):
    arguments = flags(risk=None, errors="2000", trials="100000")
    result = record(capsys, arguments)
    entries = {entry["name"]: entry["failure"] for entry in result["budget"]["entries"]}
    assert entries == {"sampling": 0.01, "bound": 0.04}
    risk = bounds.sampling(errors=2000, trials=100_000, failure=0.01)
    call = CALL | {"empirical_risk": risk, "failure": 0.04}
    assert result["risk_upper"] == bounds.seeger(**call, exact_moment=True)
    other = record(capsys, [*arguments, "--sampling-failure", "0.02"])
    assert other["budget"]["entries"][1]["failure"] == 0.03


def test_the_confidence_is_read_as_a_decimal(capsys):
    assert record(capsys, flags(confidence="0.95"))["failure_each"] == 0.05
    assert record(capsys, flags(confidence="0.99"))["failure_each"] == 0.01


def test_the_reference_counts_errors_upward(capsys):
    reference = record(capsys, flags(risk="0.02000001"))["held_out_reference"]
    assert reference["errors"] == 1201
    exact = bounds.holdout(errors=1201, examples=60_000, failure=0.05)
    assert reference["risk_upper"] == pytest.approx(exact, rel=1e-10)


def test_text_is_rounded_up_and_marks_the_best(capsys):
    assert main(flags()) == exits.DONE
    captured = capsys.readouterr()
    assert captured.err == ""
    exact = bounds.seeger(**CALL, failure=0.05, exact_moment=True)
    assert 0.134 < exact < 0.1344
    marked = [line for line in captured.out.splitlines() if line.startswith("*  ")]
    assert len(marked) == 1
    assert marked[0].split()[1:4] == ["seeger_exact", "13.44%", "PAC-Bayes-kl,"]
    assert Decimal("13.44") >= Decimal(exact) * 100
    assert "at most 13.44% with confidence 0.95" in captured.out
    assert "--compare-paid" in captured.out
    told = " ".join(captured.out.split())
    assert "quote as seeger: in Python nv.bounds.seeger(..., exact_moment=True)" in told


def test_text_of_the_other_predictors(capsys):
    assert main(["bound", "--errors", "150", "--examples", "10000"]) == exits.DONE
    assert "At least 1.305%" in capsys.readouterr().out
    assert main(["bound", "--risk", "1", "--log-ratio", "9", "--examples", "100"]) == exits.DONE
    assert "vacuous: this says nothing" in capsys.readouterr().out
    assert main([*flags(), "--compare-paid"]) == exits.DONE
    assert "failure 0.025, one share for each of 2 events" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(flags(risk=None, errors="2000", trials="100000")) == exits.DONE
    assert "Sampling: 2000 errors in 100000 trials" in capsys.readouterr().out


def test_a_confidence_is_never_shown_as_certain(capsys):
    assert main(flags(confidence="0.9999999")) == exits.DONE
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("with confidence 0.9999999") == 1
    assert "guaranteed with confidence 0.9999998" in said
    assert "confidence 1 " not in said


def test_no_confidence_is_left_for_an_unpaid_choice_at_low_confidence(capsys):
    assert main(flags(confidence="0.4")) == exits.DONE
    assert "with no confidence at all" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"risk": "1.5"}, "--risk"),
        ({"risk": "-0.1"}, "--risk"),
        ({"risk": "nan"}, "--risk"),
        ({"risk": "many"}, "--risk"),
        ({"kl": "inf"}, "--kl"),
        ({"kl": "-1"}, "--kl"),
        ({"kl": "1e400"}, "--kl"),
        ({"examples": "0"}, "--examples"),
        ({"examples": "-5"}, "--examples"),
        ({"examples": "10.7"}, "--examples"),
        ({"examples": "1e4"}, "--examples"),
        ({"confidence": "1"}, "--confidence"),
        ({"confidence": "0"}, "--confidence"),
        ({"confidence": "95"}, "--confidence"),
        ({"confidence": "nan"}, "--confidence"),
        ({"temperature": "0"}, "--temperature"),
        ({"temperature": "nan"}, "--temperature"),
        ({"second_moment": "0.5"}, "--second-moment"),
        ({"second_moment": "-inf"}, "--second-moment"),
        ({"log_ratio": "3"}, "--log-ratio"),
        ({"kl": None}, "--kl"),
        ({"risk": None}, "--risk"),
        ({"risk": None, "kl": None}, "--errors"),
        ({"examples": None}, "--examples"),
        ({"errors": "10"}, "--errors"),
        ({"trials": "10"}, "--errors"),
        ({"sampling_failure": "0.01"}, "--sampling-failure"),
        ({"risk": None, "errors": "-1", "trials": "5"}, "--errors"),
        ({"risk": None, "errors": "6", "trials": "5"}, "--errors"),
        ({"risk": None, "errors": "1", "trials": "0"}, "--trials"),
        (
            {"risk": None, "errors": "1", "trials": "5", "sampling_failure": "0.05"},
            "--sampling-failure",
        ),
        (
            {"risk": None, "errors": "1", "trials": "5", "sampling_failure": "nan"},
            "--sampling-failure",
        ),
        ({"risk": None, "kl": None, "errors": "60001"}, "--errors"),
        ({"risk": None, "kl": None, "errors": "1", "temperature": "2"}, "--temperature"),
    ],
)
def test_bad_flags_are_named(capsys, changes, flag):
    assert main(flags(**changes)) == exits.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    message, following = captured.err.strip().splitlines()
    assert message.startswith("Error: ")
    assert flag in message
    assert following == "Next:  nonvacuous bound --help"


def test_there_is_no_seed_where_nothing_is_random(capsys):
    main(["bound", "--help"])
    assert "--seed" not in capsys.readouterr().out


@given(
    risk=unit,
    kl=st.floats(0.0, 1e9),
    examples=st.integers(1, 10**9),
    confidence=st.floats(1e-9, 1.0, exclude_max=True),
)
def test_any_valid_numbers_give_a_finite_valid_result(risk, kl, examples, confidence):
    result = _calculate(examples, confidence, {"--risk": risk, "--kl": kl})
    assert risk <= result["risk_upper"] <= 1.0
    json.dumps(result, allow_nan=False)
