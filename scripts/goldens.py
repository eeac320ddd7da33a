"""Write what the commands of promises say about tiny runs.

For tests/golden/test_commands.py, and to compare two versions. Every method with every predictor
and two seeds, as certificates, text and pages, and the help of every command.
Versions, digests and timings are masked.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import save_file

from nonvacuous.cli.app import app, main
from nonvacuous.models import build

SEEDS = ("0", "1")
QUICK = ("--data", "x.npz", "--model", "mlp:8")
PLAIN = ("--data", "x.npz", "--model", "mlp:8/no-bias")
RANDOM = ("--trials", "500")
GIVEN = ("--weights", "w.safetensors")
START = ("--initial", "start.safetensors")
SHORT = ("--prior-epochs", "3")
SPARSE = ("--mode", "sparsity", "--steps", "30", "--passes", "1")

#: Name of a run: the words of `nonvacuous certify`, but for the seed and the folder.
RUNS: dict[str, tuple[str, ...]] = {
    "posterior": (*QUICK, *RANDOM, "--epochs", "2", *SHORT),
    "posterior-drawn": (*QUICK, *RANDOM, "--epochs", "2", *SHORT, "--predictor", "drawn"),
    "posterior-no-prior-data": (
        *(*QUICK, *RANDOM, "--epochs", "2", *SHORT, "--prior-fraction", "0"),
        *("--prior-scale", "0.1", "0.2", "--confidence", "0.9", "--attempts", "2"),
    ),
    "post-hoc": (*QUICK, *RANDOM, *GIVEN, *START, *SHORT),
    "post-hoc-drawn": (*QUICK, *RANDOM, *GIVEN, *START, *SHORT, "--predictor", "drawn"),
    "post-hoc-zero": (*QUICK, *RANDOM, *GIVEN, "--prior", "zero"),
    "post-hoc-plain": (
        *(*QUICK, *RANDOM, *GIVEN, *START, "--no-rescaling", "--no-permutation", "--no-twin"),
        *("--prior-scale", "0.1"),
    ),
    "sparsity": (*PLAIN, *SPARSE),
    "sparsity-initialization": (*PLAIN, *SPARSE, "--prior", "initialization", "--theorem", "D"),
    "sparsity-given": (*QUICK, *SPARSE, *GIVEN, *START, *SHORT),
    "sparsity-given-zero": (*QUICK, *SPARSE, *GIVEN, "--prior", "zero", "--unit-norm"),
    "sparsity-convolutions": (
        *("--data", "images.npz", "--model", "cnn:2/no-bias", *SPARSE, "--no-twin"),
    ),
    "holdout": (*QUICK, *GIVEN, "--mode", "holdout", "--part", "train"),
}
BOUNDS: dict[str, tuple[str, ...]] = {
    "bound": ("--risk", "0.02", "--kl", "5000", "--examples", "60000", "--confidence", "0.95"),
    "bound-drawn": ("--risk", "0.02", "--log-ratio", "500", "--examples", "60000"),
    "bound-errors": ("--errors", "12", "--examples", "1000"),
}
MASKED = ("digest", "software", "seconds")


def write_goldens(folder: Path, *, pages: bool = False) -> None:
    """Everything into the folder; what is there already under these names is overwritten."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in RUNS:
        for seed in SEEDS:
            write_run(folder, name, seed, pages=pages)
    write_words(folder)


def write_run(folder: Path, name: str, seed: str, *, pages: bool = False) -> None:
    """What `certify` and `verify` say of one run, its certificate and its verification."""
    torch.set_num_threads(1)
    full = f"{name}-{seed}"
    run = f"{full}/run"
    words = [*RUNS[name], "--seed", seed, "--out", run]
    data = words[words.index("--data") + 1]
    with _work():
        text = _said("certify", *words)
        text += _said("verify", run, "--data", data)
        text += _said("certify", *words)
        checked = json.loads(_said("verify", run, "--data", data, "--json", err=False))
        certificate = json.loads(Path(run, "certificate.json").read_text())
        page = Path(run, "report.html").read_text()
    _write(folder / f"{full}.txt", text)
    certificate["artifacts"].pop("config.toml", None)
    for file, record in (("certificate", certificate), ("verification", checked)):
        record_text = json.dumps(_masked(record), indent=1, sort_keys=True)
        _write(folder / f"{full}-{file}.json", record_text + "\n")
    if pages:
        _write(folder / f"{full}.html", page)


def write_words(folder: Path) -> None:
    """What the calculator says, and the help of every command."""
    for name, words in BOUNDS.items():
        _write(folder / f"{name}.txt", _said("bound", *words))
        _write(folder / f"{name}.json", _said("bound", *words, "--json", err=False))
    for name in sorted(name for name in app if not name.startswith("-")):
        _write(folder / f"help-{name}.txt", _said(name, "--help"))


def _masked(record: Any) -> Any:
    if isinstance(record, dict):
        return {k: "..." if k in MASKED else _masked(v) for k, v in record.items()}
    return [_masked(entry) for entry in record] if isinstance(record, list) else record


def _said(*words: str, err: bool = True) -> str:
    """What a command writes, and its exit code."""
    out, narration = io.StringIO(), io.StringIO()
    plain = mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    with plain, contextlib.redirect_stdout(out), contextlib.redirect_stderr(narration):
        # The fallback console keeps the width of the time when it was made.
        app.console = Console(width=100, no_color=True)
        try:
            code = main(list(words))
        finally:
            app.console = None
    if not err:
        return out.getvalue()
    said = f"$ nonvacuous {' '.join(words)}\n{out.getvalue()}{narration.getvalue()}"
    return f"{said}exit code {code}\n"


def _write(path: Path, text: str) -> None:
    # Digests of weights differ from one processor to the next.
    text = re.sub(r"\b[0-9a-f]{64}\b", "<digest>", text)
    text = re.sub(r"SHA-256 [0-9a-f]+", "SHA-256 <digest>", text)
    text = re.sub(r"\d+(\.\d+)? seconds", "<seconds>", text)
    text = re.sub(
        r"(torch|numpy|python|Python|nonvacuous) \d+\.\d+\.[\w.+]+", r"\1 <version>", text
    )
    path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _work() -> Iterator[None]:
    """A folder with two data sets and a trained network, as the current one."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        try:
            _prepare()
            yield
        finally:
            os.chdir(before)


def _prepare() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 240)
    centers = generator.normal(size=(3, 16)) * 2
    inputs = (centers[labels] + generator.normal(size=(240, 16))).astype(np.float32)
    np.savez("x.npz", inputs=inputs, labels=labels)
    np.savez("images.npz", inputs=inputs.reshape(-1, 1, 4, 4), labels=labels)
    network = build("mlp:8", (16,), 3, seed=3)
    save_file(network.state_dict(), "start.safetensors")
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        scores = network(torch.from_numpy(inputs))
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels)).backward()
        optimizer.step()
    save_file(network.state_dict(), "w.safetensors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="what is there under these names is overwritten")
    parser.add_argument(
        "--pages", action="store_true", help="the pages too, to compare two versions by diff -r"
    )
    given = parser.parse_args()
    write_goldens(given.folder, pages=given.pages)
