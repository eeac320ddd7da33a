"""``nonvacuous certify`` and a newcomer's mistakes: each is named, with the command to try next."""

from __future__ import annotations

import errno

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.models import build
from tests.cli.conftest import blobs


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("my_model:narrow", ["(12,)", "11x3"]),
        ("my_model:four_classes", ["(2, 4)", "one row of 3 scores"]),
        ("my_model:broken", ["RuntimeError", "no luck today"]),
        ("my_model:nothing", ["NoneType", "torch.nn.Module"]),
        ("my_model:absent", ["absent"]),
        ("no_such_module:build", ["no_such_module", "run from the folder"]),
        ("rnn:8", ["rnn", "mlp", "cnn"]),
        ("nlp:8", ["did you mean mlp"]),
        ("mlp:-3", ["mlp", "-3"]),
        ("mlp:64/no_bias", ["written with /no-bias at the end", "mlp:64,32/no-bias."]),
        ("cnn:8", ["(12,)", "mlp"]),
        ("my model", ["my model", "package.module:function"]),
    ],
)
def test_a_model_that_cannot_be_used(place, invoke, quick, model, words):
    done = invoke(*quick(model=model))
    # A name that nothing has was not meant; a network that is there and does not fit is a failure.
    unmeant = ("absent", "no_such", "rnn", "nlp", "mlp:-3", "64/", "my model")
    assert done.code == (exits.USAGE if any(part in model for part in unmeant) else exits.FAILED)
    assert all(word in done.error for word in words), done.error
    assert done.out == "" and "parameters" not in done.err
    assert done.next
    assert not (place / "runs").exists()


def spoiled(case: str) -> dict[str, np.ndarray]:
    inputs, labels = blobs()
    if case == "nan":
        inputs[5, 3] = np.nan
    elif case == "gap":
        labels[labels == 1] = 7
    elif case == "one class":
        labels[:] = 0
    elif case == "few":
        inputs, labels = inputs[:40], labels[:40]
    elif case == "lengths":
        labels = labels[:-1]
    elif case == "keys":
        return {"a": inputs, "b": labels}
    elif case == "objects":
        return {"inputs": np.array([object()]), "labels": labels}
    return {"inputs": inputs, "labels": labels}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nan", ["NaN", "position 5"]),
        ("gap", ["label 1", "without gaps"]),
        ("one class", ["only one class"]),
        ("few", ["40 examples", "at least 50"]),
        ("lengths", ["240 inputs", "239 labels"]),
        ("keys", ["a, b", "inputs and labels"]),
        ("objects", ["bad.npz"]),
    ],
)
@pytest.mark.parametrize("command", ["certify", "data"])
def test_data_that_cannot_be_used(place, invoke, case, words, command):
    np.savez("bad.npz", **spoiled(case))
    done = invoke(*(["certify", "--data"] if command == "certify" else ["data"]), "bad.npz")
    assert done.code == exits.FAILED
    assert all(word in done.error for word in words), done.error
    assert done.next == "nonvacuous data --help"


@pytest.mark.parametrize(
    ("data", "words", "following"),
    [
        ("digit", ["did you mean digits"], "nonvacuous data digits"),
        ("absent.npz", ["absent.npz", "check the spelling"], "nonvacuous data --help"),
        ("my_model:absent", ["absent"], "nonvacuous data --help"),
        ("no_such_module:load", ["cannot be imported"], "nonvacuous data --help"),
    ],
)
def test_data_that_is_not_there(place, invoke, quick, data, words, following):
    done = invoke(*quick(data=data))
    assert done.code == exits.USAGE
    assert all(word in done.error for word in words), done.error
    assert done.next == following


@pytest.mark.parametrize(
    ("data", "words", "following"),
    [
        ("mnist", ["NONVACUOUS_DATA", "--data-dir"], "nonvacuous data digits"),
        ("my_model.py", [".py", ".npz"], "nonvacuous data --help"),
        ("my_model:nothing", ["returned nothing"], "nonvacuous data --help"),
        ("own_fault:load", ["ZeroDivisionError"], "nonvacuous data --help"),
    ],
)
def test_data_that_is_there_and_no_use(place, invoke, quick, data, words, following):
    (place / "own_fault.py").write_text("1 / 0\n")
    done = invoke(*quick(data=data))
    assert done.code == exits.FAILED
    assert all(word in done.error for word in words), done.error
    assert done.next == following


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--weights", "absent.safetensors"], ["absent.safetensors", "save_file"]),
        (["--weights", "pickled.pt"], ["pickled.pt", "not a safetensors file"]),
        (["--weights", "other.safetensors"], ["lacks", "another architecture"]),
        (["--weights", "deeper.safetensors"], ["has an unknown", "layers.4"]),
        (["--weights", "wider.safetensors"], ["layers.0.weight", "(9, 12)", "(8, 12)"]),
        (["--weights", "nan.safetensors"], ["layers.0.bias", "NaN"]),
    ],
)
def test_weights_that_cannot_be_used(place, invoke, quick, flags, words):
    for name, spec in (("other", "my"), ("deeper", "mlp:8,8"), ("wider", "mlp:9")):
        network = torch.nn.Linear(3, 3) if spec == "my" else build(spec, (12,), 3, seed=0)
        save_file(network.state_dict(), f"{name}.safetensors")
    weights = build("mlp:8", (12,), 3, seed=0).state_dict()
    weights["layers.0.bias"][0] = torch.nan
    save_file(weights, "nan.safetensors")
    (place / "pickled.pt").write_bytes(b"\x80\x04K\x01." * 10)
    done = invoke(*quick(epochs=None), *flags, "--prior", "zero-mean")
    assert done.code == (exits.USAGE if "absent" in flags[1] else exits.FAILED)
    assert all(word in done.error for word in words), done.error
    assert done.next == "nonvacuous certify --help"
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--resume", "--force"], "--force"),
        (["--confidence", "95"], "--confidence"),
        (["--confidence", "nan"], "--confidence"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "1.5"], "--seed"),
        (["--attempts", "0"], "--attempts"),
        (["--batch-size", "0"], "--batch-size"),
        (["--learning-rate", "0"], "--learning-rate"),
        (["--prior-learning-rate", "inf"], "--prior-learning-rate"),
        (["--kl-penalty", "-1"], "--kl-penalty"),
        (["--prior-fraction", "1"], "--prior-fraction"),
        (["--prior-fraction", "-0.1"], "--prior-fraction"),
        (["--prior-scale", "0.1", "-2"], "--prior-scale"),
        (["--prior-scale", "0.1", "0.1"], "--prior-scale"),
        (["--max-risk", "12"], "--max-risk"),
        (["--threads", "0"], "--threads"),
        (["--device", "tpu"], "--device"),
        (["--mode", "magic"], "--mode"),
        (["--mode", "post-hoc"], "--weights"),
        (["--mode", "holdout"], "--weights"),
        (["--weights", "w"], "--initial"),
        (["--weights", "w", "--prior", "initialization"], "--init-seed"),
        (["--weights", "w", "--prior", "zero-mean", "--initial", "i"], "--initial"),
        (["--weights", "w", "--mode", "posterior"], "--pretrained"),
        (["--weights", "w", "--prior", "zero-mean", "--kl-penalty", "2"], "--kl-penalty"),
        (["--weights", "w", "--mode", "holdout", "--predictor", "drawn"], "--predictor"),
        (["--weights", "w", "--mode", "holdout", "--prior", "zero-mean"], "--prior"),
        (["--weights", "w", "--mode", "holdout", "--prior-fraction", "0.3"], "--prior-fraction"),
        (["--weights", "w", "--mode", "holdout", "--trials", "9"], "--trials"),
        (["--pretrained", "elsewhere"], "--weights"),
        (["--prior", "zero-mean"], "--prior"),
        (["--initial", "i"], "--initial"),
        (["--part", "test"], "--part"),
        (["--no-rescaling"], "--no-rescaling"),
        (["--no-translation"], "--no-translation"),
        (["--no-permutation"], "--no-permutation"),
        (
            ["--weights", "w", "--prior", "zero-mean", "--predictor", "drawn", "--no-permutation"],
            "--no-permutation",
        ),
        (["--no-such-flag"], "--no-such-flag"),
    ],
)
def test_flags_that_make_no_sense(place, invoke, flags, word):
    done = invoke("certify", "--data", "x.npz", "--model", "mlp:8", *flags)
    assert done.code == exits.USAGE, done.err
    assert word in done.error
    assert done.next == "nonvacuous certify --help"
    assert done.out == ""
    assert not (place / "runs").exists()


def test_a_missing_test_part_is_a_usage_error(place, invoke):
    save_file(build("mlp:8", (12,), 3, seed=0).state_dict(), "w.safetensors")
    done = invoke(
        *("certify", "--data", "x.npz", "--model", "mlp:8", "--weights", "w.safetensors"),
        *("--mode", "holdout", "--part", "test"),
    )
    assert done.code == exits.USAGE
    assert "no test part" in done.error


@pytest.mark.slow
def test_a_plain_test_on_training_data_must_be_meant(place, invoke):
    save_file(build("mlp:8", (12,), 3, seed=0).state_dict(), "w.safetensors")
    words = ("certify", "--data", "x.npz", "--model", "mlp:8", "--weights", "w.safetensors")
    done = invoke(*words, "--mode", "holdout", "--out", "r")
    assert done.code == exits.USAGE and "never saw them" in done.error
    assert done.next.endswith("--unseen") and not (place / "r").exists()
    meant = invoke(*words, "--mode", "holdout", "--out", "r", "--unseen")
    assert meant.code == exits.DONE
    assert "what is not random was fixed before" in meant.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_gpu_that_is_not_there(place, invoke, quick):
    done = invoke(*quick("--device=cuda", "--seed", "3"))
    assert done.code == exits.FAILED
    assert "no CUDA device" in done.error
    assert "--device cpu" in done.next and "--seed 3" in done.next


def test_a_folder_that_cannot_be_made(place, invoke, quick):
    done = invoke(*quick("--out", "x.npz/run"))
    assert done.code == exits.FAILED
    assert "Not a directory" in done.error and "--out" in done.error
    assert "--out FOLDER" in done.next


def test_a_full_disk_says_how_to_go_on(place, invoke, quick, monkeypatch):
    calls = []

    def full(*_arguments, **_settings):
        calls.append(1)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("nonvacuous.training.loop.save_checkpoint", full)
        done = invoke(*quick("--out", "r"))
    assert done.code == exits.FAILED
    assert "is full" in done.error
    assert done.next.endswith("--resume")
    # What the message says is true.
    assert invoke(*quick("--out", "r", "--resume")).code == exits.DONE


def test_memory_that_runs_out_is_told(place, invoke, quick, monkeypatch):
    def exhausted(*_arguments, **_settings):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("nonvacuous.cli.certify_run.certify", exhausted)
    done = invoke(*quick())
    assert done.code == exits.FAILED
    assert "--batch-size" in done.error


def test_a_bug_keeps_its_traceback(place, invoke, quick, monkeypatch):
    def buggy(*_arguments, **_settings):
        raise RuntimeError("a bug")

    monkeypatch.setattr("nonvacuous.cli.certify_run.certify", buggy)
    with pytest.raises(RuntimeError, match="a bug"):
        invoke(*quick())
