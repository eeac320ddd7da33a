"""Tables with a column of row numbers, sorted by class: the number tells the class, once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.audit.data_checks import INDEPENDENT
from nonvacuous.audit.gathering import numbered
from nonvacuous.data import Examples
from nonvacuous.errors import Refused

RNG = np.random.default_rng(0)


def of(inputs: np.ndarray) -> Examples:
    labels = np.arange(len(inputs)) % 2
    return Examples.of((inputs.astype(np.float32), labels), class_names=("a", "b"))


def test_a_certificate_does_not_rest_on_row_numbers(tmp_path: Path) -> None:
    # As the flowers of 1936 are passed around: Id, measurements (here they say nothing), class.
    classes = np.sort(RNG.integers(0, 3, 300))
    noise = RNG.normal(size=(300, 4)).astype(str)
    rows = [f"{at},{','.join(noise[at - 1])},{classes[at - 1]}" for at in range(1, 301)]
    table = tmp_path / "flowers.csv"
    table.write_text("\n".join(["Id,a,b,c,d,label", *rows]))
    method, folder = nv.Posterior(recipe="tables", twin=False, trials=1_000), tmp_path / "runs"
    with pytest.raises(Refused, match=f"{INDEPENDENT}.* number 1 of each input"):
        nv.certify(
            nv.models.build("mlp:32", (5,), 3, seed=0), table, method=method, folder=folder / "a"
        )
    table.write_text("\n".join(row.partition(",")[2] for row in table.read_text().split("\n")))
    certificate = nv.certify(  # nobody has seen a bound
        nv.models.build("mlp:32", (4,), 3, seed=0), table, method=method, folder=folder / "b"
    )
    assert certificate.status == "valid"


@pytest.mark.parametrize("part", [1.0, 0.8, 0.3])
def test_numbers_are_found_in_any_order_and_where_rows_are_missing(part: float) -> None:
    ids = RNG.permutation(2_000)[: int(part * 2_000)]
    inputs = np.stack([RNG.normal(size=len(ids)), 3.5 * (ids - 7) / 100], axis=1)
    assert numbered(of(inputs)) == 1


def test_independent_draws_number_nothing() -> None:
    digits = nv.data.load("digits").train
    assert numbered(digits) is None
    assert numbered(Examples.of((torch.ones(60, 2), torch.arange(60) % 2))) is None
    for count in (50, 200, 3_000):
        for _ in range(20):
            columns = [
                RNG.uniform(size=(count, 10)),
                RNG.normal(size=(count, 10)),
                RNG.exponential(size=(count, 10)),
                RNG.integers(0, 100 * count, size=(count, 10)),
            ]
            assert numbered(of(np.concatenate(columns, axis=1))) is None
