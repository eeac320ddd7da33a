"""A run that is killed again and again ends with the certificate of a run left in peace."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from nonvacuous.data import digits
from tests.processes import PATIENCE, Command

WORDS = (
    *("certify", "--data", "digits.npz", "--model", "mlp:32", "--trials", "20000"),
    *("--prior-epochs", "20", "--epochs", "10", "--seed", "5"),
)
EVIDENCE = ("certificate.json", "config.toml", "split.npz", "prior.safetensors")


def start(folder: Path) -> Command:
    """Start the run in ``folder``, or go on with it."""
    # Killed before it claimed its folder, a run has left nothing to go on with.
    resume = ["--resume"] if (folder / "config.toml").exists() else []
    return Command(*WORDS, "--out", folder, *resume, logs=folder.parent / "logs")


@pytest.mark.slow
@pytest.mark.parametrize("enough", [12, pytest.param(60, marks=pytest.mark.nightly)])
def test_many_kills_change_no_byte_of_the_certificate(tmp_path, monkeypatch, enough):
    # From a file: scikit-learn, where the digits come from, takes a second to load each time.
    data = digits().train
    np.savez(tmp_path / "digits.npz", inputs=data.inputs.numpy(), labels=data.labels.numpy())
    monkeypatch.chdir(tmp_path)
    left_in_peace = tmp_path / "reference" / "run"
    # Kills are spread over a run's own time: what all runs share is imported before.
    assert Command("--version", logs=tmp_path / "logs").code() == 0
    begun = time.monotonic()
    assert start(left_in_peace).code() == 0
    duration = time.monotonic() - begun

    moments = random.Random(20)
    kills = finished = attempt = 0
    while kills < enough or finished < attempt:
        if finished == attempt:
            attempt += 1
        folder = tmp_path / "killed" / f"run{attempt}"
        command = start(folder)
        # Once there were enough kills, the last run may come to its end.
        command.code(moments.uniform(0.0, duration) if kills < enough else PATIENCE)
        command.process.kill()  # does nothing to one that has ended
        if command.code() == -signal.SIGKILL:
            kills += 1
            continue
        assert command.code() == 0, command.err
        finished += 1
        for name in EVIDENCE:
            assert (folder / name).read_bytes() == (left_in_peace / name).read_bytes(), name
        assert (folder / "report.html").exists()
    assert kills == enough
