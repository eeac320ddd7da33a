"""Every reproduction on a small setting, against the numbers that it gave before.

The file was written on the study engine and checked against the code before there was one.

``python -m tests.golden.test_studies NAME ...`` writes these anew, or all: do so only where a
study is new or a commit says why a number may change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nonvacuous.cli.study_command import command_of
from nonvacuous.papers import REPRODUCTIONS
from nonvacuous.study.running import run_study

GOLDEN = Path(__file__).with_name("studies.json")
_NETWORKS = {
    "data": "images.npz",
    "crop": 8,
    "batch_size": 20,
    "solo_epochs": 0,
    "networks": {
        "small": {"model": "mlp:6", "epochs": 2, "precision": "float32", "measure_every": 1}
    },
}
_BAD = {"bad_data": "digits", "bad_examples": 100, "bad_test": 50, "bad_gamma": "median:2"}
_SHORT = {"prior": {"steps": 30}, "network": {"steps": 30}}
#: By name, not by family: a new norm changes nothing here.
_NORMS = (
    *("frobenius", "spectral", "one-infinity", "two-one"),
    *("balanced-frobenius", "balanced-spectral"),
)
#: What each is asked here, seconds in all; a study that is not named is asked for its --quick.
CASES: dict[str, dict[str, Any]] = {
    "zhang-linear": {"examples": 10, "weights": 30, "epochs": 300, **_BAD},
    "zhang-kernels": {
        "cases": [{"name": "raw", "data": "digits", "features": "raw", "gamma": "median:2"}],
        "examples": 150,
        **_BAD,
    },
    "zhang-theorem-1": {"data": "digits", "sizes": [40, 90], "depths": [2, 4]},
    "zhang-table-1": _NETWORKS,
    "zhang-figure-1": {**_NETWORKS, "levels": [0.5]},
    "zhang-regularization": _NETWORKS,
    "rescaling-figure-1": {
        "data": "digits",
        "examples": 1437,
        "networks": [[12]],
        "epochs": 3,
        "trials": 400,
        "posterior_scales": [0.05, 0.2, 2],
        "prior_scales": [0.001, 1.0, 9],
    },
    "sparsity-mnist": {
        "data": "digits",
        "parts": {
            "sparsity": [
                {"hidden": 1, "width": 8, "prior": "learned:0.3", "pull": [1.0], "recipe": "short"}
            ]
        },
        "recipes": {"short": _SHORT},
        "theorems": ["E"],
        "activity_examples": 50,
    },
    "measures-study": {
        "width": [6, 12],
        "depth": [1],
        "learning_rate": [0.1],
        "batch_size": [20],
        "weight_decay": [0.0],
        "dropout": [0.0],
        "label_noise": [0.0, 0.2],
        "examples": [40, 80],
        "repetitions": 2,
        "stop_loss": 0.4,
        "epochs": 60,
        "measures": [f"{norm}-{whole}" for norm in _NORMS for whole in ("product", "sum")],
        "draws": 20,
        "information_draws": 10,
        "alone": 0,
    },
}
#: Times, and where things lie.
_NOT_COMPARED = re.compile(r"seconds|per_minute|speedup|\.certificate$|settings\.recipes")


def write_images(folder: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 60), ("test", 30)):
        arrays[f"x_{part}"] = generator.integers(0, 256, (count, 3, 10, 10), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % 3
    np.savez(folder / "images.npz", **arrays)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and word of a result under its path, those that may differ left out."""
    if _NOT_COMPARED.search(path):
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    else:
        yield path, float(f"{value:.6g}") if isinstance(value, float) else value


def found(name: str, folder: Path) -> dict[str, Any]:
    """What is compared: the result, and what page and terminal are made of."""
    study = import_module(f"nonvacuous.papers.{REPRODUCTIONS[name].module}").STUDY
    kind = study.settings
    settings = kind.of(CASES[name]) if name in CASES else kind.quick()
    result = run_study(study, settings, folder / name)
    page = study.page(result, "command")
    return {
        "result": dict(leaves(json.loads(json.dumps(study.record(result))))),
        "page": [section.heading for section in page.sections],
        "tables": [list(table.headings) for table in study.tables(result)],
        "files": sorted(study.files(result, page)),
        "flags": sorted(command_of(study).__signature__.parameters),  # type: ignore[attr-defined]
    }


def test_every_reproduction_is_here() -> None:
    assert set(CASES) <= set(REPRODUCTIONS) == set(json.loads(GOLDEN.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_numbers_and_pages_are_as_before(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path)
    known, now = json.loads(GOLDEN.read_text())[name], found(name, tmp_path)
    for part in ("page", "tables", "files"):
        assert now[part] == known[part]
    assert set(known["flags"]) <= set(now["flags"])
    assert now["result"].keys() == known["result"].keys()
    assert any(path.startswith("settings.") for path in known["result"]), "docs/json.md says so"
    for path, value in known["result"].items():
        # Other processors add in another order; what was trained may differ by a little.
        close = isinstance(value, float) and abs(value) > 1e-6
        same = pytest.approx(value, rel=2e-3) if close else pytest.approx(value, abs=1e-6)
        assert now["result"][path] == (same if isinstance(value, float) else value), path


if __name__ == "__main__":
    import os
    import sys
    import tempfile

    records = json.loads(GOLDEN.read_text())
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        write_images(Path(temporary))
        records |= {name: found(name, Path(temporary)) for name in sys.argv[1:] or REPRODUCTIONS}
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in records.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
