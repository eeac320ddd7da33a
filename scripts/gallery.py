"""Make the reports of the gallery: real ones, in quick mode, computed by the commands
(the refused certificate in Python: its network is no model that the command knows).

Usage: python scripts/gallery.py build/gallery. A report that is there already is kept: `make docs`
makes them once, and `rm -r build/gallery` asks for all again. Only pages are kept, not the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import nonvacuous as nv
from nonvacuous.cli.app import main as command
from nonvacuous.data import Examples, load
from nonvacuous.models import build

BRIEF = ("--data", "digits", "--model", "mlp:64", "--epochs", "2")


def _answers(rows: int, error: float, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, rows)
    answers = np.where(random.random(rows) < error, (labels + 1) % 3, labels)
    lines = [
        f"{a},{y},{'ABC'[i % 3]}" for i, (a, y) in enumerate(zip(answers, labels, strict=True))
    ]
    Path("answers.csv").write_text("\n".join(["prediction,label,site", *lines]) + "\n")


def evaluated() -> str:
    _answers(900, 0.03)
    _run("evaluate", "answers.csv", "--group", "site", "--unseen", "--out", "r")
    return "r/report.html"


def compared() -> str:
    """A new model that is better at two sites, and not shown to be at the third."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(2400):
        label, draw = int(random.integers(0, 3)), float(random.random())
        old = (label + 1) % 3 if draw < 0.09 else label
        new = (label + 2) % 3 if draw < (0.08 if i % 3 == 2 else 0.03) else label
        rows.append(f"{old},{new},{label},{'ABC'[i % 3]}")
    Path("answers.csv").write_text("\n".join(["old,new,label,site", *rows]) + "\n")
    words = ("--first", "old", "--second", "new", "--group", "site", "--page", "compare.html")
    _run("compare", "answers.csv", *words)
    return "compare.html"


def monitored() -> str:
    _answers(900, 0.03)
    _run("evaluate", "answers.csv", "--unseen", "--out", "r")
    random = np.random.default_rng(1)
    errors = np.concatenate([random.random(800) < 0.03, random.random(300) < 0.2]).astype(int)
    Path("labels.csv").write_text("\n".join(["error", *map(str, errors)]) + "\n")
    _run("monitor", "labels.csv", "--promise", "r", "--page", "watch.html", code=3)
    return "watch.html"


def valid() -> str:
    _run("certify", *BRIEF, "--out", "runs/r")
    return "runs/r/report.html"


def conditional() -> str:
    _network()
    _run("certify", *GIVEN, "--mode", "holdout", "--out", "runs/r")  # without --unseen
    return "runs/r/report.html"


def vacuous() -> str:
    _run("certify", *BRIEF, "--prior-fraction", "0", "--trials", "2000", "--out", "runs/r")
    return "runs/r/report.html"


def refused() -> str:
    """A network that keeps its training examples beside its weights, where no prior sees them."""
    data = load("digits").train.subset(np.arange(300))
    method = nv.PostHoc(prior=nv.priors.zero_mean(), trials=2000, rescaling=False)
    nv.report(nv.certify(Lookup(data).eval(), data, method=method), "page.html")
    return "page.html"


def refused_test() -> str:
    """A column of groups that was made by looking at the errors."""
    _answers(900, 0.03)
    header, *rows = Path("answers.csv").read_text().splitlines()
    made = [f"{row},{'easy' if row[0] == row[2] else 'hard'}" for row in rows]
    Path("answers.csv").write_text("\n".join([f"{header},kind", *made]) + "\n")
    _run("evaluate", "answers.csv", "--group", "kind", "--unseen", "--out", "r", code=None)
    return "r/report.html"


def randomized() -> str:
    words = ("--data", "digits", "--model", "mlp:64", "--seeds", "1", "--epochs", "12")
    short = ("--conditions", "partial:0.4", "--permutations", "19", "--sign-vectors", "1")
    _run("randomize", *words, *short, "--no-certificates", "--out", "r")
    return "r/report.html"


def measured() -> str:
    words = ("--data", "digits", "--model", "mlp:32,32", "--examples", "400", "--epochs", "40")
    _run("measures", *words, "--attack", "--gauges", "4", "--without", "expensive", "--out", "r")
    return "r/report.html"


def sparse() -> str:
    _run("sparsity", "--data", "digits", "--steps", "200", "--out", "r")
    return "r/report.html"


def swept() -> str:
    Path("grid.toml").write_text(
        '[command]\nrun = "certify"\n\n[fixed]\ndata = "digits"\nepochs = 1\nprior-epochs = 3\n'
        'trials = 2000\ntwin = false\n\n[grid]\nmodel = ["mlp:16", "mlp:64"]\nseed = [0, 1]\n'
    )
    _run("sweep", "grid.toml", "--out", "sweep", "--jobs", "1")
    _run("report", "sweep")
    return "sweep"


GIVEN = ("--data", "digits", "--model", "mlp:64", "--weights", "w.safetensors")
REPORTS: dict[str, Callable[[], str]] = {
    "evaluate": evaluated,
    "compare": compared,
    "monitor": monitored,
    "certificate-valid": valid,
    "certificate-conditional": conditional,
    "certificate-vacuous": vacuous,
    "certificate-refused": refused,
    "evaluate-refused": refused_test,
    "randomize": randomized,
    "measures": measured,
    "sparsity": sparse,
    "sweep": swept,
}


class Lookup(torch.nn.Module):
    """One weight, and a table of examples in plain attributes: it answers as the nearest do."""

    def __init__(self, examples: Examples) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))
        self.known = examples.inputs.flatten(1)
        self.answers = torch.nn.functional.one_hot(examples.labels, examples.classes).float()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        apart = torch.cdist(inputs.flatten(1), self.known)
        return self.gain * (torch.relu(1.0 - apart) @ self.answers)


def _network() -> None:
    """Trained on the digits, quickly."""
    data = load("digits").train
    network = build("mlp:64", data.example_shape, data.classes, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(data.inputs), data.labels).backward()
        optimizer.step()
    save_file(network.state_dict(), "w.safetensors")


def _run(*words: str, code: int | None = 0) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        ended = command(list(words))
    if code is not None and ended != code:
        sys.exit(f"nonvacuous {' '.join(words)} ended with {ended}:\n{said.getvalue()}")


def make(folder: Path, only: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    before = Path.cwd()
    for name in only or REPORTS:
        target = folder / f"{name}.html"
        if target.exists() or (folder / name).exists():
            continue
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            try:
                page = Path(REPORTS[name]())
                if page.is_dir():  # a site of many pages
                    for file in page.rglob("*"):
                        if file.suffix in (".html", ".css", ".js", ".svg"):
                            kept = folder / name / file.relative_to(page)
                            kept.parent.mkdir(parents=True, exist_ok=True)
                            shutil.copy(file, kept)
                else:
                    shutil.copy(page, target)
            finally:
                os.chdir(before)
        print(f"made {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("only", nargs="*", metavar="report", help=", ".join(REPORTS))
    given = parser.parse_args()
    make(given.folder.resolve(), given.only)
