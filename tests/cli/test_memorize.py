"""``nonvacuous memorize`` and ``nonvacuous reproduce zhang-theorem-1`` for a newcomer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from nonvacuous.cli import exits
from nonvacuous.memorization import load
from nonvacuous.papers.zhang import theorem as zhang_theorem

WORDS = ["memorize", "--data", "x.npz"]


def test_random_labels_are_memorized(place, invoke):
    done = invoke(*WORDS)
    assert done.code == exits.DONE, done.err
    assert "492 weights memorize 240 distinct points with random labels: 0 mismatches" in done.out
    assert "2n + d = 2 x 240 + 12 = 492" in done.out
    for expected in (
        "eigenvalue",
        "float32",
        "refused: it has 24 of the up to 53",
        "What this does not say",
        "seed",
    ):
        assert expected in done.out
    assert done.next.endswith("--out memorized")
    assert sorted(path.name for path in place.iterdir()) == ["my_model.py", "x.npz"]


@pytest.mark.slow
def test_the_files_hold_the_network(place, invoke):
    done = invoke(*WORDS, "--labels", "true", "--depth", "5", "--out", "m", "--json")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record == json.loads((place / "m/results.json").read_text())
    assert record["certificate"]["mismatches"] == 0
    assert record["true_labels"]["train_right"] == 240
    assert record["float64"]["forward"]["wrong"] == 0
    stored = np.load(place / "x.npz")
    network = load(place / "m/network.safetensors")
    found = network(torch.from_numpy(stored["inputs"])).argmax(1).numpy()
    assert (found == stored["labels"]).all()
    page = (place / "m/report.html").read_text()
    assert "0 mismatches in exact arithmetic" in page and page.count("<svg") == 3
    assert "<script" not in page
    refused = invoke(*WORDS, "--out", "m")
    assert refused.code == exits.USAGE and "holds a study already" in refused.error
    other = invoke(*refused.next.split()[1:])
    assert other.code == exits.FAILED and "other settings (depth, labels)" in other.error
    again = invoke(*WORDS, "--labels", "true", "--depth", "5", "--out", "m", "--json", "--resume")
    assert json.loads(again.out) == record


def test_a_part_of_the_examples_without_the_slow_test(place, invoke):
    record = json.loads(invoke(*WORDS, "--examples", "50", "--skip-forward", "--json").out)
    assert record["points"] == 50
    assert "float64" not in record
    assert "2n + d = 2 x 50 + 12 = 112" in record["facts"]["weights"]


def test_the_seed_decides(place, invoke):
    words = [*WORDS, "--skip-forward", "--json", "--seed"]
    one, same, other = (json.loads(invoke(*words, seed).out) for seed in ("1", "1", "2"))
    assert one["smallest_eigenvalue"] == same["smallest_eigenvalue"]
    assert one["smallest_eigenvalue"] != other["smallest_eigenvalue"]


@pytest.mark.slow
def test_conflicting_copies_and_the_way_on(place, invoke):
    inputs = np.repeat(np.arange(120, dtype=np.float32).reshape(60, 2), 2, axis=0)
    labels = np.arange(120) % 3
    np.savez(place / "twice.npz", inputs=inputs, labels=labels)
    done = invoke("memorize", "--data", "twice.npz", "--labels", "true", "--out", "m")
    assert done.code == exits.FAILED
    assert "60 of 60 distinct points" in done.error and "at least 60 of 120" in done.error
    assert not (place / "m").exists()
    again = invoke(*done.next.split()[1:])
    assert again.code == exits.DONE, again.err
    assert "the best possible (60 contradict a copy)" in again.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], exits.USAGE, "--data"),
        (["--data", "absent.npz"], exits.USAGE, "absent.npz"),
        (["--data", "x.npz", "--depth", "1"], exits.USAGE, "--depth"),
        (["--data", "x.npz", "--depth", "2.5"], exits.USAGE, "whole number"),
        (["--data", "x.npz", "--depth", "242"], exits.FAILED, "at most 241"),
        (["--data", "x.npz", "--examples", "0"], exits.USAGE, "--examples"),
        (["--data", "x.npz", "--examples", "999"], exits.FAILED, "240 training examples"),
        (["--data", "x.npz", "--labels", "wrong"], exits.USAGE, "wrong"),
    ],
)
def test_errors_of_a_newcomer(place, invoke, words, code, message):
    done = invoke("memorize", *words)
    assert done.code == code
    assert message in done.error
    assert done.out == ""
    assert done.next.startswith("nonvacuous ")


SMALL = 'data = "x.npz"\nsizes = [60, 240]\ndepths = [2, 4, 31]\n'
THEOREM = ["reproduce", "zhang-theorem-1", "--config", "small.toml", "--out", "r"]


@pytest.mark.slow
def test_the_theorem_in_one_command(place, invoke, monkeypatch):
    (place / "small.toml").write_text(SMALL)
    done = invoke(*THEOREM)
    assert done.code == exits.DONE, done.err
    for claim in ("C15, Theorem 1 holds", "C16, Lemma 1 holds", "C17, Corollary 1 holds"):
        assert claim in done.out
    for name in ("results.json", "table.md", "report.html", "settings.json"):
        assert (place / "r" / name).is_file()
    record = json.loads((place / "r/results.json").read_text())
    assert [entry["depth"] for entry in record["depths"]] == [2, 4, 31] * 2
    assert all(entry["mismatches"] == 0 for entry in record["depths"])
    assert [e["parameters"] - e["theorem_parameters"] for e in record["depths"]] == [0, 1, 1] * 2
    refused = invoke(*THEOREM)
    assert refused.code == exits.USAGE and refused.next.endswith("--resume")
    with monkeypatch.context() as patch:
        patch.setattr(zhang_theorem, "memorize", None)
        assert json.loads(invoke(*THEOREM, "--resume", "--json").out) == record
    other = invoke(*THEOREM, "--resume", "--seed", "5")
    assert other.code == exits.FAILED and "other settings (seed)" in other.error


@pytest.mark.slow
def test_a_stop_is_told_and_resumed(place, invoke, monkeypatch):
    (place / "small.toml").write_text(SMALL)

    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zhang_theorem, "check_lemma", stop)
        done = invoke(*THEOREM)
    assert done.code == exits.INTERRUPTED
    assert any((place / "r/cells").glob("n60-depth31-*/result.json"))
    assert invoke(*done.next.split()[1:]).code == exits.DONE


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("depth = 3\n", "there is no setting 'depth'"),
        ("depths = [1]\n", "depths: 1"),
        ("depths = []\n", "there are none"),
        ("sizes = [0]\n", "sizes: 0"),
        ("sizes = [\n", "not TOML"),
    ],
)
def test_settings_that_make_no_sense(place, invoke, toml, message):
    (place / "small.toml").write_text(toml)
    done = invoke(*THEOREM)
    assert done.code == exits.USAGE
    assert message in done.error


def test_more_examples_than_there_are(place, invoke):
    (place / "small.toml").write_text('data = "x.npz"\nsizes = [999]\n')
    done = invoke(*THEOREM)
    assert done.code == exits.FAILED and "999 examples are asked for" in done.error
    assert not (place / "r").exists()


def test_the_settings_file_holds_the_defaults():
    from pathlib import Path

    from nonvacuous.papers.zhang.theorem import TheoremSettings

    path = Path(__file__).parents[2] / "experiments/zhang-theorem-1.toml"
    assert TheoremSettings.from_toml(path) == TheoremSettings()
