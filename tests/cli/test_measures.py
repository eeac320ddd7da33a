"""``nonvacuous measures`` for a newcomer."""

from __future__ import annotations

import importlib
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.data import import_function
from nonvacuous.measures.registry import MEASURES

QUICK = ["measures", "--data", "x.npz", "--model", "mlp:8", "--epochs", "40"]
FEW = ["--only", "norms,paths,margins"]


@pytest.mark.slow
def test_the_table_of_a_network_trained_here(place, invoke):
    done = invoke(*QUICK)
    assert done.code == exits.DONE, done.err
    for expected in (
        "measures are defined", "parameter-count", "path-norm-1", "fisher-rao", "rescaled-kl",
        "same whatever the", "gauge, order", "Trained here", "Seed 0",
    ):  # fmt: skip
        assert expected in done.out, expected
    assert done.next == "nonvacuous " + " ".join(QUICK) + " --attack"
    assert sorted(path.name for path in place.iterdir()) == ["my_model.py", "runs", "x.npz"]
    assert [path.name for path in (place / "runs").iterdir()] == ["attempts.jsonl"]


@pytest.mark.slow
def test_attack_and_random_labels_with_a_page(place, invoke):
    words = [*QUICK, *FEW, "--attack", "--gauges", "4", "--against", "random-labels"]
    done = invoke(*words, "--out", "m", "--json")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record == json.loads((place / "m/results.json").read_text())
    verdicts = {e["name"]: e["verdict"] for e in record["attack"]["measures"]}
    assert verdicts["path-norm-1"] == verdicts["margin-median"] == "gauge-free"
    assert verdicts["spectral-product"] == verdicts["two-one-sum"] == "moves"
    decades = {e["name"]: e["decades"] for e in record["attack"]["measures"]}
    assert decades["spectral-product"] > 0.1 and abs(decades["path-norm-2"]) < 1e-9
    assert record["against"]["spec"] == "random-labels"
    assert record["trained"]["errors"] == 0 <= record["against"]["trained"]["errors"]
    page = (place / "m/report.html").read_text()
    assert page.count("<svg") == 1 and "<script" not in page
    assert "The same function in 4 gauges" in page and "spectral-product" in page
    text = invoke(*words)
    assert "4 gauges of the same function" in text.out and "more complex" in text.out
    given = json.loads(invoke(*words, "--json", "--against-weights", "m/other.safetensors").out)
    assert given["against"]["trained"] is None
    assert given["against"]["panel"]["training_errors"] == record["against"]["trained"]["errors"]
    assert given["against"]["panel"]["measures"] == record["against"]["panel"]["measures"]
    refused = invoke(*words, "--out", "m")
    assert refused.code == exits.USAGE and "holds a study already" in refused.error
    assert "--force" in refused.error and refused.next.endswith("--resume")
    shown = invoke(*words, "--out", "m", "--resume", "--json")
    assert shown.code == exits.DONE and json.loads(shown.out) == record
    other = invoke(*words[:-2], "--out", "m", "--resume")
    assert other.code == exits.FAILED and "other settings (against)" in other.error
    assert "--out m-2" in other.next and "--force" not in other.next


@pytest.mark.slow
def test_a_stopped_run_goes_on_where_it_was(place, invoke, monkeypatch):
    words = [*QUICK, *FEW, "--attack", "--gauges", "5", "--out", "m", "--json"]
    undisturbed = json.loads(invoke(*words).out)
    module = importlib.import_module("nonvacuous.measures.panel")
    genuine, calls = module.measured, []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if len(calls) == 5:  # the panel, and the fourth gauge
            raise KeyboardInterrupt
        return genuine(*args, **kwargs)

    monkeypatch.setattr(module, "measured", interrupted)
    stopped = invoke(*words, "--force")
    assert stopped.code == exits.INTERRUPTED and "m keeps" in stopped.error
    assert stopped.next.endswith("--resume")
    (stored,) = (place / "m/cells").glob("*/gauges.checkpoint")
    with safe_open(stored, framework="pt") as file:
        assert not json.loads(file.metadata()["facts"])["gauges"][3:]
    done = invoke(*words, "--resume")
    assert done.code == exits.DONE and json.loads(done.out) == undisturbed
    assert len(calls) == 5 + 1 + 3  # three of the six gauges were there


def test_the_users_own_weights_and_where_they_began(place, invoke):
    build = import_function("my_model:build")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(build().state_dict(), "start.safetensors")
        save_file(build().state_dict(), "w.safetensors")
    words = ["measures", "--data", "my_model:load", "--model", "my_model:build", "--json"]
    given = [*words, "--weights", "w.safetensors", "--only", "distance from initialization,margins"]
    record = json.loads(invoke(*given).out)
    assert record["trained"] is None
    distances = [e for e in record["panel"]["measures"] if e["name"].endswith("distance-sum")]
    assert distances and all("initial weights" in e["undefined"] for e in distances)
    found = json.loads(invoke(*given, "--initial", "start.safetensors").out)
    assert all("undefined" not in e for e in found["panel"]["measures"])
    alone = invoke(*words, "--initial", "start.safetensors")
    assert alone.code == exits.USAGE and "belongs to --weights" in alone.error


@pytest.mark.slow
def test_batch_normalization_is_folded(place, invoke):
    words = ["--data", "my_model:load", "--model", "my_model:normalized", "--epochs", "20"]
    done = invoke("measures", *words, "--attack", "--gauges", "2", "--only", "paths,norms")
    assert done.code == exits.DONE, done.err
    assert "gauge-free" in done.out


@pytest.mark.slow
def test_the_seed_decides(place, invoke):
    words = [*QUICK, "--json", "--only", "flatness,norms"]
    first, again, other = (
        json.loads(invoke(*words, "--seed", seed).out) for seed in ("3", "3", "4")
    )
    assert first == again and first["panel"] != other["panel"]


def test_formulas_need_neither_data_nor_a_network(place, invoke):
    done = invoke("measures", "--formulas", "--only", "paths,ranks")
    assert done.code == exits.DONE and "networks" not in done.err
    assert "path-norm-1: Σ over paths" in done.out and "spectral-product" not in done.out
    assert "Neyshabur, Tomioka and Srebro (2015)" in done.out
    listed = json.loads(invoke("measures", "--formulas", "--json", "--data", "x.npz").out)
    assert [entry["name"] for entry in listed["measures"]] == list(MEASURES)
    assert all(entry["formula"] and entry["source"] for entry in listed["measures"])
    alone = invoke("measures")
    assert alone.code == exits.USAGE and alone.next == "nonvacuous measures --data digits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "path-nrm-1"], "did you mean 'path-norm-1'? Families"),
        (["--only", "zzz"], "'zzz'. Families"),
        (["--against", "nonsense"], "--against"),
        (["--without", "normz"], "did you mean 'norms'"),
        (["--only", "norms", "--without", "norms"], "leave no measure"),
        (["--resume"], "--out"),
        (["--against-weights", "x"], "belongs to --against"),
        (["--resume", "--force", "--out", "m"], "one of them"),
        (["--gauges", "0"], "--gauges"),
        (["--spread", "-1"], "--spread"),
        (["--weights", "absent.safetensors"], "absent.safetensors"),
    ],
)
def test_mistakes_are_told_with_what_to_do(place, invoke, words, said):
    done = invoke(*QUICK, *words)
    assert done.code == exits.USAGE and "examples of" not in done.err
    assert said in done.error and done.next.startswith("nonvacuous ")
