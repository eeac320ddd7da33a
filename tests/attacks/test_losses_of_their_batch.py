"""Losses that are scaled by the largest one of a batch: alone, each of them would be 1."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import nonvacuous as nv
from nonvacuous.errors import Refused
from nonvacuous.risk.losses import Loss


def scaled(outputs: Tensor, labels: Tensor) -> Tensor:
    nats = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
    return nats / nats.max().clamp_min(1e-9)


class Running:
    """Divides by the largest that there ever was: by extreme scores that the audit tries, too."""

    largest = 1e-9

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        nats = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
        self.largest = max(self.largest, float(nats.max()))
        return nats / self.largest


def own(outputs: Tensor, labels: Tensor) -> Tensor:
    return 1.0 - outputs.softmax(1).gather(1, labels[:, None])[:, 0]


@pytest.mark.parametrize("function", [scaled, Running(), own])
def test_a_loss_is_one_of_its_own_prediction(function: object) -> None:
    inputs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    data, model = (inputs, (inputs[:, 0] > 0).long()), nv.models.build("mlp:8", (5,), 2, seed=0)
    loss = Loss(name="mine", lower=0.0, upper=1.0, function=function)  # type: ignore[arg-type]
    method = nv.Posterior(trials=500, twin=False)
    if function is own:
        assert nv.certify(model, data, method=method, loss=loss).status == "valid"
        return
    with pytest.raises(Refused, match="changes with the others beside it"):
        nv.certify(model, data, method=method, loss=loss)
