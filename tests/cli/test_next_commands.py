"""After a refusal or a stop, the command that is suggested works, and nothing stands in its way."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import nonvacuous as nv
from nonvacuous import certify
from nonvacuous.cli import exits
from nonvacuous.data import import_function
from nonvacuous.errors import NonvacuousError
from nonvacuous.methods.sparsity.candidate import Trainer
from tests.cli.conftest import blobs

SPARSE = ["certify", "--mode", "sparsity", "--data", "x.npz", "--steps", "20", "--out", "r"]


def words_after(command: str) -> list[str]:
    return shlex.split(command)[1:]


@pytest.fixture
def weights(place: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(import_function("my_model:build")().state_dict(), "net.safetensors")
        save_file(import_function("my_model:build")().state_dict(), "start.safetensors")
    return place


@pytest.mark.slow
def test_a_refused_run_leaves_no_claim_on_its_folder(place, invoke):
    refused = invoke(*SPARSE, "--model", "my_model:normalized")
    assert refused.code == exits.FAILED
    assert not (place / "r").exists()
    corrected = invoke(*SPARSE, "--model", "mlp:8/no-bias")
    assert corrected.code == exits.DONE, corrected.err


def test_what_was_in_the_folder_before_stays_there(place, invoke):
    (place / "r").mkdir()
    (place / "r/.note").write_text("mine")
    assert invoke(*SPARSE, "--model", "my_model:normalized").code == exits.FAILED
    assert [path.name for path in (place / "r").iterdir()] == [".note"]
    assert (place / "r/.note").read_text() == "mine"


@pytest.mark.slow
def test_a_run_that_was_there_survives_a_refused_one(place, invoke, quick):
    assert invoke(*quick("--out", "r")).code == exits.DONE
    before = {path.name: path.read_bytes() for path in (place / "r").iterdir()}
    assert invoke(*SPARSE, "--model", "my_model:normalized", "--resume").code == exits.FAILED
    assert {path.name: path.read_bytes() for path in (place / "r").iterdir()} == before


def test_the_library_gives_a_refused_folder_back_too(place):
    inputs, labels = blobs()
    model = import_function("my_model:normalized")()
    with pytest.raises(NonvacuousError, match="only linear layers"):
        certify(model, (inputs, labels), method=nv.Sparsity(), folder="r")
    assert not (place / "r").exists()


@pytest.mark.slow
def test_a_run_that_computed_something_keeps_its_folder(place, invoke, monkeypatch):
    """Only the second stage refuses: the first one is worth keeping."""

    trained = Trainer.trained

    def refuse(self, stage, *arguments, **settings):
        if stage == "network":
            raise NonvacuousError("not today")
        return trained(self, stage, *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "trained", refuse)
        assert invoke(*SPARSE, "--model", "mlp:8/no-bias").code == exits.FAILED
    assert (place / "r/config.toml").is_file() and (place / "r/sparsity-prior.checkpoint").is_file()
    # With other settings there is no going on, and the suggestion says so.
    other = invoke(*SPARSE, "--model", "mlp:9/no-bias")
    assert other.code == exits.USAGE and "other settings" in other.error
    assert "architecture" in other.error
    assert other.next.endswith("--out r-2 --model mlp:9/no-bias")
    resumed = invoke(*SPARSE, "--model", "mlp:9/no-bias", "--resume")
    assert resumed.code == exits.FAILED and resumed.next == other.next
    # With the same ones there is.
    same = invoke(*SPARSE, "--model", "mlp:8/no-bias")
    assert same.code == exits.USAGE and same.next.endswith("--resume")
    assert invoke(*words_after(same.next)).code == exits.DONE
    # A finished run is better kept.
    finished = invoke(*SPARSE, "--model", "mlp:9/no-bias")
    assert finished.code == exits.USAGE and finished.next.endswith(
        "--out r-2 --model mlp:9/no-bias"
    )
    assert invoke(*words_after(finished.next)).code == exits.DONE


@pytest.mark.slow
def test_there_must_be_something_to_resume(place, invoke, quick):
    done = invoke(*quick("--out", "typo", "--resume"))
    assert done.code == exits.USAGE and "no run to go on with in typo" in done.error
    assert done.next == "nonvacuous " + shlex.join(quick("--out", "typo"))
    assert not (place / "typo").exists()
    assert invoke(*words_after(done.next)).code == exits.DONE


@pytest.mark.parametrize("command", ["certify --mode sparsity", "sparsity"])
def test_too_few_examples_are_told_before_anything_is_trained(place, invoke, command):
    inputs, labels = blobs(60)
    np.savez("few.npz", inputs=inputs, labels=labels)
    done = invoke(*command.split(), "--data", "few.npz", "--out", "r")
    assert done.code == exits.FAILED and "at least 100" in done.error
    assert "training" not in done.err
    assert not (place / "r").exists()


def test_a_prior_that_needs_no_examples_is_suggested(place, invoke):
    inputs, labels = blobs(110)
    np.savez("few.npz", inputs=inputs, labels=labels)
    done = invoke("sparsity", "--data", "few.npz", "--steps", "20")
    assert done.code == exits.FAILED and "leaves 88" in done.error
    assert invoke(*words_after(done.next)).code == exits.DONE


@pytest.mark.slow
@pytest.mark.parametrize("command", ["sparsity", "memorize"])
def test_after_a_stop_the_same_command_comes_next(place, invoke, monkeypatch, command):
    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    work = "sparsity.study" if command == "sparsity" else "memorization.memorize"
    words = [command, "--data", "x.npz", "--out", "my folder"]
    words += ["--steps", "20"] if command == "sparsity" else []
    with monkeypatch.context() as patch:
        patch.setattr(f"nonvacuous.{work}", stop)
        done = invoke(*words)
    assert done.code == exits.INTERRUPTED
    assert done.next == "nonvacuous " + shlex.join([*words, "--resume"])
    assert invoke(*words_after(done.next)).code == exits.DONE


OWN = ["--data", "my_model:load", "--model", "my_model:build"]


def test_a_missing_file_is_told_with_the_one_that_was_meant(weights, invoke):
    done = invoke("sparsity", *OWN, "--weights", "nett.safetensors")
    assert done.code == exits.USAGE and "no file nett.safetensors" in done.error
    assert "examples of" not in done.err
    assert done.next == shlex.join(["nonvacuous", "sparsity", *OWN, "--weights", "net.safetensors"])
    assert invoke(*words_after(done.next)).code == exits.DONE
    nothing_like_it = invoke("sparsity", *OWN, "--weights", "quite-another-thing.safetensors")
    assert nothing_like_it.next == "nonvacuous sparsity --help"
    prior = invoke("sparsity", *OWN, "--weights", "net.safetensors", "--prior", "zzz.safetensors")
    assert prior.code == exits.USAGE and "--prior: there is no file" in prior.error


@pytest.mark.nightly_unless("prior2")
@pytest.mark.slow
@pytest.mark.parametrize("prior", [[], ["--prior", "zero"], ["--prior", "start.safetensors"]])
def test_the_certificate_that_comes_next_is_of_the_same_network(weights, invoke, prior):
    words = ["sparsity", *OWN, "--weights", "net.safetensors", "--out", "s"]
    done = invoke(*words, *prior)
    assert done.code == exits.DONE, done.err
    for expected in (*OWN, "--mode sparsity", "--weights net.safetensors"):
        assert expected in done.next
    # Untrained weights promise nothing, which is a result.
    assert invoke(*words_after(done.next), "--json").code in (exits.DONE, exits.TOO_RISKY)


@pytest.mark.slow
def test_the_certificate_after_a_network_trained_here(place, invoke):
    words = [
        "sparsity",
        "--data",
        "x.npz",
        "--model",
        "mlp:8",
        "--steps",
        "20",
        "--activity",
        "0.01",
    ]
    done = invoke(*words, "--out", "s")
    assert done.code == exits.DONE, done.err
    assert "--model mlp:8/no-bias --activity 0.01" in done.next
    assert invoke(*words_after(done.next), "--steps", "20").code == exits.DONE


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("zero", "zero-mean"), ("initialization", "init")])
def test_a_prior_has_one_name_under_many(weights, invoke, one, other):
    given = ["certify", *OWN, "--weights", "net.safetensors", "--trials", "500", "--no-report"]
    if one == "initialization":
        given += ["--initial", "start.safetensors"]
    first = invoke(*given, "--prior", one, "--out", "a")
    assert first.code == exits.DONE, first.err
    again = invoke(*given, "--prior", other, "--out", "a", "--resume")
    assert again.code == exits.DONE and again.out == first.out
    trained = ["sparsity", "--data", "x.npz", "--model", "mlp:8", "--steps", "20", "--json"]
    records = [json.loads(invoke(*trained, "--prior", name).out) for name in (one, other)]
    assert records[0] == records[1]
    # Where it is part of the settings of a run, too.
    assert invoke(*SPARSE, "--model", "mlp:8/no-bias", "--prior", one).code == exits.DONE
    run = invoke(*SPARSE, "--model", "mlp:8/no-bias", "--prior", other, "--resume")
    assert run.code == exits.DONE and "finished before" in run.err
