"""Networks without biases: what sparsity certificates train."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.errors import BadInput
from nonvacuous.models import build


def test_no_bias_leaves_the_weights_alone() -> None:
    plain = build("mlp:5,4/no-bias", (1, 2, 3), 3, seed=0)
    names = [name for name, _ in plain.named_parameters()]
    assert names == ["layers.0.weight", "layers.2.weight", "layers.4.weight"]
    biased = build("mlp:5,4", (1, 2, 3), 3, seed=0)
    assert [tuple(p.shape) for p in plain.parameters()] == [
        tuple(p.shape) for p in biased.parameters() if p.dim() == 2
    ]
    zero = torch.zeros(2, 1, 2, 3)
    assert not plain(zero).any() and bool(biased(zero).any())


def test_convolutions_without_biases() -> None:
    plain = build("cnn:3,4/6/no-bias", (1, 8, 8), 3, seed=0)
    names = [name for name, _ in plain.named_parameters()]
    assert names == ["blocks.0.weight", "blocks.3.weight", "layers.0.weight", "layers.2.weight"]
    biased = build("cnn:3,4/6", (1, 8, 8), 3, seed=0)
    assert [tuple(p.shape) for p in plain.parameters()] == [
        tuple(p.shape) for p in biased.parameters() if p.dim() > 1
    ]
    assert not plain(torch.zeros(2, 1, 8, 8)).any()
    with pytest.raises(BadInput, match="no width"):
        build("cnn:3//no-bias", (1, 8, 8), 3)
