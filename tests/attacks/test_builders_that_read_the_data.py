"""Functions that build a network out of the examples that the promise counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.audit.data_checks import START
from nonvacuous.audit.holding import held_examples
from nonvacuous.errors import Refused


def clouds(width: int = 12, count: int = 400, seed: int = 0) -> nv.data.Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    inputs = 2.0 * torch.randn(3, width, generator=torch.Generator().manual_seed(9))[labels]
    inputs = inputs + torch.randn(count, width, generator=generator)
    return nv.data.Examples(inputs, labels, ("a", "b", "c"), "clouds")


DATA = clouds()


class Near(nn.Module):
    """Answers near its centers, and says nothing elsewhere."""

    def __init__(self, centers: Tensor, *, kept: str = "buffer") -> None:
        super().__init__()
        width = centers.shape[1]
        self.kept, self.last = kept, nn.Linear(width, 3)
        if kept == "buffer":
            self.register_buffer("centers", centers)
        elif kept == "parameter":
            self.centers = nn.Parameter(centers.clone())
        elif kept == "columns":
            self.register_buffer("centers", centers.T.contiguous())
        else:
            self.centers = centers

    def forward(self, inputs: Tensor) -> Tensor:
        centers = self.centers.T if self.kept == "columns" else self.centers
        near = torch.exp(-torch.cdist(inputs, centers).square() / 8.0).amax(1, keepdim=True)
        return self.last(inputs) * near


def some_of(examples: nv.data.Examples, **kept: str) -> Near:
    """The seed decides which examples are held."""
    return Near(examples.inputs[torch.randperm(len(examples))[:100]], **kept)


QUICK = nv.Posterior(
    twin=False,
    trials=200,
    training=nv.PosteriorTraining(epochs=1),
    plain_training=nv.PlainTraining(epochs=1),
)
METHODS = (
    QUICK,
    QUICK.changed(prior_fraction=0.0),
    QUICK.changed(pretrained="on other clouds"),
    nv.Progressive(batches=3, plain_training=nv.PlainTraining(epochs=1)),
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kept", ["buffer", "parameter", "columns", "attribute"])
def test_centers_out_of_the_bound_examples(method: Any, kept: str) -> None:
    with pytest.raises(Refused, match=r"'centers' of the network holds \d+ of the bound examples"):
        nv.certify(lambda: some_of(DATA, kept=kept), DATA, method=method)


def test_the_prior_of_a_trained_network() -> None:
    initial = nv.models.seeded(lambda: some_of(DATA), seed=0)
    method = nv.PostHoc(prior=nv.priors.at_initialization(initial), twin=False, trials=200)
    with pytest.raises(Refused, match="holds 100 of the bound examples"):
        nv.certify(initial, DATA, method=method)


@pytest.mark.parametrize(
    "clothes", [lambda x: x, lambda x: x / 3.0 + 2.0, lambda x: (40.0 * x).double(), torch.flip]
)
def test_scaled_and_shifted_but_not_turned(clothes: Callable[..., Tensor]) -> None:
    turned = clothes is torch.flip
    centers = torch.flip(DATA.inputs, (1,)) if turned else clothes(DATA.inputs)
    held = held_examples(Near(centers[:50]), DATA)
    assert held is None if turned else held is not None and held.examples == 50


def test_other_examples_and_a_few() -> None:
    assert held_examples(Near(clouds(seed=1).inputs), DATA) is None
    assert held_examples(Near(DATA.inputs[:3]), DATA) is None
    certificate = nv.certify(lambda: some_of(clouds(seed=1)), DATA, method=QUICK)
    (stated,) = (a for a in certificate.assumptions if a.name == START)
    assert certificate.status == "valid" and "the function read none" in stated.detail


@pytest.mark.parametrize("width", [2, 4, 7, 8, 30])
def test_inputs_of_few_and_many_numbers(width: int) -> None:
    examples = clouds(width)
    assert held_examples(Near(examples.inputs[:50]), examples) is not None
    assert held_examples(nn.Linear(width, 500), examples) is None


@pytest.mark.parametrize("width", [3, 10])
def test_codes_that_meet_inputs_by_design(width: int) -> None:
    """One-hot inputs, and a network with an identity in it."""
    labels = torch.randint(0, 3, (200,), generator=torch.Generator().manual_seed(0))
    inputs = torch.eye(width)[torch.arange(200) % width]
    examples = nv.data.Examples(inputs, labels, ("a", "b", "c"), "codes")
    assert held_examples(Near(2.0 * torch.eye(width).repeat(2, 1)), examples) is None
