"""Two runs that start at the same time in one folder: one computes, the other leaves it alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import nonvacuous as nv
from nonvacuous.claims import claim_folder, own_folder
from nonvacuous.errors import BadInput, FolderBusy, FolderTaken
from nonvacuous.locks import is_held

QUICK = nv.Posterior(trials=500, twin=False, plain_training={"epochs": 1}, training={"epochs": 1})


def _certify(folder: Path, **settings: Any) -> nv.Certificate:
    digits = nv.data.digits().train
    network = nv.models.build("mlp:8", digits.example_shape, 10, seed=0)
    return nv.certify(
        network,
        digits,
        method=QUICK.changed(trials=200),
        folder=nv.Run(folder=folder, architecture="mlp:8"),
        **settings,
    )


@pytest.mark.parametrize("rival", [{"seed": 1}, {"seed": 1, "force": True}, {"resume": True}])
def test_the_second_start_leaves_the_first_one_whole(tmp_path: Path, rival: dict[str, Any]) -> None:
    folder, outcomes = tmp_path / "run", []

    def second() -> None:
        try:
            outcomes.append(_certify(folder, **rival))
        except BadInput as error:
            outcomes.append(error)

    def progress(phase: str, done: int, total: int, message: str) -> None:
        if not outcomes:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    certificate = _certify(folder, progress=progress)
    assert [type(outcome) for outcome in outcomes] == [FolderBusy]
    assert {"config.toml", "split.npz", "certificate.json"} <= {p.name for p in folder.iterdir()}
    verification = nv.verify(folder / "certificate.json", folder)
    assert verification.passed, verification
    assert certificate.artifacts.keys() >= {"config.toml", "split.npz"}
    assert not is_held(folder)


def test_a_folder_that_another_process_owns_is_not_claimed(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from nonvacuous.claims import own_folder\n"
        "with own_folder(pathlib.Path(sys.argv[1])):\n    print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        with pytest.raises(FolderBusy, match=str(owner.pid)), own_folder(tmp_path):
            pass
        owner.kill()
        owner.wait()
    with own_folder(tmp_path):  # the lock of a dead process counts for nothing
        pass


def test_a_refusal_takes_back_only_what_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FolderTaken), own_folder(tmp_path):
        claim_folder(tmp_path, {"a": 1}, results=(), resume=False, force=False)
        claim_folder(tmp_path, {"a": 1}, results=(), resume=False, force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_lock_planted_for_good_does_not_hold(tmp_path: Path) -> None:
    import os

    planted = tmp_path / ".lock.7"
    planted.write_text('{"machine": "elsewhere", "pid": 1}')
    os.utime(planted, (4e9, 4e9))
    with own_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_what_a_kill_left_is_removed_on_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".posterior.safetensors.4194305.0123.part", ".prior.checkpoint.partial"):
        (folder / name).write_bytes(b"half")
    _certify(folder)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
