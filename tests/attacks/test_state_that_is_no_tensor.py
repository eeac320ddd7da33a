"""Networks that training changes in more than their tensors, which alone are kept."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.errors import BadInput, Refused

QUICK = nv.PlainTraining(epochs=1)


def clouds(count: int = 300) -> nv.data.Examples:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (count,), generator=generator)
    centers = 2.0 * torch.randn(3, 6, generator=generator)
    inputs = centers[labels] + torch.randn(count, 6, generator=generator)
    return nv.data.Examples(inputs, labels, ("a", "b", "c"), "clouds")


class TwoHeads(nn.Module):
    """Which head answers is a word that the training function changes."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.other, self.answer = nn.Linear(6, 3), nn.Linear(6, 3), "plain"

    def forward(self, inputs: Tensor) -> Tensor:
        return self.plain(inputs) if self.answer == "plain" else self.other(inputs)


def fitted(model: nn.Module, inputs: Tensor, labels: Tensor) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def turned(model: Any, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
    model.answer = "other"
    return fitted(model, inputs, labels)


def left_alone(model: Any, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
    model.note = f"trained with {seed}"  # shapes no prediction
    return fitted(model, inputs, labels)


def hooked(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
    model.register_forward_hook(_negated)
    return fitted(model, inputs, labels)


def _negated(_module: nn.Module, _inputs: object, outputs: Tensor) -> Tensor:
    return -outputs


class RunningScale(nn.Module):
    """A number of Python's that every step of training moves."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last, self.scale = nn.Linear(6, 8), nn.Linear(8, 3), 1.0

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.inner(inputs)
        if self.training:
            self.scale = 0.9 * self.scale + 0.1 * float(hidden.detach().std())
        return self.last(torch.relu(hidden / self.scale - 1.0))


@pytest.mark.parametrize("train", [turned, hooked])
def test_a_checkpoint_that_its_tensors_do_not_give_again(train: Any, tmp_path: Path) -> None:
    method = nv.Progressive(train=train, batches=3)
    with pytest.raises(BadInput, match=r"checkpoint 1 predicts otherwise .*register_buffer"):
        nv.certify(TwoHeads, clouds(), method=method, folder=tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_what_shapes_no_prediction_may_change(tmp_path: Path) -> None:
    method = nv.Progressive(train=left_alone, batches=3)
    certificate = nv.certify(TwoHeads, clouds(), method=method, folder=tmp_path / "run")
    mixture = nv.load_mixture(tmp_path / "run", TwoHeads())
    assert certificate.status == "valid" and len(mixture.networks) == 3


def test_a_function_that_goes_on_from_an_earlier_run() -> None:
    """As in a notebook: the first run is stopped after its first checkpoint."""
    kept: dict[str, nn.Module] = {}

    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        return fitted(kept.setdefault("network", model), inputs, labels)

    def stop(phase: str, *_: object) -> None:
        if phase == "tests":
            raise KeyboardInterrupt

    method = nv.Progressive(train=train, batches=3)
    with pytest.raises(KeyboardInterrupt):
        nv.certify(TwoHeads, clouds(), method=method, progress=stop)
    with pytest.raises(BadInput, match="network of an earlier call"):
        nv.certify(TwoHeads, clouds(), method=method)


def test_a_copy_of_the_given_network_may_be_returned() -> None:
    def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, seed: int) -> nn.Module:
        return fitted(copy.deepcopy(model), inputs, labels)

    method = nv.Progressive(train=train, batches=3)
    assert nv.certify(TwoHeads, clouds(), method=method).status == "valid"


@pytest.mark.parametrize(
    "method",
    [
        nv.Progressive(batches=3, plain_training=QUICK),
        nv.Posterior(twin=False, trials=200, plain_training=QUICK),
        nv.Posterior(twin=False, trials=200, plain_training=QUICK, random="last"),
    ],
)
def test_a_number_that_training_moves(method: Any) -> None:
    with pytest.raises(BadInput, match="no tensor"):
        nv.certify(RunningScale, clouds(), method=method)


class Online(nn.Module):
    """Scales by the largest number that it ever saw: whoever asks a new copy gets other answers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.largest = nn.Linear(6, 3), 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        self.largest = max(self.largest, float(inputs.abs().max()))
        return self.layer(inputs / self.largest)


@pytest.mark.parametrize(
    "method", [nv.HeldOut(unseen=True), nv.Posterior(trials=100), nv.Progressive(batches=2)]
)
def test_what_a_network_remembers_in_python_is_seen(method: Any) -> None:
    model = Online() if method.mode == "holdout" else Online
    with pytest.raises(Refused, match="in the company of others"):
        nv.certify(model, clouds(), method=method)
