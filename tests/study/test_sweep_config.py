"""The file of a sweep: which cells it means, and what is wrong with it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.errors import BadInput
from nonvacuous.study.sweep import read_sweep, sweep_of

RUN = {"command": {"run": "m:f"}}
NAMES = st.sampled_from(["width", "depth", "rate", "model"])
VALUES = st.one_of(
    st.integers(-5, 5), st.booleans(), st.floats(-2, 2).filter(bool), st.text(max_size=4)
)


def settings_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(cell.settings) for cell in sweep_of(record).cells]


def test_a_file_means_every_combination_and_the_cells_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "my grid.toml"
    path.write_text(
        'seed = 7\n[command]\nrun = "certify"\n[fixed]\nlearning-rate = 0.1\n'
        '[grid]\nmodel = ["a", "b"]\nprior-scale = [[0.1, 1.0], [2.0]]\n'
        '[[cells]]\nmodel = "c"\nseed = 3\nlearning-rate = 0.2\n'
    )
    sweep = read_sweep(path)
    assert (sweep.name, sweep.run, sweep.seed) == ("my-grid", "certify", 7)
    assert [dict(cell.settings) for cell in sweep.cells] == [
        {"learning_rate": 0.1, "model": "a", "prior_scale": [0.1, 1.0]},
        {"learning_rate": 0.1, "model": "a", "prior_scale": [2.0]},
        {"learning_rate": 0.1, "model": "b", "prior_scale": [0.1, 1.0]},
        {"learning_rate": 0.1, "model": "b", "prior_scale": [2.0]},
        {"learning_rate": 0.2, "model": "c"},
    ]
    assert sweep.cells[-1].seed == 3
    assert sweep.cells[0].name.startswith("model=a,prior_scale=0.1-1,learning_rate=0.1-")


def test_settings_alone_are_one_cell() -> None:
    assert settings_of({**RUN, "fixed": {"a": 1}}) == [{"a": 1}]
    assert settings_of(RUN) == [{}]


@pytest.mark.slow
@given(st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=3, unique_by=repr)))
def test_cells_are_the_product_and_know_nothing_of_their_order(grid: dict[str, Any]) -> None:
    cells = sweep_of({**RUN, "grid": grid}).cells
    expected = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    assert [dict(cell.settings) for cell in cells] == expected
    backward = {name: values[::-1] for name, values in reversed(grid.items())}
    again = sweep_of({**RUN, "grid": backward}).cells
    assert {(c.digest, c.seed) for c in cells} == {(c.digest, c.seed) for c in again}
    assert len({cell.name for cell in cells}) == len(cells)


@given(st.text(max_size=200))
def test_names_are_good_names_of_folders(text: str) -> None:
    (cell,) = sweep_of({**RUN, "grid": {"value": [text]}}).cells
    assert cell.name.isascii() and len(cell.name) <= 80
    assert not set(cell.name) & set("/\\:*?\"<>| \n\0'$`&;(){}[]!#~%")
    assert cell.name[0] not in ".-"


def test_seeds_depend_on_the_seed_of_the_sweep_and_on_the_cell() -> None:
    one, two = (
        [c.seed for c in sweep_of({**RUN, "seed": s, "grid": {"a": [1, 2]}}).cells] for s in (0, 1)
    )
    assert len({*one, *two}) == 4
    assert all(0 <= seed < 2**31 for seed in one)
    assert [c.seed for c in sweep_of({**RUN, "grid": {"seed": [4, 5]}}).cells] == [4, 5]


def test_settings_can_be_completed() -> None:
    sweep = sweep_of({**RUN, "grid": {"a": [1, 2]}, "cells": [{"a": 3, "b": 9, "seed": 8}]})
    done = sweep.completed(b=0)
    assert [cell.settings["b"] for cell in done.cells] == [0, 0, 9]
    assert done.cells[2].seed == 8
    assert done.cells[2].digest == sweep.cells[2].digest


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "does not say what to run"),
        ({"command": {"run": 3}}, "does not say what to run"),
        ({"command": {"run": "m:f", "jobs": 2}}, "not jobs"),
        ({**RUN, "model": "x"}, "no model in a sweep"),
        ({**RUN, "seed": -1}, "seed is -1"),
        ({**RUN, "seed": True}, "seed is True"),
        ({**RUN, "grid": {"a": 1}}, "must be a list"),
        ({**RUN, "grid": {"a": []}}, "must be a list"),
        ({**RUN, "grid": {"a": [1]}, "fixed": {"a": 1}}, r"in \[fixed\] and in \[grid\]"),
        ({**RUN, "grid": {"a-b": [1], "a_b": [2]}}, "twice"),
        ({**RUN, "grid": {"a": [1, 1]}}, "the same cell stands here twice"),
        ({**RUN, "grid": {"a": [1]}, "cells": [{"a": 1}]}, "the same cell stands here twice"),
        ({**RUN, "grid": {"a": [float("nan")]}}, "finite"),
        ({**RUN, "grid": {"a": [object()]}}, "a is a object"),
        ({**RUN, "grid": {"seed": ["x"]}}, "seed is 'x'"),
        ({**RUN, "cells": {"a": 1}}, r"\[\[cells\]\]"),
        ({**RUN, "grid": {n: list(range(101)) for n in "abc"}}, "1,030,301 cells"),
    ],
)
def test_what_is_wrong_is_told(record: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        sweep_of(record)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent\.toml cannot be read"):
        read_sweep(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("[command")
    with pytest.raises(BadInput, match=r"broken\.toml is not TOML"):
        read_sweep(tmp_path / "broken.toml")
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(BadInput, match=r"empty\.toml: it does not say what to run"):
        read_sweep(tmp_path / "empty.toml")
