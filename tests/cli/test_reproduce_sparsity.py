"""``nonvacuous reproduce sparsity-mnist`` on a small copy of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nonvacuous.cli import exits
from nonvacuous.papers.sparsity import study as sparsity_mnist

TOML = """
data = "points.npz"
theorems = ["E"]
activity_examples = 20
[[parts.goals]]
hidden = [1]
width = [4]
prior = ["learned:0.3", "zero"]
pull = [1.0]
recipe = ["short"]
[recipes.short.prior]
steps = 20
[recipes.short.network]
steps = 20
"""
WORDS = ["reproduce", "sparsity-mnist", "--config", "small.toml", "--out", "r"]


@pytest.fixture
def small(place):
    generator = np.random.default_rng(0)
    labels = np.arange(400) % 3
    points = generator.normal(size=(400, 6)) + 3 * np.eye(3, 6)[labels]
    arrays = {"x_train": points[:300].astype(np.float32), "y_train": labels[:300]}
    arrays |= {"x_test": points[300:].astype(np.float32), "y_test": labels[300:]}
    np.savez(place / "points.npz", **arrays)
    (place / "small.toml").write_text(TOML)
    return place


@pytest.mark.slow
def test_one_command_then_resume_and_force(small, invoke, monkeypatch):
    done = invoke(*WORDS, "--only", "*learned*")
    assert done.code == exits.DONE, done.err
    assert "2x4, 30 %, λ 1, short" in done.out and "zero" not in done.out
    for name in ("results.json", "table.md", "report.html", "settings.json"):
        assert (small / "r" / name).is_file()
    refused = invoke(*WORDS)
    assert refused.code == exits.USAGE and "holds a reproduction already" in refused.error
    assert refused.next.endswith("--resume")
    whole = json.loads(invoke(*WORDS, "--resume", "--json").out)
    assert [case["case"]["prior"] for case in whole["cases"]] == ["learned:0.3", "zero"]
    with monkeypatch.context() as patch:
        patch.setattr(sparsity_mnist.training, "train_chain", None)
        assert json.loads(invoke(*WORDS, "--resume", "--json").out) == whole
    again = json.loads(invoke(*WORDS, "--force", "--json").out)
    assert [case["best"] for case in again["cases"]] == [case["best"] for case in whole["cases"]]


def test_a_stop_is_told(small, invoke, monkeypatch):
    def stop(*_arguments, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(sparsity_mnist, "certificates", stop)
    stopped = invoke(*WORDS)
    assert stopped.code not in (exits.DONE, exits.USAGE)
    assert "keeps every network that is finished" in stopped.error
    assert stopped.next.endswith("--resume")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--quick", "--config", "small.toml"], "--quick has settings of its own"),
        (["--config", "nothing.toml"], "cannot be read"),
        (["--config", "small.toml", "--only", "h9-*"], "neither a part"),
        (["--resume", "--force"], "give one of them"),
    ],
)
def test_wrong_flags(small, invoke, flags, words):
    refused = invoke("reproduce", "sparsity-mnist", *flags)
    assert refused.code == exits.USAGE
    assert words in refused.error
