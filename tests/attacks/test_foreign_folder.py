"""A run folder from a stranger: nothing in it is imported, trusted unread or followed elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nonvacuous.certificate import Certificate, _digest_of
from nonvacuous.claims import own_folder
from nonvacuous.cli import exits
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.files import write_atomically
from nonvacuous.models import rebuild
from nonvacuous.study.folder import SWEEP_FORMAT, SweepFolder, to_json
from nonvacuous.study.sweep import Cell, Sweep
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint
from nonvacuous.training.events import EventLog
from nonvacuous.verification.numbers import Unsealed
from tests.attacks.test_two_starts import _certify

PAYLOAD = """
import pathlib
pathlib.Path("executed").touch()
def load():
    raise SystemExit
build = load
"""


@pytest.fixture
def run(place: Path, invoke: Any, quick: Callable[..., list[str]]) -> Path:
    """A finished run on built-in data with a built-in model."""
    done = invoke(*quick("--out", "c", data="digits"))
    assert done.code == exits.DONE, done.err
    return place / "c"


def _reseal(folder: Path) -> None:
    """What a forger does after changing a file: write all digests anew."""
    path = folder / "certificate.json"
    record = json.loads(path.read_text())
    for name in record["artifacts"]:
        record["artifacts"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    record["digest"] = _digest_of(Unsealed.from_json(json.dumps(record)))
    Certificate.from_json(json.dumps(record)).save(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"), [("source", "payload:load"), ("architecture", "payload:build")]
)
def test_what_a_folder_names_is_not_imported(
    run: Path, place: Path, invoke: Any, key: str, value: str
) -> None:
    (place / "payload.py").write_text(PAYLOAD)
    config = run / "config.toml"
    lines = config.read_text().splitlines()
    config.write_text(
        "\n".join(f'{key} = "{value}"' if line.startswith(f"{key} ") else line for line in lines)
    )
    _reseal(run)
    done = invoke("randomize", "--run", "c")
    assert done.code == exits.USAGE and "repeat it as --" in done.error
    assert value in done.next
    for command in (["verify", "c"], ["report", "c"], ["runs", "."]):
        invoke(*command)
    assert not (place / "executed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.toml", "split.npz", "posterior.safetensors"])
def test_files_other_than_the_sealed_ones_are_not_used(run: Path, invoke: Any, name: str) -> None:
    with (run / name).open("ab") as stream:
        stream.write(b"\n")
    done = invoke("randomize", "--run", "c")
    assert done.code == exits.FAILED and f"{name} in c is not the file" in done.error


def test_a_name_cannot_fill_the_memory() -> None:
    shapes = {"layers.0.weight": (8, 64)}
    for name in (
        "mlp:9999999,9999999",
        "mlp:" + "1," * 100_000 + "1",
        "resnet:99999998",
        "mlp:8,4000000",
    ):
        with pytest.raises(BadInput):
            rebuild(name, (64,), 10, seed=0, shapes=shapes)


@pytest.mark.slow_if(".prior.checkpoint.partial")
@pytest.mark.parametrize(
    "name",
    ["events.jsonl", "split.npz", "config.toml", "prior.checkpoint", ".prior.checkpoint.partial"],
)
def test_resuming_writes_through_no_link(
    place: Path, invoke: Any, quick: Callable[..., list[str]], name: str
) -> None:
    victim = place / "victim.txt"
    stopped = invoke(*quick("--out", "c"))
    assert stopped.code == exits.DONE, stopped.err
    (place / "c" / "certificate.json").unlink()
    original = (place / "c" / name).read_bytes() if (place / "c" / name).exists() else b"precious"
    victim.write_bytes(original)
    (place / "c" / name).unlink(missing_ok=True)
    (place / "c" / name).symlink_to(victim)
    done = invoke(*quick("--out", "c", "--resume"))
    assert victim.read_bytes() == original
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_nothing_outside_is_read(run: Path, place: Path, invoke: Any) -> None:
    secret = place / "secret"
    shutil.copy(run / "posterior.safetensors", secret)
    (run / "posterior.safetensors").unlink()
    (run / "posterior.safetensors").symlink_to(secret)
    done = invoke("verify", "c")
    assert done.code == exits.VERIFICATION_FAILED and "leads out of the folder" in done.err
    shutil.move(run / "certificate.json", place / "elsewhere.json")
    (run / "certificate.json").symlink_to(place / "elsewhere.json")
    assert "leads out of the folder" in invoke("report", "c").error
    listed = json.loads(invoke("runs", ".", "--json").out)["runs"]
    assert [row["state"] for row in listed] == ["invalid"]


@pytest.mark.slow
def test_a_pipe_does_not_make_anybody_wait(run: Path, invoke: Any) -> None:
    for name in ("config.toml", "split.npz", "events.jsonl"):
        (run / name).unlink()
        os.mkfifo(run / name)
    assert invoke("verify", "c").code == exits.VERIFICATION_FAILED
    assert invoke("report", "c").code == exits.FAILED
    assert invoke("runs", ".").code == exits.DONE
    with pytest.raises(BadInput):
        EventLog(run / "events.jsonl").append("prior", 0, {})


def test_temporary_names_cannot_be_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    replace = os.replace

    def seen(source: Any, target: Any) -> None:
        names.append(Path(source).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", seen)
    for _ in range(2):
        save_checkpoint(tmp_path / "a.checkpoint", tensors={}, facts={}, configuration={})
        write_atomically(tmp_path / "b", lambda stream: stream.write(b"x"))
    assert len(set(names)) == 4
    load_checkpoint(tmp_path / "a.checkpoint", configuration={})


@pytest.mark.slow_if("split.npz", "posterior.safetensors")
@pytest.mark.parametrize("name", ["config.toml", "split.npz", "posterior.safetensors"])
def test_a_run_reads_its_files_back_before_it_seals(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    rival = tmp_path / "rival"
    _certify(rival, seed=5, attempts=2)

    def progress(phase: str, done: int, total: int, message: str) -> None:
        if phase == "sampling":
            shutil.copy(rival / name, folder / name)

    with pytest.raises((InvalidCertificate, BadInput)):
        _certify(folder, progress=progress)
    assert not (folder / "certificate.json").exists()


def test_a_cell_with_a_path_for_a_name_is_no_cell(tmp_path: Path) -> None:
    from nonvacuous.study.runs import read_runs

    cell = {"name": "../../elsewhere", "settings": {}, "seed": 0}
    record = {"format": "nonvacuous-sweep/1", "name": "s", "run": "certify", "cells": [cell]}
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    for number, broken in enumerate(('{"format": "nonvacuous-cell/1"}', "[" * 100_000, "3")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "result.json").write_text(broken)
    assert read_runs(tmp_path) == ()


@pytest.mark.parametrize("name", ["cells", "cells/{cell}", "sweep.json"])
def test_a_sweep_computes_through_no_link(tmp_path: Path, name: str) -> None:
    """Cells are run folders: whoever plants a link would have them written elsewhere."""
    sweep = Sweep("s", "m:f", 0, (Cell.of("m:f", {"a": 1}, seed=0),))
    folder, elsewhere = tmp_path / "sweep", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sweep.json").write_bytes(to_json({"format": SWEEP_FORMAT}))
    planted = folder / name.format(cell=sweep.cells[0].name)
    planted.parent.mkdir(parents=True)
    target = elsewhere / "sweep.json" if name == "sweep.json" else elsewhere
    planted.symlink_to(target, target_is_directory=target is elsewhere)
    before = target.read_bytes() if target.is_file() else sorted(os.listdir(target))
    with pytest.raises(BadInput, match=r"a link that leads out of the folder|cannot be read"):
        SweepFolder(folder, claimed=True).open(sweep)
    assert before == (target.read_bytes() if target.is_file() else sorted(os.listdir(target)))


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with own_folder(tmp_path / "link"), pytest.raises(BadInput), own_folder(tmp_path / "real"):
        raise BadInput("owned by the same thread, under both names")
