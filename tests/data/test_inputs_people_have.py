"""Files and objects as people have them, and what is said of those that cannot be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
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
    with pytest.raises(BadInput, match="line 62"):
        nv.data.load(path)


def test_lines_are_those_of_the_file_blank_ones_counted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,label\n1,0\n\n\n2,1\noops,1\n")
    with pytest.raises(BadInput, match=r"x\.csv, line 6: .*oops"):
        nv.data.load(tmp_path / "x.csv")


def test_a_table_without_labels(tmp_path: Path) -> None:
    for written in ("", "nan"):
        (tmp_path / "x.csv").write_text("a,label\n" + f"1,0\n2,{written}\n3,1\n" * 20)
        with pytest.raises(BadInput, match=r"20 labels are missing, the first in line 3\."):
            nv.data.load(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a,y,label\n1,2,3\n")
    with pytest.raises(BadInput, match="y and label are 2, rename all but one"):
        nv.data.load(tmp_path / "x.csv")
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
    frame = pandas.DataFrame({"a": INPUTS[:, 0], "Target": LABELS, "b": INPUTS[:, 1]})
    _same(Examples.of(frame))
    _same(Examples.of((frame[["a", "b"]], frame["Target"])))
    frames = [SimpleNamespace(to_numpy=lambda array=array: array) for array in (INPUTS, LABELS)]
    _same(Examples.of(tuple(frames)))
    with pytest.raises(BadInput, match=r"another name give the pair \(inputs, labels\)"):
        Examples.of(frame.rename(columns={"Target": "outcome"}))


def test_text_in_a_frame() -> None:
    names = pandas.Series(["no", "yes"] * 30)
    examples = Examples.of(pandas.DataFrame({"a": INPUTS[:, 0], "label": names}))
    assert examples.class_names == ("no", "yes")
    assert examples.labels.tolist() == [0, 1] * 30


def test_paths_in_python(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, X=INPUTS, y=LABELS)
    _same(Examples.of(path))
    _same(Examples.of(str(path)))


def test_other_tasks_are_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"regression.*digitize"):
        Examples.of((INPUTS, LABELS + 0.5))
    (tmp_path / "x.csv").write_text("a,y\n" + "".join(f"{i},{i / 7}\n" for i in range(60)))
    with pytest.raises(BadInput, match="regression"):
        nv.data.load(tmp_path / "x.csv")
    several = np.stack([LABELS == 0, LABELS < 2], axis=1).astype(int)
    with pytest.raises(BadInput, match=r"multi-label.*one network for each label"):
        Examples.of((INPUTS, several))
    with pytest.raises(BadInput, match="argmax"):
        Examples.of((INPUTS, np.eye(3)[LABELS]))


def test_a_test_part_may_lack_a_class(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x_train=INPUTS, y_train=LABELS, x_test=INPUTS[:2], y_test=LABELS[:2] * 2)
    dataset = nv.data.load(path)
    assert dataset.test is not None and dataset.test.labels.tolist() == [0, 2]
    (tmp_path / "test.csv").write_text("a,b,y\n1,2,cat\n3,4,fox\n")
    read = Examples.of(tmp_path / "test.csv", class_names=("cat", "dog", "fox"))
    assert read.labels.tolist() == [0, 2]


def test_classes_in_the_order_that_is_given(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'no' if i % 2 else 'yes'}\n" for i in range(60))
    (tmp_path / "x.csv").write_text("a,y\n" + rows)
    assert nv.data.load(tmp_path / "x.csv").train.labels[:2].tolist() == [1, 0]
    dataset = nv.data.load(tmp_path / "x.csv", class_names=("yes", "no"))
    assert dataset.train.labels[:2].tolist() == [0, 1]


def test_unused_arrays_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=INPUTS, y=LABELS, site=LABELS, id=LABELS)
    assert nv.data.load(tmp_path / "x.npz").unused == ("id", "site")
