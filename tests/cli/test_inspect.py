"""``nonvacuous inspect``: what a person sees of a network's free scales."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from safetensors.torch import save_file

from nonvacuous.cli import exits
from nonvacuous.cli.graph_picture import layered
from nonvacuous.models import build

NETWORKS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.norm(self.inner(x)))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.block = Block()
        self.mix = nn.Linear(4, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        x = self.block(torch.relu(self.stem(x)))
        return self.out(torch.nn.functional.gelu(self.mix(x.mean((2, 3)))))


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def residual():
    return Residual()


def branching():
    return Branching()


def words():
    return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 5), nn.ReLU(),
                         nn.Linear(5, 2))


def smooth():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
"""


@pytest.fixture
def networks(place: Path) -> Path:
    (place / "nets.py").write_text(NETWORKS)
    return place


def test_a_table_of_groups(place, invoke):
    done = invoke("inspect", "--model", "mlp:8,5", "--data", "x.npz")
    assert done.code == exits.DONE
    assert "13 free scales in 2 groups" in done.out
    assert "layers.0.bias [0]" in done.out and "layers.2.weight [1]" in done.out
    assert "Touched by no scale: layers.4.bias." in done.out
    assert "layers.4 (3 channels): it is what the network returns" in done.out
    assert done.next.startswith("nonvacuous inspect --model mlp:8,5")


def test_json_says_the_same(place, invoke):
    done = invoke("inspect", "--model", "mlp:8,5", "--example", "12", "--classes", "3", "--json")
    record = json.loads(done.out)
    assert record["free_scales"] == 13
    assert record["function_error"] < 1e-13
    assert [group["channels"] for group in record["groups"]] == [8, 5]
    first = record["groups"][0]
    assert first["multiplied"][0] == {"tensor": "layers.0.weight", "axes": [0], "power": 1.0}
    assert first["divided"] == [{"tensor": "layers.2.weight", "axes": [1], "power": 1.0}]
    assert "imbalance" not in first
    assert record["no_scale_passes"] == []


def test_what_no_scale_passes_is_named_with_the_remedy(networks, invoke):
    done = invoke("inspect", "--model", "nets:residual", "--example", "1,6,6")
    assert done.code == exits.DONE
    blocked = done.out.partition("Layers that no scale passes:")[2]
    assert "block.norm (aten.batch_norm.default)" in blocked and "Fold it" in blocked
    assert "aten.gelu.default" in blocked and "ReLU" in blocked
    assert done.next.endswith("--fold")
    folded = invoke("inspect", "--model", "nets:residual", "--example", "1,6,6", "--fold")
    assert "batch_norm" not in folded.out
    assert "stem" in folded.out


def test_a_network_without_free_scales(networks, invoke):
    done = invoke("inspect", "--model", "nets:smooth", "--example", "3", "--json")
    record = json.loads(done.out)
    assert record["free_scales"] == 0
    assert record["no_scale_passes"][0]["operator"] == "aten.tanh.default"
    text = invoke("inspect", "--model", "nets:smooth", "--example", "3")
    assert "0 free scales in 0 groups" in text.out


def test_whole_number_inputs(networks, invoke):
    done = invoke("inspect", "--model", "nets:words", "--example", "int:5", "--json")
    assert json.loads(done.out)["free_scales"] > 0
    wrong = invoke("inspect", "--model", "nets:words", "--example", "5")
    assert wrong.code == exits.FAILED
    assert "cannot be called on the example" in wrong.error


def test_weights_add_the_imbalance(place, invoke):
    module = build("mlp:8", (12,), 3, seed=0)
    with_large = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with_large["layers.0.weight"] *= 100
    save_file(with_large, place / "w.safetensors")
    words = ["inspect", "--model", "mlp:8", "--data", "x.npz", "--weights", "w.safetensors"]
    (group,) = json.loads(invoke(*words, "--json").out)["groups"]
    assert group["imbalance"]["median"] > 30
    assert group["imbalance"]["dead"] == 0
    done = invoke(*words)
    assert "in / out" in done.out
    assert done.next.startswith("nonvacuous rescale --model mlp:8 --data x.npz --weights")


def test_a_dead_channel_is_counted(place, invoke):
    module = build("mlp:4", (12,), 3, seed=0)
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state["layers.2.weight"][:, 1] = 0
    save_file(state, place / "w.safetensors")
    words = ["inspect", "--model", "mlp:4", "--data", "x.npz", "--weights", "w.safetensors"]
    (group,) = json.loads(invoke(*words, "--json").out)["groups"]
    assert group["imbalance"]["dead"] == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--model", "mlp:8"], exits.USAGE, "--example"),
        (["--model", "mlp:8", "--data", "x.npz", "--example", "12"], exits.USAGE, "once"),
        (["--model", "mlp:8", "--example", "12,x"], exits.USAGE, "'12,x'"),
        (["--model", "mlp:8", "--example", "12", "--classes", "1"], exits.USAGE, "--classes"),
        (["--model", "mpl:8", "--data", "x.npz"], exits.USAGE, "did you mean mlp?"),
        (["--model", "nope:build", "--example", "3"], exits.USAGE, "nope"),
        (["--model", "my_model:broken", "--example", "3"], exits.FAILED, "no luck today"),
        (["--model", "mlp:8", "--data", "absent.npz"], exits.USAGE, "absent.npz"),
        (["--model", "my_model:narrow", "--data", "x.npz"], exits.FAILED, "cannot take"),
        (
            ["--model", "mlp:8", "--data", "x.npz", "--weights", "absent.safetensors"],
            exits.USAGE,
            "no file absent.safetensors",
        ),
    ],
)
def test_errors_of_a_newcomer(place, invoke, words, code, message):
    done = invoke("inspect", *words)
    assert done.code == code
    assert message in done.error
    assert done.out == ""
    assert "nonvacuous certify" not in done.next


def test_a_decision_on_values_cannot_be_written_down(networks, invoke):
    done = invoke("inspect", "--model", "nets:branching", "--example", "3")
    assert done.code == exits.FAILED
    assert "torch.where" in done.error


# -- the picture ----------------------------------------------------------------------------------


def test_the_picture(networks, invoke):
    words = ["inspect", "--model", "nets:residual", "--example", "1,6,6", "--svg", "net.svg"]
    assert invoke(*words).code == exits.DONE
    text = (networks / "net.svg").read_text()
    root = ElementTree.fromstring(text)
    shown = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("stem", "block.inner", "block.norm", "mix", "out", "λ1", "1/λ1"):
        assert expected in shown
    assert any("no scale passes" in (label or "") for label in shown)
    again = invoke(*words)
    assert again.code == exits.USAGE
    assert "exists already" in again.error
    assert invoke(*words, "--force").code == exits.DONE
    assert (networks / "net.svg").read_text() == text


def test_names_are_escaped_in_the_picture(place, invoke):
    (place / "odd.py").write_text(
        "from torch import nn\n\n\n"
        "def build():\n"
        "    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.ModuleDict({'<b>&': "
        "nn.Linear(4, 2)})['<b>&'])\n"
    )
    words = ["inspect", "--model", "odd:build", "--example", "3", "--svg", "net.svg"]
    assert invoke(*words).code == exits.DONE
    ElementTree.parse(place / "net.svg")
    refused = invoke(*words[:-1], "odd.py/net.svg")
    assert "Name a file or folder that you may write to with --svg" in refused.error


def test_boxes_never_overlap_and_lines_go_down():
    names = [f"n{k}" for k in range(20)]
    edges = [(f"n{k}", f"n{k + 1}") for k in range(19)]
    edges += [("n0", "n5"), ("n2", "n9"), ("n9", "n17"), ("n9", "n12"), ("n3", "n7")]
    found = layered(names, edges)
    row_of = {name: row for name, (_, row) in found.points.items()}
    for start, end in edges:
        assert row_of[start] < row_of[end]
        rows = [row for _, row in found.lines[start, end]]
        assert rows == list(range(row_of[start], row_of[end] + 1))
    by_row: dict[int, list[float]] = {}
    for column, row in found.points.values():
        by_row.setdefault(row, []).append(column)
    for columns in by_row.values():
        ordered = sorted(columns)
        assert all(b - a >= 1 - 1e-9 for a, b in pairwise(ordered))
    assert min(column for column, _ in found.points.values()) >= 0.5 - 1e-9
    assert max(column for column, _ in found.points.values()) <= found.width - 0.5 + 1e-9


def test_crossings_are_avoided():
    names = ["a", "b", "c", "d", "e", "f"]
    edges = [("a", "b"), ("a", "c"), ("b", "e"), ("c", "d"), ("d", "f"), ("e", "f")]
    found = layered(names, edges)
    left = found.points["b"] < found.points["c"]
    assert (found.points["e"] < found.points["d"]) == left
