"""``nonvacuous sparsity`` for a newcomer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.data import import_function

QUICK = ["sparsity", "--data", "x.npz", "--model", "mlp:20", "--steps", "60"]


def test_a_network_trained_here(place, invoke):
    done = invoke(*QUICK)
    assert done.code == exits.DONE, done.err
    for expected in (
        "of the hidden units are active", "layers.0", "weights move by", "Theorem E, sparse",
        "Theorem E, dense", "plain test: the prior itself", "Bartlett", "Neyshabur", "Golowich",
        "Seed 0",
    ):  # fmt: skip
        assert expected in " ".join(done.out.split()), expected
    assert "Sparsity" in done.out or "sparsity" in done.out
    assert done.next == "nonvacuous " + " ".join(QUICK) + " --out sparsity"
    assert sorted(path.name for path in place.iterdir()) == ["my_model.py", "x.npz"]


def test_the_files_and_the_network_studied_again(place, invoke):
    done = invoke(*QUICK, "--out", "s", "--json", "--prior", "learned:0.3")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record == json.loads((place / "s/record.json").read_text())
    assert record["prior"] == "learned:0.3" and record["trained"]["steps"] == 60
    assert record["examples"] < 240 and not record["seen_norm"] and not record["biases"]
    page = (place / "s/sparsity.html").read_text()
    assert page.count("<svg") == 6 and "<script" not in page
    assert "How firmly are units off?" in page and "noise of layer 2" in page
    refused = invoke(*QUICK, "--out", "s")
    assert refused.code == exits.USAGE and "holds network.safetensors" in refused.error
    assert refused.next.endswith("--force")
    words = ["sparsity", "--data", "x.npz", "--model", "mlp:20", "--unit-norm", "--prior", "none",
             "--weights", "s/network.safetensors", "--json"]  # fmt: skip
    again = json.loads(invoke(*words).out)
    assert again["trained"] is None and again["certificates"] == []
    assert again["examples"] == 240 and not again["biases"]
    assert again["errors"] == record["trained"]["errors"]


def test_the_users_own_network_with_a_prior(place, invoke):
    build = import_function("my_model:build")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(build().state_dict(), "prior.safetensors")
        save_file(build().state_dict(), "w.safetensors")
    words = ["sparsity", "--data", "my_model:load", "--model", "my_model:build",
             "--weights", "w.safetensors", "--epsilons", "0.01,0.001"]  # fmt: skip
    done = invoke(*words)
    assert done.code == exits.DONE, done.err
    assert "No certificate" in done.out and "the longest seen" in done.out
    assert "Theorem" not in done.out
    record = json.loads(invoke(*words, "--prior", "prior.safetensors", "--json").out)
    assert [entry["epsilon"] for entry in record["epsilons"]] == [0.001, 0.01]
    assert [entry["variant"] for entry in record["certificates"]] == ["sparse", "dense"]
    assert record["biases"] and record["activity"][0]["name"] == "1"
    learned = invoke(*words, "--prior", "learned:0.2")
    assert learned.code == exits.USAGE and "is not known" in learned.error
    assert invoke(*learned.next.split()[1:]).code == exits.DONE


def test_an_l1_penalty_makes_it_sparser(place, invoke):
    words = [*QUICK[:-1], "200", "--prior", "none", "--json"]
    plain, sparse = (json.loads(invoke(*words, "--activity", a).out) for a in ("0", "0.05"))
    assert sparse["activity"][0]["mean"] < plain["activity"][0]["mean"]


def test_the_seed_decides(place, invoke):
    words = [*QUICK, "--json", "--prior", "none", "--seed"]
    one, same, other = (json.loads(invoke(*words, seed).out) for seed in ("1", "1", "2"))
    assert one == same
    assert one["activity"] != other["activity"]


OWN = ["--data", "x.npz", "--model"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], exits.USAGE, "--data"),
        (["--data", "absent.npz"], exits.FAILED, "absent.npz"),
        ([*OWN, "my_model:normalized"], exits.FAILED, "1 (aten"),
        ([*OWN, "my_model:narrow"], exits.FAILED, "cannot take"),
        ([*OWN, "my_model:four_classes"], exits.FAILED, "must give (2, 3)"),
        ([*OWN, "mlp:x"], exits.FAILED, "list of sizes"),
        ([*OWN, "mlp:8", "--weights", "absent.safetensors"], exits.FAILED, "absent.safetensors"),
        ([*OWN, "mlp:8", "--examples", "50"], exits.FAILED, "at least 100"),
        ([*OWN, "mlp:8", "--examples", "999"], exits.FAILED, "240 training examples"),
        ([*OWN, "mlp:8", "--prior", "nonsense"], exits.FAILED, "no prior"),
        ([*OWN, "mlp:8", "--prior", "p.safetensors"], exits.USAGE, "goes with --weights"),
        ([*OWN, "mlp:8", "--epsilons", "0.1,zero"], exits.USAGE, "list of numbers"),
        ([*OWN, "mlp:8", "--epsilons", "0"], exits.USAGE, "positive"),
        ([*OWN, "mlp:8", "--confidence", "2"], exits.USAGE, "--confidence"),
        ([*OWN, "mlp:8", "--pull", "-1"], exits.USAGE, "--pull"),
        ([*OWN, "mlp:8", "--theorem", "Z"], exits.USAGE, "Z"),
    ],
)
def test_errors_of_a_newcomer(place, invoke, words, code, message):
    done = invoke("sparsity", *words, *(["--steps", "20"] if words else []))
    assert done.code == code
    assert message in done.error
    assert done.out == ""
    assert done.next.startswith("nonvacuous ")


def test_dead_and_zero_units_are_named(place, invoke):
    build = import_function("my_model:build")
    for name in ("zero", "dead"):
        module = build()
        with torch.no_grad():
            if name == "zero":
                module[1].weight[2].zero_()
                module[1].bias[2].zero_()
            else:
                module[1].bias.fill_(-1e6)
        save_file(module.state_dict(), f"{name}.safetensors")
    for name, message in (("zero", "unit 2"), ("dead", "layer 1 is dead")):
        done = invoke("sparsity", *OWN, "my_model:build", "--weights", f"{name}.safetensors")
        assert done.code == exits.FAILED and message in done.error


def test_labels_beyond_the_outputs(place, invoke):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(200, 12)).astype(np.float32)
    np.savez(place / "four.npz", inputs=inputs, labels=np.arange(200) % 4)
    done = invoke("sparsity", "--data", "four.npz", "--model", "my_model:build")
    assert done.code == exits.FAILED and "(2, 4)" in done.error
