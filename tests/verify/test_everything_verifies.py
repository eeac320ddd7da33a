"""What was certified honestly is verified, by the network's name or the function that makes it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import nonvacuous as nv
from nonvacuous.models import BUILDERS

DIGITS = nv.data.load("digits").train.subset(torch.arange(200))
SIZES = {"vit": "16,1", "scatter": "2"}
LARGE = {"alexnet", "inception"}  # for images of CIFAR-10
BUILT_IN = [f"{name}:{SIZES.get(name, '8')}" for name in sorted(BUILDERS) if name not in LARGE]
GRID = nv.priors.ScaleGrid((0.1,))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read = nn.LSTM(8, 12, batch_first=True)
        self.answer = nn.Linear(12, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.answer(self.read(inputs[:, 0])[0][:, -1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look = nn.MultiheadAttention(8, 2, batch_first=True)
        self.answer = nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs[:, 0]
        return self.answer((rows + self.look(rows, rows, rows)[0]).flatten(1))


class Noting(nn.Module):
    """Keeps its last activation and a log of all, for whoever wants to plot them."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.answer = nn.Linear(64, 12), nn.Linear(12, 10)
        self.last: Tensor | None = None
        self.log: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.last = self.hidden(inputs.flatten(1)).relu()
        self.log.append(self.last.detach().mean())
        return self.answer(self.last)


class Several(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"logits": super().forward(inputs.flatten(1)), "inputs": inputs}


def weight_normed() -> nn.Module:
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(64, 12))
    return nn.Sequential(nn.Flatten(), normed, nn.ReLU(), nn.Linear(12, 10))


def in_doubles() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10)).double()


OWN = (Recurrent, Attentive, Noting, Several, weight_normed, in_doubles)


def posterior(start: Any, random: str) -> tuple[Any, Any]:
    training = nv.PosteriorTraining(epochs=1)
    plain = nv.PlainTraining(epochs=1)
    scales = (0.001,)
    return start, nv.Posterior(
        random=random, prior_scale=scales, trials=100, training=training, plain_training=plain
    )


def post_hoc(start: Any) -> tuple[Any, Any]:
    initial = start if isinstance(start, nn.Module) else nv.models.seeded(start, seed=0)
    trained = copy.deepcopy(initial).train()
    optimizer = torch.optim.SGD(trained.parameters(), 0.05)
    for _ in range(3):
        outputs = trained(DIGITS.inputs.to(next(trained.parameters()).dtype))
        scores = outputs["logits"] if isinstance(outputs, dict) else outputs
        optimizer.zero_grad()
        cross_entropy(scores, DIGITS.labels).backward()
        optimizer.step()
    prior = nv.priors.at_initialization(initial, grid=GRID)
    return trained.eval(), nv.PostHoc(prior=prior, posterior_scales=(0.01,), trials=100, twin=False)


def progressive(start: Any) -> tuple[Any, Any]:
    return start, nv.Progressive(batches=2, plain_training=nv.PlainTraining(epochs=1))


METHODS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "all": lambda start: posterior(start, "all"),
    "last": lambda start: posterior(start, "last"),
    "post-hoc": post_hoc,
    "progressive": progressive,
}


def verifies(start: Any, method: str, folder: Path, model: Any) -> None:
    network, settings = METHODS[method](start)
    certificate = nv.certify(network, DIGITS, method=settings, folder=folder)
    assert certificate.status == "valid"
    findings = nv.verify(folder, data=DIGITS, trials=50, model=model)
    assert findings.failures == () and findings.verified


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_of_built_in_networks(name: str, method: str, tmp_path: Path) -> None:
    verifies(nv.models.build(name, (1, 8, 8), 10, seed=0), method, tmp_path / "run", None)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", OWN, ids=lambda make: make.__name__)
def test_of_networks_of_ones_own(
    make: Callable[[], nn.Module], method: str, tmp_path: Path
) -> None:
    verifies(make, method, tmp_path / "run", make)


class Remembering(Noting):
    """Answers odd images by what it saw in the call before."""

    def forward(self, inputs: Tensor) -> Tensor:
        before, scores = self.last, super().forward(inputs)
        odd = inputs[:, 0, 2, 1] > 0.5
        if before is not None and bool(odd.any()):
            scores = scores + before.detach().mean()
        return scores


def test_what_one_prediction_in_many_reads_is_not_forgotten() -> None:
    odd = DIGITS.inputs[:, 0, 2, 1] > 0.5
    assert not odd[:2].any() and 0 < int(odd.sum()) < 20
    start, settings = posterior(Remembering, "all")
    with pytest.raises(nv.errors.Unsupported, match="reads 'last'"):
        nv.certify(start, DIGITS, method=settings)
