"""``nonvacuous rescale``: other weights, the same function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nonvacuous.cli import exits
from nonvacuous.data import load
from nonvacuous.models import build
from tests.training.calls import train

WORDS = ["rescale", "--model", "mlp:8,6", "--data", "x.npz", "--weights", "w.safetensors"]
OUT = ["--out", "new.safetensors", "--trials", "300"]


@pytest.fixture
def weights(place: Path) -> Path:
    examples = load("x.npz").train
    module = train(build("mlp:8,6", (12,), 3, seed=0), examples, epochs=2, seed=0).module
    save_file(module.state_dict(), place / "w.safetensors")
    return place


def outputs(file: Path, inputs: torch.Tensor) -> torch.Tensor:
    module = build("mlp:8,6", (12,), 3, seed=5).double().eval()
    module.load_state_dict({name: tensor.double() for name, tensor in load_file(file).items()})
    with torch.no_grad():
        return module(inputs.double())


@pytest.mark.parametrize(
    "how", [[], ["--gauge", "balanced"], ["--attack", "1"], ["--attack", "3"]], ids=str
)
def test_the_function_stays(weights, invoke, how):
    before = (weights / "w.safetensors").read_bytes()
    done = invoke(*WORDS, *OUT, *how, "--json")
    assert done.code == exits.DONE, done.err
    record = json.loads(done.out)
    assert record["function"]["float64_error"] < 1e-13
    assert record["function"]["float32_error"] < 1e-5
    assert (weights / "w.safetensors").read_bytes() == before
    inputs = torch.randn(50, 12, generator=torch.Generator().manual_seed(1))
    old, new = (outputs(weights / name, inputs) for name in ("w.safetensors", "new.safetensors"))
    assert torch.allclose(old, new, rtol=0, atol=1e-5 * float(old.abs().max()))
    moved = load_file(weights / "new.safetensors")["layers.0.weight"]
    assert not torch.equal(moved, load_file(weights / "w.safetensors")["layers.0.weight"])


def test_an_attack_moves_norms_and_naive_bounds_but_not_the_smallest_kl(weights, invoke):
    done = invoke(*WORDS, *OUT, "--attack", "2", "--json")
    record = json.loads(done.out)
    before, after = record["before"], record["after"]
    assert after["norm"] > 1.5 * before["norm"]
    assert after["kl_naive"] > before["kl_naive"]
    assert after["kl_carried"] > before["kl_carried"]
    assert after["kl_smallest"] == pytest.approx(before["kl_smallest"], rel=1e-6)
    assert record["function"]["predictions_changed"] == 0
    assert record["factors"]["smallest"] < 1 < record["factors"]["largest"]


def test_the_optimal_gauge_is_the_smallest_kl(weights, invoke):
    record = json.loads(invoke(*WORDS, *OUT, "--json").out)
    assert record["gauge"] == "optimal"
    assert record["after"]["kl_carried"] < record["before"]["kl_carried"]
    smallest = pytest.approx(record["before"]["kl_smallest"], rel=1e-6)
    assert record["after"]["kl_carried"] == smallest
    assert record["after"]["bound_smallest"] <= record["before"]["bound_naive"] + 1e-9


@pytest.mark.slow
def test_the_balanced_gauge_has_the_smallest_norm(weights, invoke):
    # An attack and then balancing ends where balancing alone does.
    words = [word if word != "w.safetensors" else "a.safetensors" for word in WORDS]
    assert invoke(*WORDS, "--out", "a.safetensors", "--attack", "1").code == exits.DONE
    alone = json.loads(invoke(*WORDS, *OUT, "--gauge", "balanced", "--json").out)
    after = json.loads(
        invoke(*words, "--out", "b.safetensors", "--gauge", "balanced", "--json").out
    )
    assert alone["after"]["norm"] < alone["before"]["norm"]
    assert after["after"]["norm"] == pytest.approx(alone["after"]["norm"], rel=1e-5)
    for name, tensor in load_file(weights / "new.safetensors").items():
        other = load_file(weights / "b.safetensors")[name]
        assert torch.allclose(tensor, other, rtol=1e-3, atol=1e-5), name
    shown = invoke("inspect", "--model", "mlp:8,6", "--data", "x.npz", "--weights",
                   "new.safetensors", "--json")  # fmt: skip
    for group in json.loads(shown.out)["groups"]:
        assert group["imbalance"]["lowest"] == pytest.approx(1, abs=1e-3)
        assert group["imbalance"]["highest"] == pytest.approx(1, abs=1e-3)


def test_text_and_what_comes_next(weights, invoke):
    done = invoke(*WORDS, *OUT, "--attack", "1")
    assert done.code == exits.DONE
    for expected in ("norm of all weights", "smallest on its orbit", "bound with", "predictions"):
        assert expected in done.out
    assert "--weights new.safetensors --out new-mended.safetensors" in done.next
    mended = invoke(*done.next.split()[1:])
    assert mended.code == exits.DONE
    assert mended.next.startswith("nonvacuous inspect")


def test_the_next_command_names_the_same_network(weights, invoke):
    shape = ["--model", "mlp:8,6", "--example", "12", "--classes", "3"]
    looked = invoke("inspect", *shape, "--weights", "w.safetensors", "--svg", "net.svg")
    mended = invoke(*looked.next.split()[1:], "--attack", "1")
    assert mended.code == exits.DONE, mended.err
    again = invoke(*mended.next.split()[1:])
    assert again.code == exits.DONE, again.err


def test_without_data_there_are_no_bounds(weights, invoke):
    words = ["rescale", "--model", "mlp:8,6", "--example", "12", "--classes", "3"]
    done = invoke(*words, "--weights", "w.safetensors", "--out", "new.safetensors", "--json")
    record = json.loads(done.out)
    assert "bound_naive" not in record["before"]
    assert record["function"]["inputs"] == 1000


def test_the_same_seed_gives_the_same_file(weights, invoke):
    files = []
    for seed in ("3", "3", "4"):
        assert invoke(*WORDS, *OUT, "--attack", "1", "--seed", seed, "--force").code == exits.DONE
        files.append((weights / "new.safetensors").read_bytes())
    assert files[0] == files[1] != files[2]


def test_the_weights_are_never_overwritten(weights, invoke):
    before = (weights / "w.safetensors").read_bytes()
    for out in ("w.safetensors", "./w.safetensors"):
        done = invoke(*WORDS, "--out", out, "--force")
        assert done.code == exits.USAGE and "is not changed" in done.error
        assert done.next.endswith("--out w-2.safetensors")
    assert (weights / "w.safetensors").read_bytes() == before


def test_nothing_is_overwritten(weights, invoke):
    (weights / "new.safetensors").write_text("mine")
    done = invoke(*WORDS, *OUT)
    assert done.code == exits.USAGE
    assert "exists already" in done.error
    assert "--out new-2.safetensors" in done.next
    assert (weights / "new.safetensors").read_text() == "mine"
    assert invoke(*WORDS, *OUT, "--force").code == exits.DONE


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--sigma", "0"], exits.USAGE, "--sigma"),
        (["--tau", "-1"], exits.USAGE, "--tau"),
        (["--attack", "0"], exits.USAGE, "--attack"),
        (["--attack", "1", "--gauge", "balanced"], exits.USAGE, "give one of them"),
        (["--gauge", "best"], exits.USAGE, "best"),
        (["--attack", "200"], exits.FAILED, "range"),
    ],
)
def test_flags_that_make_no_sense(weights, invoke, words, code, message):
    done = invoke(*WORDS, *OUT, *words)
    assert done.code == code
    assert message in done.error
    assert not (weights / "new.safetensors").exists()


def test_weights_of_another_architecture(weights, invoke):
    words = [word if word != "mlp:8,6" else "mlp:8" for word in WORDS]
    done = invoke(*words, *OUT)
    assert done.code == exits.FAILED
    assert "another architecture" in done.error
    assert done.next == "nonvacuous rescale --help"
    other = [word if word != "mlp:8,6" else "mlp:8,7" for word in WORDS]
    assert "has shape" in invoke(*other, *OUT).error


def test_weights_that_are_missing(weights, invoke):
    words = [word if word != "w.safetensors" else "absent.safetensors" for word in WORDS]
    done = invoke(*words, *OUT)
    assert done.code == exits.USAGE
    assert "there is no file absent.safetensors" in done.error


def test_a_network_that_cannot_be_rescaled(place, invoke):
    (place / "smooth.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 3))\n"
    )
    module = torch.nn.Sequential(torch.nn.Linear(12, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    save_file(module.state_dict(), place / "w.safetensors")
    done = invoke("rescale", "--model", "smooth:build", "--data", "x.npz", "--weights",
                  "w.safetensors", "--out", "new.safetensors")  # fmt: skip
    assert done.code == exits.FAILED
    assert "tanh" in done.error
    assert done.next.startswith("nonvacuous inspect --model smooth:build")
    assert invoke(*done.next.split()[1:]).code == exits.DONE
