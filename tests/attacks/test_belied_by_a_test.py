"""Promises that the test examples beside them make next to impossible."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import nonvacuous as nv
from nonvacuous.certification.method import Method

METHODS = (
    nv.Posterior(twin=False, trials=1_000),
    nv.Posterior(twin=False, trials=1_000, predictor="drawn"),
    nv.Progressive(batches=3),
)


def groups(count: int = 60, each: int = 8) -> tuple[Tensor, Tensor]:
    """Measurements of a few, whose labels are chance: in every part there are some of each."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 32, generator=generator).repeat(each, 1)
    inputs += 0.05 * torch.randn(inputs.shape, generator=generator)
    labels = torch.randint(0, 2, (count,), generator=generator).repeat(each)
    order = torch.randperm(len(inputs), generator=generator)
    return inputs[order], labels[order]


@pytest.mark.parametrize("method", METHODS)
def test_a_promise_that_a_test_belies_is_doubted(method: Method, tmp_path: Path) -> None:
    data, test = groups(), groups(500, 1)
    test = test[0].flip(0), test[1]
    model, folder = nv.models.build("mlp:64", (32,), 2, seed=0), tmp_path / "runs" / "a"
    certificate = nv.certify(model, data, test=test, method=method, folder=folder)
    doubts = [each for each in certificate.assumptions if each.status == "violated"]
    if method.mode == "posterior" and certificate.predictor == "drawn":
        assert not doubts  # which network was drawn is not among those that were tested
        return
    assert certificate.status == "conditional" and certificate.risk_upper < 0.2
    assert [each.name for each in doubts] == ["the data are what they are said to be"]
    path = folder / "certificate.json"
    train = nv.data.Dataset(nv.data.Examples.of(data), nv.data.Examples.of(test))
    assert not nv.verify(path, folder, data=train, model=model).failures


def test_a_test_like_the_others_belies_nothing() -> None:
    data = groups(900, 1)
    inputs, labels = data[0], (data[0][:, 0] > 0).long()
    certificate = nv.certify(
        nv.models.build("mlp:16", (32,), 2, seed=0),
        (inputs[:300], labels[:300]),
        test=(inputs[300:], labels[300:]),
        method=METHODS[0],
    )
    assert certificate.status == "valid"
