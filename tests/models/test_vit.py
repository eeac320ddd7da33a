"""The vision transformer: its size, its free scales, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.errors import BadInput


def test_its_size_is_what_it_says() -> None:
    with torch.device("meta"):
        model = nv.models.SmallViT((3, 32, 32), 10, width=128, depth=4)
    assert sum(p.numel() for p in model.parameters()) == 615_306
    assert model.positions.shape == (64, 128) and model.blocks[0].attention.heads == 4


def test_all_but_the_stream_can_be_rescaled() -> None:
    model = nv.models.build("vit:8,2", (1, 8, 8), 3, seed=0).double().eval()
    inputs = torch.rand(4, 1, 8, 8, dtype=torch.float64)
    groups = nv.scale_groups(nv.capture(model, inputs))
    # The stem's first layer 4; each block: two gains 8 + 8, queries 8, values 8, hidden 16; a gain.
    assert groups.size == 4 + 2 * (8 + 8 + 8 + 8 + 16) + 8
    log_scales = np.random.default_rng(0).normal(size=groups.size)
    moved = nv.rescaled(model, groups, log_scales)
    torch.testing.assert_close(moved(inputs), model(inputs), rtol=1e-9, atol=1e-9)
    still = {name for name, entries in groups.exponents.items() if not entries}
    assert {"positions", "stem.2.bias", "output.bias", "blocks.1.down.bias"} <= still


@pytest.mark.parametrize("name", ["vit:64", "vit:64,2,2", "vit:a,b"])
def test_a_name_that_says_something_else(name: str) -> None:
    with pytest.raises(BadInput, match="vit"):
        nv.models.build(name, (1, 8, 8), 3)
