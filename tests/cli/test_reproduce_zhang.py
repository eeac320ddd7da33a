"""The commands around the randomization paper, on a small copy of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nonvacuous.cli import exits
from nonvacuous.papers.zhang import training as zhang_training

TOML = """
data = "images.npz"
crop = 8
batch_size = 20
solo_epochs = 0
[networks.small]
model = "mlp:6"
epochs = 2
precision = "float32"
measure_every = 1
"""
TABLE = ["reproduce", "zhang-table-1", "--config", "small.toml", "--out", "t"]


@pytest.fixture
def small(place):
    generator = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 60), ("test", 30)):
        arrays[f"x_{part}"] = generator.integers(0, 256, (count, 3, 10, 10), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % 3
    np.savez(place / "images.npz", **arrays)
    (place / "small.toml").write_text(TOML)
    return place


@pytest.mark.slow
def test_the_table_then_the_regularizers_then_the_figure(small, invoke):
    done = invoke(*TABLE)
    assert done.code == exits.DONE, done.err
    assert "small" in done.out and "random" in done.out
    for name in ("results.json", "table.md", "report.html", "settings.json"):
        assert (small / "t" / name).is_file()
    assert "small, random labels: training accuracy" in done.err
    assert done.next == "nonvacuous reproduce zhang-regularization --table t"
    more = ["--config", "small.toml", "--out", "r", "--json"]
    record = json.loads(invoke(*done.next.split()[1:], *more).out)
    kinds = [(entry["augmentation"], entry["dropout"]) for entry in record["switches"]]
    assert kinds == [("none", False), ("none", False), ("none", True), ("crop", False)]
    assert sum(entry["networks"] for entry in record["timings"]) == 5
    words = ["--config", "small.toml", "--out", "d", "--regularizers", "decay"]
    done = invoke("reproduce", "zhang-regularization", *words, "--decay-times", "1", "8", "--json")
    times = [entry["weight_decay_times"] for entry in json.loads(done.out)["switches"]]
    assert times == [1.0, 8.0]
    words = ["reproduce", "zhang-figure-1", "--config", "small.toml", "--out", "f"]
    done = invoke(*words, "--levels", "0.5", "--table", "t")
    assert done.code == exits.DONE, done.err
    assert "small: rises within the intervals" in done.out
    assert (small / "f" / "figure-1c.svg").read_text().startswith("<svg")


def test_rows_resume_and_force(small, invoke, monkeypatch):
    first = json.loads(invoke(*TABLE, "--rows", "2-3", "--json").out)
    assert [row["number"] for row in first["rows"]] == [2, 3]
    refused = invoke(*TABLE)
    assert refused.code == exits.USAGE
    assert "holds a reproduction already" in refused.error
    assert refused.next.endswith("--resume")
    whole = json.loads(invoke(*TABLE, "--resume", "--json").out)
    assert [row["number"] for row in whole["rows"]] == [1, 2, 3]
    assert whole["rows"][1:] == first["rows"]
    with monkeypatch.context() as patch:
        patch.setattr(zhang_training, "train_many", None)
        assert json.loads(invoke(*TABLE, "--resume", "--json").out) == whole
    again = json.loads(invoke(*TABLE, "--force", "--json").out)
    for one, other in zip(again["rows"], whole["rows"], strict=True):
        assert one["train_accuracy"] == other["train_accuracy"]


def test_a_stop_is_told_and_resumed(small, invoke, monkeypatch):
    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zhang_training, "train_many", stop)
        done = invoke(*TABLE)
    assert done.code == exits.INTERRUPTED
    assert "stopped" in done.error
    assert done.next.endswith("--resume")
    assert invoke(*done.next.split()[1:]).code == exits.DONE


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["zhang-table-1", "--rows", "20"], exits.USAGE, "numbers from 1 to 19"),
        (["zhang-table-1", "--only", "resnet"], exits.USAGE, "inception-no-bn"),
        (["zhang-table-1", "--only", "mlp", "--rows", "1"], exits.USAGE, "leave no row"),
        (["zhang-table-1", "--quick", "--config", "x.toml"], exits.USAGE, "--quick"),
        (["zhang-table-1", "--config", "absent.toml"], exits.USAGE, "absent.toml"),
        (["zhang-table-1", "--resume", "--force"], exits.USAGE, "give one of them"),
        (["zhang-table-1", "--epochs", "0"], exits.USAGE, "too few"),
        (["zhang-table-1"], exits.FAILED, "cifar10"),
        (["zhang-figure-1", "--only", "mlp-3x512"], exits.USAGE, "alexnet"),
        (["zhang-figure-1", "--levels", "2"], exits.USAGE, "between 0 and 1"),
        (["zhang-figure-1", "--table", "absent"], exits.USAGE, "holds no table"),
        (["zhang-regularization", "--only", "resnet"], exits.USAGE, "inception"),
        (["zhang-regularization", "--regularizers", "noise"], exits.USAGE, "dropout"),
        (["zhang-regularization", "--decay-times", "-1"], exits.USAGE, "not positive"),
        (["zhang-regularization"], exits.FAILED, "cifar10"),
    ],
)
def test_errors_of_a_newcomer(place, invoke, words, code, message):
    done = invoke("reproduce", *words)
    assert done.code == code
    assert message in done.error
    assert done.out == ""
    assert done.next.startswith("nonvacuous ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zhang-table-1", "zhang-figure-1", "zhang-regularization"])
def test_quick_mode(place, invoke, name):
    done = invoke("reproduce", name, "--quick", "--epochs", "2", "--json")
    assert done.code == exits.DONE, done.err
    assert json.loads(done.out)["settings"]["data"] == "digits"
    assert (place / "runs" / f"{name}-quick" / "report.html").is_file()
