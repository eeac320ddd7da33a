"""Ways in which a promise could be about another function, or other examples, than the user's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset

import nonvacuous as nv
from nonvacuous.data.examples import Examples
from nonvacuous.distributions.copying import with_fixed
from nonvacuous.errors import BadInput, NonvacuousError, NotYetSupported, Refused, Unsupported
from nonvacuous.recipes import recipe_of
from nonvacuous.risk.losses import Loss
from nonvacuous.risk.pairs import estimate_risk

QUICK: dict[str, Any] = {
    "trials": 200,
    "twin": False,
    "training": {"epochs": 1},
    "plain_training": {"epochs": 1},
}


def blobs(count: int = 200, width: int = 6) -> Examples:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, width, generator=generator) + labels[:, None]
    return Examples(inputs, labels, ("a", "b"), "blobs")


class Kept:
    """Anything that no audit looks into."""

    weight: Tensor | None = None


class Fused(nn.Module):
    """Normalizes its weights once, in evaluation mode."""

    def __init__(self, holder: Any = None) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(6, 2), Kept()

    def train(self, mode: bool = True) -> Fused:
        self.kept.weight = None
        return super().train(mode)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            return self.layer(inputs)
        if self.kept.weight is None:
            self.kept.weight = self.layer.weight / self.layer.weight.norm()
        return nn.functional.linear(inputs, self.kept.weight, self.layer.bias)


def test_weights_that_are_computed_once() -> None:
    with pytest.raises(Unsupported, match="earlier call"):
        nv.certify(Fused, blobs(), method=nv.Posterior(**QUICK))
    network, examples = Fused().eval(), blobs()
    posterior = nv.DiagonalGaussian.around(network, scale=0.1)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(NonvacuousError, match="earlier call"):
        estimate_risk(network, posterior, examples, trials=50, generator=generator)


class Named(nn.Module):
    """Has an attribute with a name that means something to others."""

    def __init__(self) -> None:
        super().__init__()
        self.recipe, self.layer = "sine", nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs.sin() if self.recipe == "sine" else inputs)


def test_no_attribute_of_the_user_s_is_overwritten() -> None:
    network = nv.models.seeded(Named, seed=0)
    assert network.recipe == "sine" and recipe_of(network) is not None
    assert nv.certify(Named, blobs(), method=nv.Posterior(**QUICK)).status == "valid"


class Doubled(TensorDataset):
    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        inputs, labels = super().__getitem__(index)
        return 2 * inputs, labels


def pairs(count: int = 200) -> TensorDataset:
    data = blobs(count)
    return TensorDataset(data.inputs, data.labels)


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(pairs(), sampler=SubsetRandomSampler(range(100))),
        DataLoader(pairs(), sampler=torch.utils.data.RandomSampler(pairs(), replacement=True)),
        DataLoader(pairs(), collate_fn=lambda items: items),
    ],
    ids=["subset", "again and again", "collated"],
)
def test_loaders_that_give_other_examples(loader: Any) -> None:
    with pytest.raises(BadInput, match="give the Dataset itself"):
        Examples.of(loader)


def test_datasets_are_read_item_by_item() -> None:
    plain, items = pairs(), Doubled(*pairs().tensors)
    assert torch.equal(Examples.of(items).inputs, 2 * plain.tensors[0])
    for given in (plain, DataLoader(plain), DataLoader(plain, batch_size=7, shuffle=True)):
        assert torch.equal(Examples.of(given).inputs, plain.tensors[0])
    part: Dataset[Any] = Subset(plain, range(60, 120))
    assert torch.equal(Examples.of(DataLoader(part)).inputs, plain.tensors[0][60:120])


@pytest.mark.parametrize("name", ["zero-one", "margin 0.1"])
def test_losses_called_like_ours(name: str) -> None:
    def function(outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs[:, 0] > 0).float()

    loss = Loss(name=name, lower=0.0, upper=1.0, function=function, binary=True)
    with pytest.raises(BadInput, match="another name"):
        nv.certify(lambda: nn.Linear(6, 2), blobs(), method=nv.Posterior(**QUICK), loss=loss)


class WritesIntoAView(nn.Module):
    """Clears a part of what a convolution gave, through a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.answer = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(64, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.layer(inputs)
        maps.view(len(inputs), -1)[:, ::2].mul_(0.0)
        return self.answer(maps.flatten(1))


def test_views_that_are_written_into() -> None:
    torch.manual_seed(0)
    network = WritesIntoAView().eval()
    inputs, labels = torch.randn(100, 1, 4, 4), torch.arange(100) % 2
    posterior = nv.DiagonalGaussian.around(network, scale=0.3)
    rates = []
    for local in (True, False):
        generator = torch.Generator().manual_seed(1)
        rates.append(
            estimate_risk(
                network, posterior, (inputs, labels), trials=20_000, generator=generator,
                local=local,
            )
        )  # fmt: skip
    assert abs(rates[0].risk - rates[1].risk) < 0.02
    assert "drawn" in rates[0].method


def test_a_weight_that_two_layers_share_is_random_in_both() -> None:
    network = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    network[1].weight = network[0].weight
    part = with_fixed(network, ["0.weight"])
    assert part[1].weight is part[0].weight and not list(part.buffers())  # type: ignore[index]


class Activated(nn.BatchNorm1d):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).relu()


def test_normalization_that_does_more_is_not_folded() -> None:
    network = nn.Sequential(nn.Linear(6, 4), Activated(4), nn.Linear(4, 2)).eval()
    with pytest.raises(NotYetSupported, match="does more"):
        nv.networks.fold_batch_norm(network, torch.randn(2, 6))
    hooked = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    hooked[1].register_forward_hook(lambda _layer, _given, outputs: outputs.relu())
    with pytest.raises(NotYetSupported, match="does more"):
        nv.networks.fold_batch_norm(hooked, torch.randn(2, 6))


class Crowded(nn.Module):
    """Normalizes by the batch where it is large."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs - inputs.mean(0) if len(inputs) > 64 else inputs)


def test_predictions_that_change_in_large_batches() -> None:
    with pytest.raises(Refused, match="batch of 400"):
        nv.certify(Crowded().eval(), blobs(400), method=nv.HeldOut(unseen=True))


class Overwriting(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.ReLU(inplace=True), nn.Linear(6, 2))


def test_a_network_that_writes_into_its_inputs() -> None:
    data, kept = blobs(), blobs().inputs
    certificate = nv.certify(Overwriting, data, method=nv.Posterior(**QUICK))
    assert certificate.status == "valid" and torch.equal(data.inputs, kept)
