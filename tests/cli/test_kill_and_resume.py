"""A run that is killed again and again ends with the certificate of a run left in peace."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nonvacuous.data import digits

RUN = "import sys; from nonvacuous.cli.app import main; sys.exit(main())"
WORDS = (
    *("certify", "--data", "digits.npz", "--model", "mlp:32", "--trials", "20000"),
    *("--prior-epochs", "20", "--epochs", "10", "--seed", "5"),
)
KILLS = 20
EVIDENCE = ("certificate.json", "config.toml", "split.npz", "prior.safetensors")


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the run in ``folder``, or go on with it, and wait for its first words."""
    # Killed before it claimed its folder, a run has left nothing to go on with.
    resume = ["--resume"] if (folder / "config.toml").exists() else []
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *WORDS, "--out", str(folder), *resume],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # The order of a sum must not depend on how many threads happen to be free.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    assert "mlp:32" in process.stderr.readline()
    return process


@pytest.mark.slow
def test_twenty_kills_change_no_byte_of_the_certificate(tmp_path, monkeypatch):
    # From a file: scikit-learn, where the digits come from, takes a second to load each time.
    data = digits().train
    np.savez(tmp_path / "digits.npz", inputs=data.inputs.numpy(), labels=data.labels.numpy())
    monkeypatch.chdir(tmp_path)
    left_in_peace = tmp_path / "reference" / "run"
    process = start(left_in_peace)
    begun = time.monotonic()
    assert process.wait(timeout=300) == 0
    duration = time.monotonic() - begun

    moments = random.Random(20)
    kills = finished = attempt = 0
    while kills < KILLS or finished < attempt:
        if finished == attempt:
            attempt += 1
        folder = tmp_path / "killed" / f"run{attempt}"
        process = start(folder)
        # Once there were enough kills, the last run may come to its end.
        patience = moments.uniform(0.0, duration) if kills < KILLS else 300.0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
        process.kill()  # does nothing to one that has ended
        code = process.wait(timeout=60)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert process.stderr is not None
        assert code == 0, process.stderr.read()
        finished += 1
        for name in EVIDENCE:
            assert (folder / name).read_bytes() == (left_in_peace / name).read_bytes(), name
        assert (folder / "report.html").exists()
    assert kills == KILLS
