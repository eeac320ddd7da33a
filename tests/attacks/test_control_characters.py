"""Names out of files: none of them moves the cursor, changes a color or forges a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nonvacuous.cli.output import narration_console, result_console, write_error, write_json
from tests.cli.conftest import blobs

#: Escape, a C1 control sequence introducer, delete, carriage return, right-to-left override.
EVIL = "a\x1b[2J\x9b1m\x7f\r\u202eb"
ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def _plain(text: str) -> None:
    assert ACTING.search(text) is None, repr(text)


def test_consoles_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(EVIL)
    table.add_row(EVIL, Text(EVIL))
    for console in (result_console(), narration_console()):
        console.print(EVIL, Text(EVIL), table)
    write_json({"name": EVIL, EVIL: [EVIL]})
    write_error(f"{EVIL}\nNext:  rm", next_command=EVIL)
    shown = capsys.readouterr()
    _plain(shown.out + shown.err)
    assert not [line for line in shown.err.splitlines() if line.startswith("Next:  rm")]


def test_json_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"name": f"{EVIL} é Ω 漢"})
    out = capsys.readouterr().out
    assert json.loads(out)["name"] == f"{EVIL} é Ω 漢" and "é Ω 漢" in out


@pytest.mark.slow
def test_every_command_that_reads_a_folder(
    place: Path, invoke: Any, quick: Callable[..., list[str]]
) -> None:
    inputs, labels = blobs()
    names = np.array([f"{EVIL}{label}" for label in labels])
    source, folder = f"d{EVIL}.npz", f"r{EVIL}"
    np.savez(place / source, inputs=inputs, labels=names, **{f"key{EVIL}": names})
    outcomes = [
        invoke("data", source),
        invoke(*quick("--out", folder, data=source, report=None)),
        invoke("verify", folder, "--data", source),
        invoke("report", folder),
        invoke("runs", "."),
        invoke("runs", ".", "--csv"),
        invoke("runs", ".", "--json"),
        invoke("randomize", "--run", folder),
        invoke("certify", "--data", f"no{EVIL}.npz"),
        invoke("certify", "--data", source, "--model", f"m{EVIL}"),
        invoke("sweep", f"s{EVIL}.toml"),
    ]
    assert [outcome.code for outcome in outcomes[:2]] == [0, 0], outcomes[1].err
    for outcome in outcomes:
        _plain(outcome.out + outcome.err)
    (place / folder / "certificate.json").write_text(json.dumps({EVIL: 1, "format": EVIL}))
    for words in (["verify", folder], ["report", folder], ["runs", "."]):
        outcome = invoke(*words)
        _plain(outcome.out + outcome.err)
