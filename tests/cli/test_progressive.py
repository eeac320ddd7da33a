"""``nonvacuous certify --mode progressive``: number, gate, and flags that clash."""

from __future__ import annotations

import json

import pytest

from nonvacuous.cli import exits


def words(*more: str) -> list[str]:
    start = ["certify", "--data", "x.npz", "--model", "mlp:8", "--mode", "progressive"]
    return [*start, "--prior-epochs", "2", "--batches", "3", "--no-report", *more]


@pytest.mark.slow
def test_a_number_and_its_verification(place, invoke):
    done = invoke(*words("--out", "run"))
    assert done.code == exits.DONE, done.err
    assert "a checkpoint drawn for each input" in done.out and "held-out twin" in done.out
    again = invoke("verify", "run", "--data", "x.npz", "--json")
    assert again.code == exits.DONE, again.err
    names = [finding["name"] for finding in json.loads(again.out)["findings"]]
    assert "the errors of every batch are those recorded" in names


def test_max_risk_is_the_gate_declared_before_training(place, invoke):
    done = invoke(*words("--out", "run", "--max-risk", "0.0001"))
    assert done.code == exits.TOO_RISKY
    assert done.out.startswith("GATE NOT PASSED")
    assert "the gate at 0.0001 was not passed" in done.err
    settings = (place / "run" / "config.toml").read_text()
    assert "threshold = 0.0001" in settings
    (row,) = json.loads(invoke("runs", ".", "--json").out)["runs"]
    assert (row["gate"], row["risk_upper"], row["status"]) == ("not passed", None, "valid")
    listed = invoke("runs", ".").out
    assert "not passed" in listed and "1.0000" not in listed
    repeated = invoke("randomize", "--run", "run")
    assert repeated.code == exits.FAILED
    assert "is of --mode progressive; what can be repeated" in repeated.error


def test_two_gates_are_one_too_many(place, invoke):
    done = invoke(*words("--max-risk", "0.1", "--threshold", "0.2"))
    assert done.code == exits.USAGE
    assert "two gates" in done.error
    assert invoke(*words("--batches", "1")).code == exits.USAGE
    other = [word for word in words("--start", "0.4") if word not in ("--mode", "progressive")]
    assert "belongs to --mode progressive" in invoke(*other).error
