"""``nonvacuous certify --mode sparsity``: what a person gets, and what is refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from safetensors.torch import save_file

from nonvacuous.certificate import Certificate
from nonvacuous.cli import exits
from nonvacuous.data import import_function
from tests.processes import Command

QUICK = ("certify", "--mode", "sparsity", "--data", "x.npz", "--steps", "150", "--passes", "1")
FOLDER = "runs/x-mlp-100-no-bias-seed0"


@pytest.mark.slow
def test_a_newcomer_gets_a_certificate_a_page_and_a_verification(place, invoke):
    done = invoke(*QUICK)
    assert done.code == exits.DONE, done.err
    certificate = Certificate.load(place / FOLDER / "certificate.json")
    assert done.out == f"{certificate}\n"
    assert certificate.status == "valid" and not certificate.is_vacuous
    assert certificate.model.architecture == "mlp:100/no-bias"
    assert certificate.held_out_twin is not None
    for phase in ("training the prior", "training the network", "choosing the setting"):
        assert f"{phase} ..." in done.err
    page = (place / FOLDER / "report.html").read_text()
    assert "From noise to the network itself" in page
    assert done.next == f"nonvacuous verify {FOLDER} --data x.npz"
    verified = invoke("verify", FOLDER, "--data", "x.npz")
    assert verified.code == exits.DONE, verified.out
    assert "counted again from the recorded seed" in verified.out
    again = invoke(*QUICK, "--resume")
    assert "finished before" in again.err and again.out == done.out


@pytest.mark.slow
def test_an_own_network_with_a_prior_of_zero_or_its_start(place, invoke):
    module = import_function("my_model:build")()
    save_file(module.state_dict(), place / "w.safetensors")
    words = ("certify", "--mode", "sparsity", "--data", "x.npz", "--model", "my_model:build",
             "--weights", "w.safetensors", "--no-report", "--json")  # fmt: skip
    zero = invoke(*words, "--prior", "zero", "--out", "a/zero")
    assert zero.code == exits.DONE, zero.err
    assert json.loads(zero.out)["sparsity"]["prior"] == "zero"
    near = invoke(*words, "--initial", "w.safetensors", "--out", "b/start", "--no-twin")
    record = json.loads(near.out)
    assert record["sparsity"]["prior"] == "initialization"
    assert record["complexity"]["kl_nats"] == 0.0
    checked = invoke("verify", "b/start", "--data", "x.npz", "--model", "my_model:build")
    assert checked.code == exits.DONE, checked.out
    assert "the network is the one certified" in checked.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "mlp:8"], "no-bias"),
        (["--model", "cnn:8"], "cnn:8/no-bias"),
        (["--model", "cnn"], "cnn:32,64/no-bias"),
        (["--model", "cnn:8/16"], "cnn:8/16/no-bias"),
        (["--model", "cnn:8/no-bias", "--theorem", "F"], "theorem E"),
        (["--prior", "magic"], "learned:0.2"),
        (["--prior", "learned:2"], "above 0 and below 1"),
        (["--weights", "w"], "--prior zero"),
        (["--weights", "w", "--prior", "learned:0.2"], "not known here"),
        (["--weights", "w", "--prior", "zero", "--initial", "i"], "no use"),
        (["--initial", "i"], "--weights"),
        (["--trials", "9"], "--trials"),
        (["--prior-fraction", "0.3"], "--prior-fraction"),
        (["--predictor", "drawn"], "--predictor"),
        (["--no-rescaling"], "--no-rescaling"),
        (["--passes", "0"], "--passes"),
        (["--pull", "-1"], "--pull"),
    ],
)
def test_flags_that_make_no_sense(place, invoke, words, told):
    done = invoke(*QUICK[:5], *words)
    assert done.code == exits.USAGE, done.err
    assert told in done.error


def test_flags_of_this_mode_do_nothing_in_others(place, invoke):
    for words in (["--theorem", "D"], ["--activity", "0.1"], ["--no-unit-norm"]):
        done = invoke("certify", "--data", "x.npz", *words)
        assert done.code == exits.USAGE
        assert done.error.startswith(f"Error: {words[0]} would change nothing in --mode posterior")
        assert "belongs to --mode sparsity" in done.error


def test_a_layer_that_no_theorem_covers_is_named(place, invoke):
    done = invoke(*QUICK, "--model", "my_model:normalized")
    assert done.code == exits.FAILED
    assert "only linear layers, convolutions, ReLU, max and average pooling" in done.error
    assert "nv.fold_batch_norm" in done.error
    # The command that comes next takes every network.
    assert done.next == "nonvacuous certify --data x.npz --model my_model:normalized --seed 0"
    named = invoke(*QUICK, "--model", "my_model:normalized", "--classes", "a,b,c")
    assert "--classes a,b,c" in named.next


def test_the_help_names_the_mode(place, invoke):
    shown = invoke("certify", "--help")
    for words in ("sparsity", "--theorem", "--unit-norm", "learned:FRACTION"):
        assert words in shown.out


@pytest.mark.slow
def test_killed_runs_end_with_the_same_bytes(place):
    """SIGKILL at several moments, then --resume: no byte of the certificate changes."""

    def start(folder: str) -> Command:
        words = [*QUICK[:5], "--steps", "600", "--no-report", "--out", folder]
        words += ["--resume"] if Path(folder, "config.toml").exists() else []
        return Command(*words, logs=place / "logs")

    assert start("whole/run").code() == 0
    killed = start("killed/run")
    killed.wait_for("training the network")
    killed.process.kill()
    assert killed.code() in (-signal.SIGKILL, 0)
    assert start("killed/run").code() == 0
    for name in ("certificate.json", "split.npz", "prior.safetensors", "weights.safetensors"):
        assert Path("whole/run", name).read_bytes() == Path("killed/run", name).read_bytes(), name
