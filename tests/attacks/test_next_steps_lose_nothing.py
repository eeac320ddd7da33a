"""Where an output is in the way, or a file does not fit, the next step never overwrites anything.

One table for all commands that write: what stands there, the words that meet it, and the flag that
names the output.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.data import import_function

DATA = ("--data", "x.npz")
OWN = (*DATA, "--model", "my_model:build")
SEEN = ("predictions", "labels")


def _study(folder: Path) -> None:
    folder.mkdir()
    for name in ("settings.json", "result.json"):
        (folder / name).write_text("{}")


def _run(folder: Path) -> None:
    folder.mkdir()
    keys = ("mode", "split", "examples", "weights")
    (folder / "config.toml").write_text("".join(f'{key} = "other"\n' for key in keys))


def _tested(folder: Path) -> None:
    folder.mkdir()
    (folder / "certificate.json").write_text("{}")
    rows = [f"{i % 2},{i % 3 % 2}" for i in range(60)]
    Path("seen.csv").write_text("\n".join([",".join(SEEN), *rows]))


def _file(path: Path) -> None:
    path.write_text("mine")


#: command: (what stands in the way, its name, the words of the command, the flag of the output)
TAKEN: dict[str, tuple[Callable[[Path], None], str, tuple[str, ...], str]] = {
    "certify": (_run, "o", DATA, "--out"),
    "evaluate": (_tested, "o", ("seen.csv", "--unseen"), "--out"),
    "compare": (
        _file, "o.html", ("x.npz", "--first", "labels", "--second", "labels"), "--page",
    ),
    "plan": (_file, "o.html", ("--target", "0.05", "--risk", "0.03"), "--page"),
    "inspect": (_file, "o.svg", ("--model", "mlp:8", "--example", "12"), "--svg"),
    "rescale": (
        _file, "o.safetensors", (*OWN, "--weights", "w.safetensors"), "--out",
    ),
    "randomize": (_study, "o", DATA, "--out"),
    "memorize": (_study, "o", DATA, "--out"),
    "interpolate": (_study, "o", DATA, "--out"),
    "measures": (_study, "o", (*OWN, "--weights", "w.safetensors"), "--out"),
    "sparsity": (_study, "o", DATA, "--out"),
    "reproduce": (_study, "o", ("zhang-kernels",), "--out"),
}  # fmt: skip


@pytest.fixture
def weights(place: Path) -> Path:
    torch.manual_seed(0)
    save_file(import_function("my_model:build")().state_dict(), "w.safetensors")
    return place


@pytest.mark.parametrize("command", TAKEN)
def test_an_output_in_the_way_is_never_overwritten_by_the_next_step(
    command: str, weights: Path, invoke: Any
) -> None:
    plant, name, words, flag = TAKEN[command]
    plant(weights / name)
    before = _contents(weights / name)
    done = invoke(command, *words, flag, name)
    assert done.code == exits.USAGE, done.err
    assert name in done.error
    step = shlex.split(done.next)
    assert step[:2] == ["nonvacuous", command] and "--force" not in step
    assert "--resume" in step or step[step.index(flag) + 1] != name
    assert _contents(weights / name) == before


def _contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


#: Mistakes that every command may meet: the words, the code, and what the error has to name.
MISTAKES: dict[str, tuple[tuple[str, ...], int, str]] = {
    **{
        f"{command} without its data": ((command, *words), exits.USAGE, "absent.npz")
        for command, words in {
            "certify": ("--data", "absent.npz"),
            "randomize": ("--data", "absent.npz"),
            "memorize": ("--data", "absent.npz"),
            "interpolate": ("--data", "absent.npz"),
            "sparsity": ("--data", "absent.npz"),
            "data": ("show", "absent.npz"),
        }.items()
    },
    "weights of another network": (
        ("certify", *DATA, "--model", "mlp:9", "--weights", "w.safetensors", "--prior", "zero"),
        exits.FAILED,
        "w.safetensors",
    ),
    "a run with other settings": (
        ("certify", *DATA, "--model", "mlp:9", "--out", "o", "--seed", "3"), exits.USAGE, "o",
    ),
    "a run to go on with that is another's": (
        ("certify", *DATA, "--model", "mlp:9", "--out", "o", "--resume"), exits.FAILED, "o",
    ),
    "no certificate": (("verify", "absent"), exits.USAGE, "absent"),
    "no run": (("report", "absent"), exits.USAGE, "absent"),
    "no table": (("evaluate", "absent.csv"), exits.USAGE, "absent.csv"),
    "no sweep": (("sweep", "absent.toml"), exits.USAGE, "absent.toml"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_itself_and_a_next_step_that_loses_nothing(
    mistake: str, weights: Path, invoke: Any
) -> None:
    words, code, named = MISTAKES[mistake]
    _run(weights / "o")
    before = _contents(weights / "o")
    done = invoke(*words)
    assert done.code == code, done.err
    assert named in done.error
    step = shlex.split(done.next)
    assert step[0] == "nonvacuous" and "--force" not in step
    assert _contents(weights / "o") == before


@pytest.mark.parametrize(
    "command", ["memorize", "interpolate", "measures", "sparsity", "randomize"]
)
def test_two_studies_do_not_compute_in_one_folder(
    command: str, weights: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of another process counts, and the study that meets it writes nothing."""
    monkeypatch.setattr("nonvacuous.locks.Lock.take", lambda *_arguments: None)
    done = invoke(command, *TAKEN[command][2], "--out", "o")
    assert done.code == exits.FAILED and "is computing in o" in done.error
    assert not (weights / "o").exists() or not _contents(weights / "o")
    assert "--force" not in done.next


def test_the_table_has_every_command_that_overwrites() -> None:
    helps = Path(__file__).parents[1].joinpath("golden", "commands").glob("help-*.txt")
    force = {path.stem.removeprefix("help-") for path in helps if "--force" in path.read_text()}
    assert force <= TAKEN.keys()
