"""A newcomer's folder: a small data set, a model file, and the command run inside it."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nonvacuous.cli.app import main
from nonvacuous.papers.measures import pictures
from nonvacuous.report import plots

MODEL_FILE = """
from torch import nn


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))


def narrow():
    return nn.Sequential(nn.Linear(11, 3))


def four_classes():
    return nn.Sequential(nn.Linear(12, 4))


def normalized():
    return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


class Company(nn.Sequential):
    def forward(self, inputs):
        return super().forward(inputs - inputs.mean(0))


def company():
    return Company(nn.Linear(12, 3))


def broken():
    raise RuntimeError("no luck today")


def nothing():
    return None


def load():
    import numpy

    stored = numpy.load("x.npz")
    return stored["inputs"], stored["labels"]
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one error line; nothing may have been printed as a result."""
        lines = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]

    @property
    def next(self) -> str:
        """The command that the last line says to try."""
        last = self.err.strip().splitlines()[-1]
        assert last.startswith("Next:  "), self.err
        return last.removeprefix("Next:  ")


Invoke = Callable[..., Outcome]


def blobs(examples: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of points in twelve dimensions, easy to tell apart."""
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(3, 12)) * 2
    labels = generator.integers(0, 3, examples)
    inputs = centers[labels] + generator.normal(size=(examples, 12))
    return inputs.astype(np.float32), labels


def furnish(folder: Path) -> None:
    inputs, labels = blobs()
    np.savez(folder / "x.npz", inputs=inputs, labels=labels)
    (folder / "my_model.py").write_text(MODEL_FILE)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with x.npz and my_model.py in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NONVACUOUS_DATA", raising=False)
    furnish(tmp_path)
    sys.modules.pop("my_model", None)
    yield tmp_path
    sys.modules.pop("my_model", None)


#: Pictures by their words: title, description, names in the legend.
_DRAWN: dict[Any, str] = {}


@pytest.fixture(autouse=True)
def pictures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture with the same words is drawn once, whatever its numbers.

    Commands are tested here, and most tests run one that draws as a hundred others do.
    """
    draw = plots.finish

    def finish(figure: Any, axes: Any, title: str, words: str, **options: Any) -> str:
        names = axes.get_legend_handles_labels()[1]
        key = (title, words, *names, *options.items())
        if key not in _DRAWN:
            _DRAWN[key] = draw(figure, axes, title, words, **options)
        return _DRAWN[key]

    for module in (plots, pictures):
        monkeypatch.setattr(module, "finish", finish)


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Run one command and give back its exit code and what it wrote."""

    def call(*words: str | Path) -> Outcome:
        capfd.readouterr()
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


Finished = Callable[..., tuple[Path, Outcome]]


@pytest.fixture(scope="session")
def finished_before(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Commands run once for all tests, each in a folder like ``place``."""
    known: dict[tuple[str, ...], tuple[Path, Outcome]] = {}

    def call(files: dict[str, str], *words: str) -> tuple[Path, Outcome]:
        if words not in known:
            folder, out, err = tmp_path_factory.mktemp("once"), io.StringIO(), io.StringIO()
            furnish(folder)
            for name, text in files.items():
                (folder / name).write_text(text)
            with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
                patch.chdir(folder)
                patch.delenv("NONVACUOUS_DATA", raising=False)
                code = main([*words])
            known[words] = folder, Outcome(code, out.getvalue(), err.getvalue())
        return known[words]

    return call


@pytest.fixture
def once(place: Path, finished_before: Finished) -> Invoke:
    """What a command wrote when the first test asked for it; its files are copied here."""

    def call(*words: str, files: dict[str, str] | None = None) -> Outcome:
        folder, outcome = finished_before(files or {}, *words)
        shutil.copytree(folder, place, dirs_exist_ok=True)
        return outcome

    return call


#: A run of a fraction of a second on the data above.
QUICK = {
    "--data": "x.npz",
    "--model": "mlp:8",
    "--trials": "500",
    "--epochs": "2",
    "--prior-epochs": "30",
    "--no-report": "",
}


@pytest.fixture
def quick() -> Callable[..., list[str]]:
    """The words of a quick run; flags are changed by name, or left out with None."""

    def words(*extra: str, **changes: str | None) -> list[str]:
        flags = QUICK | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
        given = [(flag, value) for flag, value in flags.items() if value is not None]
        return ["certify", *(word for pair in given for word in pair if word), *extra]

    return words
