"""A user's own table and network: what is said of classes, unused arrays, guessing and flags."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

import nonvacuous as nv
from nonvacuous.cli import exits

from .conftest import Invoke

GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(200, 3)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0).astype(int)
HELD_OUT = ["--mode", "holdout", "--unseen", "--no-report", "--model", "mlp:4"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose classes stand in another order than the alphabet's, and fitting weights."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{a},{b},{c},{'bad' if y else 'good'}" for (a, b, c), y in zip(INPUTS, LABELS, strict=True)
    ]
    Path("mine.csv").write_text("\n".join(["a,b,c,label", *rows]))
    network = nv.models.build("mlp:4", (3,), 2, seed=0)
    first, shift, last, bias = network.parameters()
    for parameter in (first, shift, last, bias):
        parameter.data.zero_()
    first.data[0, 0], last.data[1, 0], bias.data[0] = 1.0, 10.0, 0.01
    save_file(network.state_dict(), "w.safetensors")
    return Path("mine.csv")


def test_permuted_classes_are_suspected_and_mended(table: Path, invoke: Invoke) -> None:
    words = ["certify", "--data", "mine.csv", "--weights", "w.safetensors", *HELD_OUT]
    wrong = invoke(*words, "--out", "wrong")
    assert "classes, in the order of the scores: 0 = bad, 1 = good" in wrong.err
    assert "are the labels permuted" in wrong.err and "are the labels permuted" in wrong.out
    right = invoke(*words, "--classes", "good,bad", "--out", "elsewhere/right")
    assert "0 = good, 1 = bad" in right.err and "permuted" not in right.err
    assert right.next == ("nonvacuous verify elsewhere/right --data mine.csv --classes good,bad")
    assert invoke(*right.next.split()[1:]).code == exits.DONE
    assert invoke("verify", "elsewhere/right", "--data", "mine.csv").code != exits.DONE


def test_unused_arrays_and_lacking_classes_are_named(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "x.npz"
    save_file(nv.models.build("mlp:4", (3,), 3, seed=0).state_dict(), tmp_path / "w.safetensors")
    np.savez(
        path, X_train=INPUTS, y_train=np.arange(200) % 3, X_test=INPUTS, y_test=LABELS, site=LABELS
    )
    words = ["certify", "--data", str(path), "--weights", str(tmp_path / "w.safetensors")]
    done = invoke(*words, *HELD_OUT, "--out", str(tmp_path / "run"))
    assert done.code == exits.DONE, done.error
    assert "not used of x: site" in done.err and "no example of 2 in x (test)" in done.err
    assert "not used: site" in invoke("data", str(path)).out


def test_another_column_of_labels_is_named(table: Path, invoke: Invoke) -> None:
    cells = [row.split(",") for row in table.read_text().splitlines()[1:]]
    numbered = [f"{a},{b},{int(c == 'bad')},{c}" for a, b, _, c in cells]
    table.write_text("\n".join(["a,b,y,outcome", *numbered]))
    words = ["certify", "--data", "mine.csv:outcome", "--weights", "w.safetensors", *HELD_OUT]
    done = invoke(*words, "--out", "run")
    assert "inputs: y too" in done.err
    assert nv.Certificate.load("run/certificate.json").data.name == "mine:outcome"


@pytest.mark.slow
def test_a_training_that_learned_nothing_is_said(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "x.npz"
    np.savez(
        path,
        inputs=np.zeros_like(INPUTS) + GENERATOR.normal(size=(200, 1)),
        labels=np.tile([0, 0, 0, 0, 1], 40),
    )
    words = ["--epochs", "1", "--no-twin", "--no-report", "--trials", "500", "--model", "mlp:2"]
    done = invoke("certify", "--data", str(path), *words, "--out", str(tmp_path / "run"))
    assert "always answering “0”" in done.err and "learned nothing" in done.err


@pytest.mark.parametrize(
    ("guess", "meant"),
    [("--lr", "--learning-rate"), ("--delta", "--confidence"), ("--epoch", "--epochs")],
)
def test_guessed_flags(guess: str, meant: str, invoke: Invoke) -> None:
    done = invoke("certify", "--data", "digits", guess, "1")
    assert done.code == exits.USAGE and f"Did you mean {meant}" in done.error


@pytest.mark.slow
def test_every_built_in_network_is_in_the_help(invoke: Invoke) -> None:
    text = invoke("certify", "--help").out
    assert all(name in text for name in nv.models.BUILDERS)


def test_after_a_mismatch_nothing_is_overwritten(table: Path, invoke: Invoke) -> None:
    words = ["certify", "--data", "mine.csv", "--weights", "w.safetensors", *HELD_OUT]
    invoke(*words, "--out", "run")
    Path("run/certificate.json").unlink()
    other = invoke(*words, "--out", "run", "--confidence", "0.9")
    assert other.code == exits.USAGE
    assert "--force" not in other.next and "--out run-2" in other.next
