"""``nonvacuous sparsity`` for a newcomer."""

from __future__ import annotations

import json
import sys

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
    assert done.next == "nonvacuous " + " ".join(QUICK) + " --out runs/sparsity"
    assert sorted(path.name for path in place.iterdir()) == ["my_model.py", "runs", "x.npz"]
    assert [path.name for path in (place / "runs").iterdir()] == ["attempts.jsonl"]


@pytest.mark.slow
def test_the_files_and_the_network_studied_again(place, invoke):
    done = invoke(*QUICK, "--out", "s", "--json", "--prior", "learned:0.3", "--theorem", "F")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record == json.loads((place / "s/results.json").read_text())
    assert record["prior"] == "learned:0.3" and record["trained"]["steps"] == 60
    assert {entry["theorem"] for entry in record["certificates"]} == {"F"}
    assert record["examples"] < 240 and not record["seen_norm"] and not record["biases"]
    page = (place / "s/report.html").read_text()
    assert page.count("<svg") == 6 and "<script" not in page
    assert "How firmly are units off?" in page and "noise of layer 2" in page
    refused = invoke(*QUICK, "--out", "s")
    assert refused.code == exits.USAGE and "holds a study already" in refused.error
    assert refused.next.endswith("--resume")
    words = ["sparsity", "--data", "x.npz", "--model", "mlp:20", "--unit-norm", "--prior", "none",
             "--weights", "s/network.safetensors", "--json"]  # fmt: skip
    again = json.loads(invoke(*words).out)
    assert again["trained"] is None and again["certificates"] == []
    assert again["examples"] == 240 and not again["biases"]
    assert again["errors"] == record["trained"]["errors"]


@pytest.mark.slow
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


@pytest.mark.slow
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
        (["--data", "absent.npz"], exits.USAGE, "absent.npz"),
        ([*OWN, "my_model:normalized"], exits.FAILED, "1 (aten"),
        ([*OWN, "my_model:narrow"], exits.FAILED, "cannot take"),
        ([*OWN, "my_model:four_classes"], exits.FAILED, "must give (2, 3)"),
        ([*OWN, "mlp:x"], exits.USAGE, "list of sizes"),
        ([*OWN, "mlp:8", "--weights", "absent.safetensors"], exits.USAGE, "absent.safetensors"),
        ([*OWN, "mlp:8", "--examples", "50"], exits.FAILED, "at least 100"),
        ([*OWN, "mlp:8", "--examples", "999"], exits.FAILED, "240 training examples"),
        ([*OWN, "mlp:8", "--prior", "nonsense"], exits.USAGE, "no prior"),
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
    for name, message in (("zero", "unit 2"), ("dead", "no unit of layer 1")):
        done = invoke("sparsity", *OWN, "my_model:build", "--weights", f"{name}.safetensors")
        assert done.code == exits.FAILED and message in done.error


def test_labels_beyond_the_outputs(place, invoke):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(200, 12)).astype(np.float32)
    np.savez(place / "four.npz", inputs=inputs, labels=np.arange(200) % 4)
    done = invoke("sparsity", "--data", "four.npz", "--model", "my_model:build")
    assert done.code == exits.FAILED and "(2, 4)" in done.error


@pytest.fixture
def pictures(place):
    """Images with a bright corner, and two convolutional networks for them."""
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 3
    inputs = 0.3 * generator.random((300, 1, 8, 8)).astype(np.float32)
    for label, (row, column) in enumerate(((0, 0), (0, 4), (4, 0))):
        inputs[labels == label, :, row : row + 4, column : column + 4] += 0.7
    np.savez(place / "pictures.npz", inputs=inputs, labels=labels)
    (place / "my_convolutions.py").write_text(CONVOLUTIONS)
    sys.modules.pop("my_convolutions", None)
    yield place
    sys.modules.pop("my_convolutions", None)


CONVOLUTIONS = """
from torch import nn


def strided():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3)
    )


def normalized():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3)
    )
"""
PICTURES = ["sparsity", "--data", "pictures.npz", "--epsilons", "0.001,0.01", "--model"]


@pytest.mark.slow
def test_a_convolutional_network_trained_here(pictures, invoke):
    words = [*PICTURES, "cnn:3", "--steps", "40"]
    done = invoke(*words, "--prior", "learned:0.3", "--out", "s")
    assert done.code == exits.DONE, done.err
    text = " ".join(done.out.split())
    for expected in (
        "of the hidden units are active", "blocks.0", "Theorem E, sparse", "Theorem E, dense",
        "plain test: the prior itself", "not defined for convolutions", "No bounds from norms",
    ):  # fmt: skip
        assert expected in text, expected
    assert "asked" not in text and "activity ratio 1" not in text
    page = (pictures / "s/report.html").read_text()
    assert page.count("<svg") == 5 and "How firmly are units off?" not in page
    assert "not defined for convolutions" in page and "noise of layer 2" in page
    record = json.loads((pictures / "s/results.json").read_text())
    assert record["radii"] == [] and record["sizes"] == [64, 192, 3] and not record["biases"]
    assert record["examples"] == 210 and record["trained"]["pull"] == 10.0
    again = invoke(
        *PICTURES, "cnn:3", "--unit-norm", "--weights", "s/network.safetensors", "--json"
    )
    assert json.loads(again.out)["errors"] == record["trained"]["errors"]


@pytest.mark.slow
def test_own_convolutions_with_weights_and_prior(pictures, invoke):
    build = import_function("my_convolutions:strided")
    for name in ("prior", "w"):
        save_file(build().state_dict(), f"{name}.safetensors")
    words = [*PICTURES, "my_convolutions:strided", "--weights", "w.safetensors", "--json"]
    record = json.loads(invoke(*words, "--prior", "prior.safetensors").out)
    assert [entry["variant"] for entry in record["certificates"]] == ["sparse", "dense"]
    assert record["biases"] and len(record["norm_bounds"]) == 3
    for theorem in ("A", "D", "F"):
        refused = invoke(*words, "--prior", "zero", "--theorem", theorem)
        assert refused.code == exits.USAGE and "linear layers only" in refused.error
        assert refused.next.endswith("--theorem E")


@pytest.mark.slow
def test_an_l1_penalty_and_the_seed_of_convolutions(pictures, invoke):
    words = [*PICTURES, "cnn:3", "--steps", "80", "--prior", "none", "--json"]
    plain, same, sparse = (
        json.loads(invoke(*words, "--activity", a).out) for a in ("0", "0", "0.02")
    )
    assert plain == same
    assert sparse["activity"][0]["mean"] < plain["activity"][0]["mean"]


@pytest.mark.slow
def test_what_convolutions_are_refused(pictures, invoke):
    for model, message in (
        ("my_convolutions:normalized", "1 (aten"),
        ("cnn:3,3,3,3", "pooling blocks are too many"),
        ("alexnet", "sparsity certificate needs a plain chain"),
    ):
        done = invoke(*PICTURES, model, "--steps", "10")
        assert done.code == exits.FAILED and message in done.error, done.err
    flat = invoke("sparsity", "--data", "x.npz", "--model", "cnn:3")
    assert flat.code == exits.FAILED and "use mlp" in flat.error


@pytest.mark.slow
def test_certify_covers_convolutions_too(pictures, invoke):
    words = ["certify", "--mode", "sparsity", "--data", "pictures.npz", "--steps", "60"]
    done = invoke(*words, "--passes", "1", "--model", "cnn:3/no-bias", "--out", "run")
    assert done.code == exits.DONE, done.err
    assert "A kernel&#39;s noise" in (pictures / "run" / "report.html").read_text()
    checked = invoke("verify", "run", "--data", "pictures.npz")
    assert checked.code == exits.DONE, checked.out
    assert "counted again from the recorded seed" in checked.out
    assert "cnn:3/no-bias: 2 layers and nothing else" in checked.out
    refused = invoke(*words, "--model", "my_convolutions:normalized", "--out", "other")
    assert refused.code == exits.FAILED and "needs a plain chain" in refused.error
