"""``nonvacuous reproduce measures-study`` on a grid of a few networks."""

from __future__ import annotations

import json

import pytest

from nonvacuous.cli import exits
from nonvacuous.papers.measures import training

TOML = """
width = [6, 12]
depth = [1]
learning_rate = [0.1]
batch_size = [20]
weight_decay = [0.0]
dropout = [0.0]
label_noise = [0.0, 0.2]
examples = [40, 80]
repetitions = 2
stop_loss = 0.4
epochs = 60
measures = ["norms", "margins"]
draws = 20
information_draws = 10
alone = 1
alone_epochs = 1
"""
STUDY = ["reproduce", "measures-study", "--config", "small.toml", "--out", "s", "--jobs", "1"]


@pytest.fixture
def small(place):
    (place / "small.toml").write_text(TOML)
    return place


@pytest.mark.slow
def test_the_study_then_its_statistics_again(small, invoke, monkeypatch):
    done = invoke(*STUDY)
    assert done.code == exits.DONE, done.err
    assert "spectral-sum" in done.out
    assert "random-numbers" in done.out
    assert "reached the stopping loss" in done.err
    for name in ("networks.jsonl", "results.json", "table.md", "report.html", "settings.json"):
        assert (small / "s" / name).is_file()
    refused = invoke(*STUDY)
    assert refused.code == exits.USAGE
    assert "holds a reproduction already" in refused.error
    assert refused.next.endswith("--resume")
    first = json.loads((small / "s" / "results.json").read_text())
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_many", None)
        again = json.loads(invoke(*STUDY, "--resume", "--json").out)
    assert again == first
    assert again["networks"] == 16
    assert again["settings"]["width"] == [6, 12]


@pytest.mark.slow
def test_a_stop_is_told_and_resumed(small, invoke, monkeypatch):
    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_many", stop)
        done = invoke(*STUDY)
    assert done.code == exits.INTERRUPTED
    assert done.next.endswith("--resume")
    assert invoke(*done.next.split()[1:]).code == exits.DONE


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--large", "--quick"], exits.USAGE, "--large has settings of its own"),
        (["--quick", "--config", "x.toml"], exits.USAGE, "--quick"),
        (["--config", "absent.toml"], exits.USAGE, "absent.toml"),
        (["--resume", "--force"], exits.USAGE, "give one of them"),
        (["--jobs", "0"], exits.USAGE, "--jobs"),
        (["--large", "--jobs", "1"], exits.FAILED, "mnist"),
    ],
)
def test_errors_of_a_newcomer(place, invoke, monkeypatch, words, code, message):
    monkeypatch.delenv("NONVACUOUS_DATA", raising=False)
    done = invoke("reproduce", "measures-study", *words)
    assert done.code == code
    assert message in done.error
    assert done.out == ""
    assert done.next.startswith("nonvacuous ")
