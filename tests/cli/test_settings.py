"""Where settings come from: flags, then the environment, then the TOML file, then the defaults."""

from __future__ import annotations

import json

import pytest

import nonvacuous as nv
from nonvacuous.cli import exits
from nonvacuous.errors import BadInput


@pytest.fixture
def seed_of(place, invoke, quick):
    def run(*extra: str) -> int:
        done = invoke(*quick("--json", "--out", "r", "--force", *extra))
        assert done.code == exits.DONE, done.err
        return json.loads(done.out)["seed"]

    return run


@pytest.mark.slow
def test_flags_before_environment_before_toml_before_defaults(seed_of, place, monkeypatch):
    assert seed_of() == 0
    (place / "c.toml").write_text("seed = 1\n")
    assert seed_of("--config", "c.toml") == 1
    monkeypatch.setenv("NONVACUOUS_SEED", "2")
    assert seed_of("--config", "c.toml") == 2
    assert seed_of() == 2
    assert seed_of("--config", "c.toml", "--seed", "3") == 3


def test_the_file_may_hold_everything(place, invoke):
    (place / "c.toml").write_text(
        'data = "x.npz"\nmodel = "mlp:8"\ntrials = 500\nepochs = 2\nprior-epochs = 3\n'
        'prior_scale = [0.01, 0.02]\ntwin = false\nreport = false\nout = "r"\njson = true\n'
        "confidence = 0.9\n"
    )
    done = invoke("certify", "--config", "c.toml")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record["confidence"] == 0.9
    assert record["held_out_twin"] is None
    assert record["budget"]["entries"][-1]["choices"] == 2


def test_the_environment_may_hold_lists_switches_and_the_file(place, invoke, quick, monkeypatch):
    (place / "c.toml").write_text("confidence = 0.9\n")
    monkeypatch.setenv("NONVACUOUS_CONFIG", "c.toml")
    monkeypatch.setenv("NONVACUOUS_PRIOR_SCALE", "0.01, 0.02,0.03")
    monkeypatch.setenv("NONVACUOUS_TWIN", "false")
    done = invoke(*quick("--json"))
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record["confidence"] == 0.9
    assert record["held_out_twin"] is None
    assert record["budget"]["entries"][-1]["choices"] == 3


def test_nothing_is_overwritten_because_of_a_variable(place, invoke, quick, monkeypatch):
    assert invoke(*quick()).code == exits.DONE
    monkeypatch.setenv("NONVACUOUS_FORCE", "1")
    monkeypatch.setenv("NONVACUOUS_RESUME", "1")
    assert invoke(*quick()).code == exits.USAGE


def test_the_variable_of_the_data_folder_is_not_the_data(place, invoke, quick, monkeypatch):
    monkeypatch.setenv("NONVACUOUS_DATA", "/nowhere")
    assert invoke(*quick()).code == exits.DONE
    done = invoke(*quick("--out", "r", data="mnist"))
    assert "/nowhere has no folder mnist" in done.error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sede = 1", ["sede", "seed"]),
        ("force = true", ["force", "command line"]),
        ("seed = [", ["not TOML"]),
        ('seed = "many"', ["seed", "many"]),
        ("epochs = 1.5", ["epochs", "1.5"]),
        ("[recipe.plain]\nepochs = 3", ["recipe"]),
    ],
)
def test_a_file_that_cannot_be_used(place, invoke, quick, text, words):
    (place / "c.toml").write_text(text)
    done = invoke(*quick("--config", "c.toml", epochs=None))
    assert done.code == exits.USAGE
    assert all(word in done.error for word in words), done.error
    assert "*" not in done.error  # which is how objects of settings are named inside
    assert done.next == "nonvacuous certify --help"


def test_the_record_of_a_run_is_not_a_file_of_settings(place, invoke, quick):
    invoke(*quick("--out", "r"))
    done = invoke("certify", "--config", "r/config.toml")
    assert done.code == exits.USAGE
    assert "record that a run keeps of itself" in done.error


def test_a_missing_file_is_told(place, invoke, quick):
    done = invoke(*quick("--config", "absent.toml"))
    assert done.code == exits.USAGE
    assert "absent.toml" in done.error


def test_an_impossible_variable_is_named(place, invoke, quick, monkeypatch):
    monkeypatch.setenv("NONVACUOUS_SEED", "many")
    done = invoke(*quick())
    assert done.code == exits.USAGE
    assert "NONVACUOUS_SEED" in done.error


def test_every_door_words_a_bad_value_alike(place, invoke, quick):
    """Keywords, flags and a record: one sentence, with the name as it was written."""
    bad = "must be greater than or equal to 1, got"
    with pytest.raises(BadInput, match=f"^top {bad} 0$"):
        nv.evaluate(predictions=[0], labels=[0], settings={"top": 0})
    assert f"--top {bad} '0'." in invoke("evaluate", "a.csv", "--top", "0").error
    assert (
        f"--examples {bad} -3." in invoke("memorize", "--data", "digits", "--examples", "-3").error
    )
    one = "must be 'stochastic' or 'drawn', got 'x'"
    with pytest.raises(BadInput, match=f"^predictor {one}$"):
        nv.Posterior(predictor="x")
    assert f"--predictor {one}." in invoke(*quick("--predictor", "x")).error
    with pytest.raises(BadInput, match="Evaluation has no setting 'tops'; it has metric"):
        nv.evaluate(predictions=[0], labels=[0], settings={"tops": 1})
