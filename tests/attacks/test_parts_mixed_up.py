"""A prior trained by the user on the part that the bound counts, under the name of the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.audit.data_checks import SEEN


def noise() -> nv.data.Examples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 20, generator=generator)
    labels = torch.randint(0, 2, (300,), generator=generator)
    return nv.data.Examples(inputs, labels, ("a", "b"), "noise")


def fitted(data: nv.data.Examples, part: np.ndarray) -> nn.Module:
    model = nv.models.build("mlp:64", (20,), 2, seed=0)
    optimizer, own = torch.optim.Adam(model.parameters(), 3e-3), data.subset(part)
    for _ in range(150):
        optimizer.zero_grad()
        loss: Tensor = nn.functional.cross_entropy(model(own.inputs), own.labels)
        loss.backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("mixed_up", [True, False])
def test_a_prior_that_knows_the_other_part_is_doubted(mixed_up: bool) -> None:
    data = noise()
    split = nv.data.split_examples(data, prior_fraction=0.5, seed=0)
    model = fitted(data, split.bound if mixed_up else split.prior)
    prior = nv.priors.learned(model, indices=split.prior)
    method = nv.PostHoc(prior=prior, split=split, trials=1_000, twin=False)
    certificate = nv.certify(model, data, method=method)
    (row,) = [each for each in certificate.assumptions if each.name == SEEN]
    assert (row.effect, certificate.risk_upper < 0.2) == (
        ("conditional", True) if mixed_up else ("none", False)
    )
