"""Ctrl-C and the signal TERM: the folder stays usable and the message says how to go on."""

from __future__ import annotations

import os
import signal

import pytest

from nonvacuous.cli import exits
from tests.processes import Command


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)],
)
def test_a_signal_during_training_leaves_a_folder_to_go_on_with(place, invoke, quick, number, code):
    # So long that the signal always finds it at work; --force shows that going on leaves it out.
    words = quick("--out", "my runs/r", "--force", epochs="1000000")
    command = Command(*words, logs=place / "logs")
    command.wait_for("training the posterior")
    os.kill(command.process.pid, number)
    assert command.code() == code
    assert command.out == ""
    rest = command.err.partition("training the posterior")[2]
    assert "Traceback" not in rest
    message, following = rest.strip().splitlines()[-2:]
    assert message.startswith("Error: stopped. my runs/r keeps everything")
    expected = quick("--out", "'my runs/r'", "--resume", epochs="1000000")
    assert following == "Next:  nonvacuous " + " ".join(expected)
    assert (place / "my runs/r/posterior.checkpoint").exists()
    # The folder belongs to that run: nothing else may begin in it unasked.
    assert invoke(*quick("--out", "my runs/r")).code == exits.USAGE


def test_a_stop_before_anything_was_done(monkeypatch, invoke):
    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("nonvacuous.data.load", stop)
    done = invoke("data", "digits")
    assert done.code == exits.INTERRUPTED
    assert done.next == "nonvacuous data digits"
