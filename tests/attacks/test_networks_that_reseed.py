"""Networks that set the global seed in every prediction: what is drawn after it never changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.certification.method import Method
from nonvacuous.errors import Refused


class Reseeding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        torch.manual_seed(0)  # for the same features each time
        return self.layer(inputs + 0.1 * torch.randn(1, 4))


@pytest.mark.parametrize(
    "method", [nv.Progressive(batches=2), nv.Posterior(trials=100), nv.HeldOut(unseen=True)]
)
def test_nothing_is_promised_of_draws_that_are_always_the_same(method: Method) -> None:
    inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    data = inputs, (inputs[:, 0] > 0).long()
    if method.mode == "holdout":  # where nothing is drawn
        assert nv.certify(Reseeding(), data, method=method).status == "valid"
        return
    with pytest.raises(Refused, match="global seed"):
        nv.certify(Reseeding, data, method=method)
