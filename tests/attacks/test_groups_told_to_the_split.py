"""Groups that the user names where the examples are split: the promise counts each example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nonvacuous as nv


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("copied", [True, False])
def test_groups_of_a_split_are_declared(grouped: bool, copied: bool, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 6, generator=generator)
    inputs[1] = inputs[0] if copied else inputs[1]
    data = nv.data.Examples(inputs, (inputs[:, 0] > 0).long(), ("a", "b"), "patients")
    groups = np.arange(300) // 5 if grouped else np.arange(300)
    split = nv.data.split_examples(data, prior_fraction=0.5, seed=0, groups=groups)
    certificate = nv.certify(
        nv.models.build("mlp:8", (6,), 2, seed=0),
        data,
        method=nv.Posterior(split=split, twin=False, trials=500),
        folder=tmp_path / "runs" / "a",
    )
    (row,) = (a for a in certificate.assumptions if a.name == "examples do not come in groups")
    assert row.effect == ("conditional" if grouped else "none")
    folder = tmp_path / "runs" / "a"
    assert not nv.verify(folder / "certificate.json", folder, data=data).failures
