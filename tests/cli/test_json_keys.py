"""docs/json.md lists the keys that the commands print with --json: these and no others."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.cli.app import app
from nonvacuous.models import build

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
TINY = "--data x.npz --model mlp:8"
RUN = f"certify {TINY} --trials 500 --epochs 2 --prior-epochs 3 --no-report --out runs/r"
SWEEP = """
[command]
run = "cells_json:f"

[grid]
x = [1, 2]
"""
STUDY = (
    f"randomize {TINY} --conditions partial:0.5 --seeds 1 --epochs 2 --permutations 1 "
    "--sign-vectors 1 --no-certificates --out study"
)
#: Each section of the page: the command that prints it, and what must have run before.
SECTIONS: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate a.npz --predictions answers --labels labels",),
    "compare": ("compare x.npz --first labels --second labels --labels labels",),
    "plan": ("plan --target 0.05 --risk 0.02",),
    "monitor": ("monitor x.npz --promise 0.5 --predictions labels --labels labels",),
    "certify": (RUN,),
    "verify": (RUN, "verify runs/r --data x.npz"),
    "report": (RUN, "report runs/r"),
    "report, of several runs": (RUN, "report runs"),
    "sweep": ("sweep f.toml --jobs 1 --out s",),
    "sweep --dry-run": ("sweep f.toml --out s --dry-run",),
    "runs": (RUN, "runs runs"),
    "data": ("data x.npz",),
    "bound --kl": ("bound --risk 0.1 --kl 50 --examples 1000",),
    "bound --log-ratio": ("bound --risk 0.1 --log-ratio 50 --examples 1000",),
    "bound --errors": ("bound --errors 10 --examples 1000",),
    "inspect": (f"inspect {TINY} --weights w.safetensors",),
    "rescale": (f"rescale {TINY} --weights w.safetensors --trials 50 --out new.safetensors",),
    "randomize": (STUDY,),
    "randomize --run": (RUN, "randomize --run runs/r --data x.npz"),
    "measures": (f"measures {TINY} --epochs 2 --only norms",),
    "measures --formulas": ("measures --formulas",),
    "memorize": ("memorize --data x.npz",),
    "interpolate": ("interpolate --data x.npz --out i",),
    "interpolate --estimate": ("interpolate --data x.npz --estimate",),
    "sparsity": ("sparsity --data x.npz --model mlp:8 --steps 20",),
}


def documented() -> dict[str, list[str]]:
    """The keys of each section, in the order of its table."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^## `nonvacuous (.+?)`(.*)$", text, flags=re.MULTILINE)[1:]
    return {
        command + rest: re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
        for command, rest, table in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


@pytest.fixture
def here(place, monkeypatch):
    """The newcomer's folder, with trained weights and a sweep besides."""
    monkeypatch.syspath_prepend(str(place))
    save_file(build("mlp:8", (12,), 3, seed=0).state_dict(), "w.safetensors")
    np.savez("a.npz", labels=np.arange(60) % 3, answers=np.arange(60) % 3)
    Path("cells_json.py").write_text("def f(*, x, seed):\n    return {'square': x * x}\n")
    Path("f.toml").write_text(SWEEP)
    torch.manual_seed(0)
    return place


@pytest.mark.slow_if("randomize")
@pytest.mark.parametrize("section", SECTIONS)
def test_the_keys_are_those_on_the_page(here, invoke, section):
    *before, command = SECTIONS[section]
    for other in before:
        assert invoke(*shlex.split(other)).code == exits.DONE
    done = invoke(*shlex.split(command), "--json")
    assert done.code == exits.DONE, done.err
    keys = documented()[section]
    assert set(json.loads(done.out)) == set(keys) and len(set(keys)) == len(keys)


def test_every_command_is_on_the_page():
    commands = {name for name in app if not name.startswith("-")}
    told = {section.split()[0].rstrip(",") for section in documented()}
    assert told == commands and set(documented()) == {*SECTIONS, "reproduce"}


@pytest.mark.slow
@pytest.mark.slow
def test_a_reproduction_has_its_settings_with_it(here, invoke):
    done = invoke("reproduce", "zhang-linear", "--quick", "--out", "z", "--json")
    assert done.code == exits.DONE, done.err
    assert set(documented()["reproduce"]) <= json.loads(done.out).keys()
