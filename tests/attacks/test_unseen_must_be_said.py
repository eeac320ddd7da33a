"""A plain test of a network on the examples that it memorized."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import nonvacuous as nv
from nonvacuous.cli import exits
from nonvacuous.cli.app import main
from nonvacuous.data import Dataset, Examples
from nonvacuous.models import build
from nonvacuous.report import view


def memorized() -> tuple[nn.Module, Examples]:
    """500 points with random labels, and a network that looks them up."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(500, 20), torch.randint(0, 2, (500,))
    layer = nn.Linear(500, 2, bias=False)
    first = nn.Linear(20, 500)
    with torch.no_grad():
        first.weight.copy_(50.0 * inputs)
        first.bias.copy_(-45.0 * inputs.square().sum(dim=1))
        layer.weight.copy_(nn.functional.one_hot(labels, 2).T.float())
    return nn.Sequential(first, nn.ReLU(), layer), Examples(inputs, labels, ("0", "1"), "coins")


def test_nobody_said_that_the_examples_are_unseen():
    network, examples = memorized()
    certificate = nv.certify(network, examples, method=nv.HeldOut())
    assert certificate.risk_upper < 0.02
    assert certificate.status == "conditional"
    assert "never saw these examples" in certificate.lines()[3]


def test_what_is_said_is_quoted():
    network, examples = memorized()
    certificate = nv.certify(network, examples, method=nv.HeldOut(unseen=True))
    assert certificate.status == "valid"
    assert "never saw, as declared by the user" in certificate.lines()[0]
    assert "never saw, as declared by the user" in view.render(view.View(certificate))


def test_the_training_part_of_a_file_with_a_test_part():
    network, examples = memorized()
    dataset = Dataset(examples, examples.subset(range(100)))
    certificate = nv.certify(network, dataset.train, method=nv.HeldOut(unseen=True))
    assert certificate.status == "conditional"
    assert "training part" in certificate.lines()[3]
    assert nv.certify(network, dataset.test, method=nv.HeldOut(unseen=True)).status == "valid"


@pytest.mark.parametrize(
    ("flags", "status", "code"),
    [
        (["--part", "train", "--unseen"], "conditional", exits.TOO_RISKY),
        (["--part", "train", "--unseen", "--allow-conditional"], "conditional", exits.DONE),
        ([], "conditional", exits.TOO_RISKY),
        (["--unseen"], "valid", exits.DONE),
    ],
)
def test_the_command(tmp_path, monkeypatch, capfd, flags, status, code):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 400)
    inputs = np.stack([labels - 0.5, generator.normal(size=400)], axis=1).astype(np.float32)
    parts = {"x_train": inputs[:200], "x_test": inputs[200:]}
    np.savez("both.npz", **parts, y_train=labels[:200], y_test=labels[200:])
    network = build("mlp:4", (2,), 2, seed=0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.layers[0].weight[0, 0] = network.layers[2].weight[1, 0] = 1.0
        network.layers[2].bias[0] = 0.1
    save_file(network.state_dict(), "w.safetensors")
    words = ["certify", "--data", "both.npz", "--model", "mlp:4", "--weights", "w.safetensors"]
    words += ["--mode", "holdout", "--max-risk", "0.1", "--no-report", "--json"]
    assert main([*words, *flags]) == code
    assert json.loads(capfd.readouterr().out)["status"] == status
