"""Columns that numpy would read as something else than they are."""

from __future__ import annotations

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
    ],
    ids=["nan", "none", "a number", "masked", "large", "ragged", "bytes"],
)
def test_are_refused_in_a_sentence(labels: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        nv.evaluate(predictions=WORDS, labels=labels, unseen=True)


def test_or_read_as_what_they_are() -> None:
    truth = torch.tensor([0.0, 1.0] * 50)
    report = nv.evaluate(predictions=truth.bfloat16(), labels=truth, unseen=True)
    assert report.empirical.errors == 0
    with pytest.raises(BadInput, match="a dictionary"):
        nv.evaluate(predictions=truth, labels=truth, settings="f1")  # type: ignore[arg-type]
