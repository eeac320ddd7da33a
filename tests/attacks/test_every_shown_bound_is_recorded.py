"""Attacked: bounds looked at with another command, so that certify believes to be the first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

import nonvacuous as nv
from nonvacuous.certificate import Certificate
from nonvacuous.cli.app import app

ROW = "earlier certificates on these examples are paid for"
QUICK = ["--model", "mlp:8", "--epochs", "1", "--prior-epochs", "1", "--trials", "500"]
CERTIFY = ["certify", "--data", "digits", *QUICK, "--no-twin", "--no-report"]
SHORT = {"epochs": 1}
SWEEP = """
[command]
run = "certify"
[fixed]
data = "digits"
model = "mlp:8"
epochs = 1
prior_epochs = 1
trials = 500
twin = false
[grid]
seed = [0, 1]
"""
STUDIES = {
    "sparsity": ["sparsity", "--data", "digits", "--model", "mlp:8", "--steps", "20"],
    "measures": ["measures", "--data", "digits", "--model", "mlp:8", "--epochs", "2",
                 "--only", "kl-certificate"],
    "rescale": ["rescale", "--data", "digits", "--model", "mlp:8", "--weights", "w.safetensors",
                "--out", "rescaled.safetensors", "--trials", "500"],
    "randomize": ["randomize", "--data", "digits", "--model", "mlp:8", "--epochs", "1", "--seeds",
                  "1", "--permutations", "1", "--sign-vectors", "1", "--conditions", "partial:0.5"],
    "sweep": ["sweep", "sweep.toml", "--jobs", "1"],
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> int:
    return app(list(words), exit_on_error=False, print_error=False)


def paid(folder: Path) -> bool:
    certificate = Certificate.load(folder / "certificate.json")
    (row,) = (entry for entry in certificate.assumptions if entry.name == ROW)
    return row.effect == "none"


def prepare() -> None:
    data = nv.data.digits().train
    network = nv.models.build("mlp:8", data.example_shape, 10, seed=0)
    save_file({n: t.clone() for n, t in network.state_dict().items()}, "w.safetensors")
    Path("sweep.toml").write_text(SWEEP, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_certify_knows_what_was_looked_at(here: Path, study: str) -> None:
    prepare()
    assert run(*STUDIES[study]) in (0, 1)
    run(*CERTIFY, "--out", "runs/after")
    assert not paid(here / "runs" / "after")


def test_certify_alone_is_paid_for(here: Path) -> None:
    run(*CERTIFY, "--out", "runs/alone")
    assert paid(here / "runs" / "alone")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rescaling-figure-1", ["--quick", "--only", "64-32-10"]),
        ("sparsity-mnist", ["--quick", "--only", "goals"]),
    ],
)
def test_reproductions_are_entered_with_their_share(
    here: Path, name: str, words: list[str]
) -> None:
    assert run("reproduce", name, *words) == 0
    lines = ledger_lines(here / "runs" / "attempts.jsonl")
    assert lines and all(line["paid"] >= 1_000 for line in lines)
    # What they left over is enough for one that does not take all.
    run(*CERTIFY, "--attempts", "2", "--out", "runs/after")
    assert paid(here / "runs" / "after")
    run(*CERTIFY, "--seed", "1", "--out", "runs/greedy")
    assert not paid(here / "runs" / "greedy")


@pytest.mark.slow
def test_looking_at_what_is_no_bound_costs_nothing(here: Path) -> None:
    norms = [word if word != "kl-certificate" else "norms" for word in STUDIES["measures"]]
    assert run(*norms) == 0
    run(*CERTIFY, "--out", "runs/after")
    assert paid(here / "runs" / "after")


@pytest.mark.slow
def test_a_team_keeps_one_ledger(here: Path) -> None:
    team = str(here / "kept" / "team.jsonl")
    run(*STUDIES["sparsity"], "--ledger", team)
    run(*CERTIFY, "--out", "elsewhere/one", "--ledger", team)
    assert not paid(here / "elsewhere" / "one")
    assert not (here / "runs").exists() and not (here / "elsewhere" / "attempts.jsonl").exists()
    # In Python too, with or without a run folder.
    data = nv.data.digits().train
    network = nv.models.build("mlp:8", data.example_shape, 10, seed=0)
    certificate = nv.certify(
        network,
        data,
        method=nv.Posterior(trials=500, twin=False, plain_training=SHORT, training=SHORT),
        seed=4,
        folder=nv.Run(ledger=team),
    )
    assert certificate.status == "conditional"
    assert len(ledger_lines(Path(team))) == 5  # the study, and two that began and ended


@pytest.mark.slow
def test_the_words_on_different_data_are_quoted(here: Path) -> None:
    run(*CERTIFY, "--out", "runs/first")
    data = nv.data.digits().train
    np.savez("other.npz", inputs=(data.inputs * 3).numpy(), labels=data.labels.numpy())
    words = ["certify", "--data", "other.npz", *QUICK, "--no-twin", "--no-report"]
    run(*words, "--out", "runs/declared", "--different-data", "scans of 2031")
    assert paid(here / "runs" / "declared")
    text = (here / "runs" / "declared" / "certificate.json").read_text(encoding="utf-8")
    assert "Declared different data: 'scans of 2031'" in text


def ledger_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
