"""The guide's way from a table and a network with batch normalization to a number, as written."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from nonvacuous.certificate import Certificate
from nonvacuous.cli import exits
from tests.cli.conftest import Invoke

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "certify.md"
TITLE = "## Your own network, trained on your own table"


#: What the last two commands do by day besides: less.
SHORTER = {
    "from-training": ["--trials", "2000"],
    "trained-here": ["--trials", "2000", "--epochs", "3", "--prior-epochs", "5"],
}


@pytest.mark.slow
@pytest.mark.parametrize("more", [SHORTER, pytest.param({}, marks=pytest.mark.nightly)])
def test_every_command_of_the_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke, more: dict[str, list[str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "train_mine", raising=False)
    section = GUIDE.read_text(encoding="utf-8").partition(TITLE)[2].partition("\n## ")[0]
    script, commands = re.findall(r"```\w+\n(.*?)```", section, flags=re.DOTALL)
    Path("train_mine.py").write_text(script)
    sizes = np.array([1.0, 10.0, 100.0, 1.0, 1000.0])
    noise = np.random.default_rng(0).normal(size=(600, 5))
    labels = np.where(noise[:, 0] + noise[:, 1] > 0, "yes", "no")
    rows = [
        ",".join([*map(str, row), name]) for row, name in zip(noise * sizes, labels, strict=True)
    ]
    Path("mine.csv").write_text("\n".join(["a,b,c,d,e,label", *rows]))
    training, *certifying = [line.removeprefix("$ ") for line in commands.splitlines()]
    monkeypatch.setattr(sys, "argv", training.split()[1:])
    runpy.run_path(sys.argv[0], run_name="__main__")
    for line in certifying:
        done = invoke(*shlex.split(line)[1:], *more.get(line.split()[-1].split("/")[0], []))
        assert done.code == exits.DONE, (line, done.err)
    tested = Certificate.load("tested/mine/certificate.json")
    assert tested.status == "valid" and not tested.is_vacuous and tested.risk_upper < 0.1
