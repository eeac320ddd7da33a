"""``nonvacuous reproduce``: the command around the experiments."""

from __future__ import annotations

import json

import pytest

from nonvacuous.cli import exits
from nonvacuous.papers.rescaling import figure as rescaling_figure

#: The quick mode made quicker.
TOML = """
data = "x.npz"
networks = [[6], [5, 4]]
epochs = 2
batch_size = 32
trials = 300
prior_scales = [0.001, 1.0, 9]
posterior_scales = [0.05, 0.2, 2]
"""
WORDS = ["reproduce", "rescaling-figure-1", "--config", "small.toml", "--out", "r"]


FILES = {"small.toml": TOML.replace("trials", "examples = 200\ntrials")}


@pytest.fixture
def small(place):
    (place / "small.toml").write_text(FILES["small.toml"])
    return place


@pytest.fixture
def finished(once):
    """What a reproduction said that ended in the folder r."""
    return json.loads(once(*WORDS, "--json", files=FILES).out)


@pytest.fixture
def untrained(monkeypatch):
    """Whatever would train a network fails."""
    monkeypatch.setattr(rescaling_figure, "train", None)


@pytest.mark.slow
def test_a_figure_in_one_command(place, finished, untrained, invoke):
    for name in ("results.json", "table.md", "figure.svg", "report.html", "settings.json"):
        assert (place / "r" / name).is_file()
    done = invoke(*WORDS, "--resume")
    assert done.code == exits.DONE, done.err
    assert "12-6-3" in done.out and "12-5-4-3" in done.out
    assert "Certificates better than guessing" in done.out
    assert done.next.startswith("nonvacuous verify r/cells/6-")
    assert invoke(*done.next.split()[1:], "--data", "x.npz").code == exits.DONE


def test_a_finished_one_is_not_begun_again_unasked(finished, untrained, invoke):
    refused = invoke(*WORDS)
    assert refused.code == exits.USAGE
    assert "holds a reproduction already" in refused.error
    assert refused.next.endswith("--resume")
    assert json.loads(invoke(*WORDS, "--resume", "--json").out) == finished


@pytest.mark.slow
def test_force_computes_the_same_again(finished, invoke):
    again = json.loads(invoke(*WORDS, "--only", "6", "--force", "--json").out)
    assert again["networks"] == finished["networks"][:1]


@pytest.mark.slow
def test_a_stop_is_told_and_resumed(small, invoke, monkeypatch):
    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rescaling_figure, "certify", stop)
        done = invoke(*WORDS, "--only", "6")
    assert done.code == exits.INTERRUPTED
    assert "stopped" in done.error
    assert done.next.endswith("--resume")
    assert invoke(*done.next.split()[1:]).code == exits.DONE


def test_only_some_networks(finished, untrained, invoke):
    for only, name in (("6", "12-6-3"), ("5,4", "12-5-4-3")):
        record = json.loads(invoke(*WORDS, "--only", only, "--resume", "--json").out)
        assert [entry["name"] for entry in record["networks"]] == [name]


@pytest.mark.slow
def test_another_seed_gives_other_networks(finished, invoke):
    words = [*WORDS[:-1], "s", "--only", "6", "--seed", "1", "--json"]
    other = json.loads(invoke(*words).out)
    assert other["settings"]["seed"] == 1
    assert finished["networks"][0]["paper"] != other["networks"][0]["paper"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["rescaling-figure"], exits.USAGE, "rescaling-figure-1"),
        (["rescaling-figure-1", "--only", "784-33-10"], exits.USAGE, "784-32-10"),
        (["rescaling-figure-1", "--quick", "--config", "x.toml"], exits.USAGE, "--quick"),
        (["rescaling-figure-1", "--config", "absent.toml"], exits.USAGE, "absent.toml"),
        (["rescaling-figure-1", "--resume", "--force"], exits.USAGE, "give one of them"),
        (["rescaling-figure-1", "--device", "tpu"], exits.USAGE, "tpu"),
        (["rescaling-figure-1"], exits.FAILED, "mnist"),
        ([], exits.USAGE, "name what to reproduce"),
    ],
)
def test_errors_of_a_newcomer(place, invoke, words, code, message):
    done = invoke("reproduce", *words)
    assert done.code == code
    assert message in done.error
    assert done.out == ""
    assert done.next.startswith("nonvacuous ")
    assert not (place / "runs").exists()


@pytest.mark.slow
def test_quick_mode_with_networks_on_images(place, invoke):
    words = ("--quick", "--cifar", "--rates", "0.1", "--architectures", "vit", "--json")
    done = invoke("reproduce", "rescaling-figure-1", *words)
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert [entry["name"] for entry in record["networks"]] == ["64-32-10", "64-64-32-10"]
    assert all(entry["ours"]["status"] == "valid" for entry in record["networks"])
    transformer, panel = record["images"]
    assert transformer["columns"] and not transformer["points"]
    assert len(panel["points"]) == len(panel["kl_ratios"]) == 6
    assert (place / "runs/rescaling-figure-1-quick/figure.svg").is_file()
