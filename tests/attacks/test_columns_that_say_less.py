"""Columns that numpy would read as something else than they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.errors import BadInput

WORDS = ["a", "b"] * 50


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([*WORDS[:-1], float("nan")], "missing"),
        ([*WORDS[:-1], None], "missing"),
        ([*WORDS[:-1], 1], "mixes values"),
        (np.ma.masked_array([0, 1] * 50, mask=[1] + [0] * 99), "missing"),
        (np.array([0, 2**64 - 1] * 50, dtype=np.uint64), "give them as words"),
        ([[0, 1], [0]] * 50, "cannot be read"),
        (np.array(["é".encode(), b"b"] * 50), "decode them"),
        ([*WORDS[:-1], "\ud800"], r"half of a character .* in row 99"),
        (np.array([["ab", "c"]] * 99 + [["c", "d\udfff"]]), r"half of a character .* in row 99"),
        ([np.str_("a"), np.nan] * 50, "missing value"),
        ([np.str_("a"), 1] * 50, "mixes values"),
    ],
    ids=[
        "nan",
        "none",
        "a number",
        "masked",
        "large",
        "ragged",
        "bytes",
        "surrogate",
        "surrogates",
        "numpy's words",
        "numpy's words and numbers",
    ],
)
def test_are_refused_in_a_sentence(labels: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        nv.evaluate(predictions=WORDS, labels=labels, unseen=True)


def test_lists_of_several_lengths_are_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (path := tmp_path / "a.jsonl").write_text('{"p": "\\ud800", "y": "a"}\n')
    with pytest.raises(BadInput, match=r"half of a character .* in line 1"):
        nv.evaluate(data=path, predictions="p", labels="y")
    parquet.write_table(arrow.table({"p": [[0, 1], [0]], "y": [0, 0]}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="cannot be read"):
        nv.evaluate(data=tmp_path / "a.parquet", predictions="p", labels="y")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (np.zeros((6, 1), dtype=int), r"as in predictions\[:, 0\], or"),
        (np.ones((6, 1)) / 3, r"as in \(predictions\[:, 0\] > 0.5\).astype\(int\), with 0 instead"),
    ],
)
def test_a_table_of_one_column_is_not_sent_through_argmax(column: np.ndarray, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        nv.evaluate(predictions=column, labels=[0] * 6)


def test_or_read_as_what_they_are() -> None:
    truth = torch.tensor([0.0, 1.0] * 50)
    report = nv.evaluate(predictions=truth.bfloat16(), labels=truth, unseen=True)
    assert report.empirical.errors == 0
    with pytest.raises(BadInput, match="a dictionary"):
        nv.evaluate(predictions=truth, labels=truth, settings="f1")  # type: ignore[arg-type]
