"""Classes that are ruled out by a score of -1e9: compared with that, all others are equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.audit.probing import close_calls
from nonvacuous.certification.beginning import beginning
from nonvacuous.certification.run_folder import _otherwise
from nonvacuous.errors import Refused

QUICK = nv.Posterior(trials=1_000, twin=False, plain_training=nv.PlainTraining(epochs=20))


def reserved(count: int = 400) -> nv.data.Examples:
    """Two classes that one number tells apart, and one that does not occur yet."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (count,), generator=generator)
    inputs = torch.randn(count, 4, generator=generator)
    inputs[:, 0] += 8.0 * labels - 4.0
    return nv.data.Examples(inputs, labels, ("a", "b", "reserved"), "reserved")


class OfItsBatch(nn.Module):
    """Alone, every example gets the same answer, so half of all answers are wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("ruled_out", torch.tensor([0.0, 0.0, -1e9]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs - inputs.mean(0)) + self.ruled_out


class OfItsOwn(OfItsBatch):
    sign = 1.0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.sign * self.layer(inputs) + self.ruled_out


def test_a_score_that_rules_out_a_class_hides_no_batch_statistics(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="in the company of others"):
        nv.certify(OfItsBatch, reserved(), method=QUICK, folder=tmp_path / "a" / "run")


def test_networks_that_rule_out_a_class_are_certified_and_verified(tmp_path: Path) -> None:
    data, folder = reserved(), tmp_path / "b" / "run"
    certificate = nv.certify(OfItsOwn, data, method=QUICK, folder=folder)
    assert certificate.status == "valid" and certificate.risk_upper < 0.1
    found = nv.verify(folder / "certificate.json", folder, data=data, model=OfItsOwn())
    assert found.verified


def test_no_run_is_gone_on_with_in_another_network_that_rules_out_a_class() -> None:
    network = OfItsOwn()
    before = beginning(network, reserved())
    assert beginning(network, reserved()) == before
    network.sign = -1.0
    after = beginning(network, reserved())
    assert after["layers"] == before["layers"] and _otherwise(before, after)


def test_counts_do_not_hang_on_rounding_where_a_class_is_ruled_out() -> None:
    scores = torch.tensor([[1.0, -1.0, -1e9], [2.0, 2.0 - 1e-6, -1e9], [-1e9, 0.5, -0.5]])
    labels = torch.tensor([0, 0, 1])
    values = nv.zero_one(scores, labels)
    assert close_calls(scores, labels, nv.zero_one, values) == 1
