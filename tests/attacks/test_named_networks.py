"""A network that the library built is named in its certificate, one that was changed is not."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nonvacuous.certify import certify
from nonvacuous.methods import HeldOut
from nonvacuous.models import build, specification_of
from nonvacuous.verify import verify

from . import forging


def test_verify_needs_no_model_for_a_network_that_the_library_built(tmp_path: Path) -> None:
    network = build("mlp:8", (4,), 3, seed=1)
    method = HeldOut(unseen=True)
    certificate = certify(network, forging.examples(), method=method, folder=tmp_path / "run")
    assert certificate.model.architecture == "mlp:8"
    result = verify(tmp_path / "run", data=forging.examples())
    assert result.verified, str(result)


def test_a_network_that_was_changed_has_no_name_any_more() -> None:
    inputs = forging.examples().inputs
    network = build("mlp:8", (4,), 3, seed=1)
    assert specification_of(network, inputs, 3) == "mlp:8"
    with torch.no_grad():
        next(network.parameters()).add_(1.0)
    assert specification_of(network, inputs, 3) == "mlp:8", "weights are stored, not named"
    changed = next(
        (parent, name)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.ReLU)
    )
    setattr(*changed, nn.Tanh())
    assert specification_of(network, inputs, 3) is None
    assert specification_of(nn.Linear(4, 3), inputs, 3) is None
