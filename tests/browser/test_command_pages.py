"""Pages that studies write, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nonvacuous.cli.app import main
from nonvacuous.measures.registry import MEASURES
from tests.cli.conftest import blobs
from tests.test_house import script

pytestmark = pytest.mark.browser
access = script("check-access")
STUDIES = {
    "randomize": "--model mlp:24 --conditions partial:0.5 --seeds 1 --epochs 10 --permutations 3 "
    "--sign-vectors 1 --no-certificates",
    "measures": "--model mlp:8 --epochs 40 --attack --gauges 4 --against random-labels",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder, before = tmp_path_factory.mktemp("studies"), Path.cwd()
    inputs, labels = blobs()
    np.savez(folder / "x.npz", inputs=inputs, labels=labels)
    os.chdir(folder)
    try:
        for name, words in STUDIES.items():
            assert main([name, "--data", "x.npz", "--out", name, *words.split()]) == 0
    finally:
        os.chdir(before)
    yield {name: folder / name / "report.html" for name in STUDIES}


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("name", STUDIES)
def test_the_words_of_a_study_can_be_read(visit_file, pages, name: str, width: int) -> None:
    """No mark covers one, none is scaled down too far, no two lie on one another."""
    page = visit_file(pages[name], width=width, height=844).page
    assert page.locator("svg.figure text").count() > 10
    assert page.evaluate(access.COVERED) == []
    assert page.evaluate(access.CRAMPED) == []


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_short_on_a_telephone(visit_file, pages, name: str) -> None:
    page = visit_file(pages[name], width=390, height=844).page
    assert page.evaluate("document.documentElement.scrollHeight") <= 5000
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_no_measure_is_left_out_for_room(visit_file, pages) -> None:
    """Every one, attacked and beside another network."""
    page = visit_file(pages["measures"], width=390, height=844).page
    shown = page.locator("body").text_content() or ""
    assert [name for name in MEASURES if name not in shown] == []
