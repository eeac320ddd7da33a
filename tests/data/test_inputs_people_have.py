"""Files and objects as people have them, and what is said of those that cannot be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput

INPUTS = np.arange(120, dtype=np.float32).reshape(60, 2)
LABELS = np.arange(60) % 3


def _same(examples: Examples) -> None:
    assert torch.equal(examples.inputs, torch.from_numpy(INPUTS))
    assert examples.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize("column", ["label", "Target", "y"])
@pytest.mark.parametrize("mark", [",", "\t"])
def test_tables_of_text(tmp_path: Path, column: str, mark: str) -> None:
    rows = [mark.join(("a", column, "b"))]
    rows += [mark.join(map(str, (x[0], y, x[1]))) for x, y in zip(INPUTS, LABELS, strict=True)]
    path = tmp_path / ("x.csv" if mark == "," else "x.tsv")
    path.write_text("\n".join(rows))
    _same(nv.data.load(path).train)
    path.write_text("\n".join([*rows, mark.join(("oops", "1", "2"))]))
    with pytest.raises(BadInput, match="row 62"):
        nv.data.load(path)


def test_a_table_without_labels(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="label or labels or y or target or class"):
        nv.data.load(tmp_path / "x.csv")


@pytest.mark.parametrize("keys", [("X", "y"), ("X_train", "y_train"), ("inputs", "labels")])
def test_names_of_arrays(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "x.npz", **{keys[0]: INPUTS, keys[1]: LABELS})
    _same(nv.data.load(tmp_path / "x.npz").train)
    torch.save(
        {keys[0]: torch.from_numpy(INPUTS), keys[1]: torch.from_numpy(LABELS)}, tmp_path / "x.pt"
    )
    _same(nv.data.load(tmp_path / "x.pt").train)


class Hostile:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("executed"),)


def test_tensors_are_read_and_objects_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save((torch.from_numpy(INPUTS), torch.from_numpy(LABELS)), "x.pt")
    _same(nv.data.load("x.pt").train)
    torch.save({"inputs": Hostile()}, "x.pt")
    with pytest.raises(BadInput, match="can run code"):
        nv.data.load("x.pt")
    assert not Path("executed").exists()


def test_objects_in_python() -> None:
    pair = (torch.from_numpy(INPUTS), torch.from_numpy(LABELS))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pair), shuffle=True)
    _same(Examples.of(loader))
    _same(Examples.of(nv.data.Dataset(Examples.of(pair))))
    frames = [SimpleNamespace(to_numpy=lambda array=array: array) for array in (INPUTS, LABELS)]
    _same(Examples.of(tuple(frames)))
