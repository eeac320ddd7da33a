"""Narration: bars on a terminal, one plain line per phase elsewhere, and never on stdout."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nonvacuous.cli.exits import again, started_with
from nonvacuous.cli.narration import Narration

SCRIPT = """
import sys
from nonvacuous.cli.narration import Narration
with Narration() as narration:
    narration.say("hello")
    narration("prior", 1, 2, "epoch 1 of 2")
    narration("prior", 2, 2, "epoch 2 of 2")
    narration("a \\x1b[2J phase", 1, 1, "done")
"""


def test_plain_lines_without_a_terminal(capsys):
    with Narration() as narration:
        narration.say("hello\n\x1b[2Jthere")
        for done in range(3):
            narration("prior", done, 2, "message")
        narration("[bold]own", 0, 1, "message")
        narration("prior", 2, 2, "message")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "hello ?[2Jthere",
        "training the prior ...",
        "[bold]own ...",
    ]


def on_a_terminal(**environment: str) -> str:
    pty = pytest.importorskip("pty")
    primary, secondary = pty.openpty()
    surroundings = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "CI"}}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.DEVNULL,
        stderr=secondary,
        env=surroundings | {"TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    os.close(secondary)
    chunks = []
    while True:
        try:
            chunk = os.read(primary, 4096)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(primary)
    assert process.wait(timeout=60) == 0
    return b"".join(chunks).decode()


def test_bars_on_a_terminal():
    shown = on_a_terminal()
    assert "hello" in shown
    assert "training the prior" in shown and "100%" in shown and "epoch 2 of 2" in shown
    assert "a ?[2J phase" in shown
    assert "\x1b[38" in shown or "\x1b[32" in shown or "\x1b[35" in shown
    assert " ...\r\n" not in shown


def test_bars_without_color():
    shown = on_a_terminal(NO_COLOR="1")
    assert "training the prior" in shown
    assert "\x1b[32m" not in shown and "\x1b[38" not in shown


@pytest.mark.parametrize(
    ("words", "changes", "expected"),
    [
        (["--device", "cuda", "--seed", "3"], {"--device": "cpu"}, "--device cpu --seed 3"),
        (["--device=cuda"], {"--device": "cpu", "--resume": None}, "--device cpu --resume"),
        (["--seed", "3"], {"--out": "a b"}, "--seed 3 --out 'a b'"),
        (["--resume", "--seed", "3"], {"--resume": None}, "--seed 3 --resume"),
        (["--force", "--seed", "3"], {"--force": ""}, "--seed 3"),
    ],
)
def test_the_same_command_again(words, changes, expected):
    with started_with(["certify", *words]):
        assert again(changes) == f"nonvacuous certify {expected}"
