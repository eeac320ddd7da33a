"""What the audit can refuse without a result is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from tests.attacks.test_starts_that_know import coins, trained


class Never(Exception):
    """Somebody computed."""


def never(*_: Any, **__: Any) -> None:
    raise Never


class Company(nn.Module):
    """Its answer to one example depends on the others beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs - inputs.mean(dim=0))


def copies() -> nv.data.Split:
    """The prior part and the bound part of :func:`doubled` hold the same inputs."""
    first = torch.arange(1000).numpy()
    return nv.data.Split(first, first + 1000, first[:0])


def doubled() -> nv.data.Examples:
    data = coins()
    return nv.data.Examples(
        torch.cat([data.inputs] * 2), torch.cat([data.labels] * 2), data.class_names, "doubled"
    )


CASES = {
    "a start that knows": (lambda: trained(coins(), until=0.0), coins, {}, "its weights have seen"),
    "company": (Company, coins, {}, "each prediction depends on its own example alone"),
    "copies": (
        lambda: nv.models.build("mlp:8", (20,), 10, seed=0),
        doubled,
        {"split": copies()},
        "are copies of examples",
    ),
}


@pytest.mark.slow_if("a start that knows")
@pytest.mark.parametrize("case", list(CASES))
def test_nothing_is_trained_in_vain(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build, data, settings, why = CASES[case]
    model = build()
    for trainer in ("train_posterior", "_train_prior"):
        monkeypatch.setattr(f"nonvacuous.methods.posterior.making.{trainer}", never)
    with pytest.raises(nv.errors.Refused, match=why):
        nv.certify(model, data(), method=nv.Posterior(**settings), folder=tmp_path / "runs" / "run")
    assert not (tmp_path / "runs" / "run").exists(), "nothing is claimed"
    assert not (tmp_path / "runs" / "attempts.jsonl").exists(), "nothing was looked at"


@pytest.mark.slow
def test_no_noise_is_tried_around_a_prior_that_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nonvacuous.methods.post_hoc.making.NoiseSearch", never)
    knowing = trained(coins(), until=0.0)
    method = nv.PostHoc(prior=nv.priors.at_initialization(knowing))
    with pytest.raises(nv.errors.Refused, match="its weights have seen"):
        nv.certify(knowing, coins(), method=method)
