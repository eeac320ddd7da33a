"""Starting weights that were trained on the bound examples, not far enough to be obvious."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.audit.knowing import knowledge, surprises
from nonvacuous.data import Examples
from nonvacuous.models import build


def coins(classes: int = 10) -> Examples:
    """Nothing can be learned here: the risk of every network is 0.9."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1000, 20, generator=generator)
    labels = torch.randint(0, classes, (1000,), generator=generator)
    return Examples(inputs, labels, tuple(map(str, range(classes))), "coins")


def trained(data: Examples, *, until: float) -> nn.Module:
    network = build("mlp:256", data.example_shape, data.classes, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(600):
        scores = network(data.inputs)
        if float((scores.argmax(dim=1) != data.labels).float().mean()) <= until:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, data.labels).backward()
        optimizer.step()
    return network.eval()


def certified(start: nn.Module, pretrained: bool | str = False) -> nv.Certificate:
    method = nv.PostHoc(
        prior=nv.priors.at_initialization(start),
        pretrained=pretrained,
        trials=2000,
        twin=False,
        rescaling=False,
        translation=False,
        permutation=False,
        posterior_scales=(0.01,),
    )
    return nv.certify(start, coins(), method=method)


@pytest.mark.slow
def test_a_start_that_errs_on_a_third_of_what_nobody_can_know():
    certificate = certified(trained(coins(), until=0.34))
    assert certificate.risk_upper < 0.9
    assert certificate.status == "conditional"
    assert "random order" in certificate.lines()[3]


@pytest.mark.slow
def test_a_fresh_head_on_a_backbone_that_saw_them():
    start = trained(coins(), until=0.0)
    torch.manual_seed(1)
    start.layers[-1].reset_parameters()  # type: ignore[operator, index, union-attr]
    certificate = certified(start)
    assert certificate.status == "conditional"
    assert "last hidden layer" in certificate.lines()[3]


@pytest.mark.slow
def test_where_they_come_from_is_quoted():
    said = "trained on the coins of another mint, by A. N. Other"
    certificate = certified(trained(coins(), until=0.34), pretrained=said)
    assert certificate.status == "valid"
    assert any(said in assumption.detail for assumption in certificate.assumptions)


@pytest.mark.slow
def test_honest_starts_raise_no_alarm():
    """Random features know much about structured data; so do they in random order."""
    alarms = 0
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        centers = 2.0 * torch.randn(2 + seed % 3, 2, generator=generator)
        labels = torch.randint(0, len(centers), (400,), generator=generator)
        inputs = centers[labels] + torch.randn(400, 2, generator=generator)
        data = Examples(inputs, labels, tuple(map(str, range(len(centers)))), "clouds")
        alarms += bool(surprises(build("mlp:16", (2,), len(centers), seed=seed), data))
    assert alarms <= 1


def test_examples_that_stand_class_by_class_hide_no_knowledge():
    """As in a folder for each class: the first thousands of them are all of one."""
    labels = torch.arange(5).repeat_interleave(2500)
    inputs = torch.eye(20)[labels] + 0.1 * torch.randn(12_500, 20)
    data = Examples(inputs, labels, tuple("abcde"), "folders")
    start = nn.Linear(20, 5, bias=False)
    with torch.no_grad():
        start.weight.copy_(torch.eye(5, 20))
    assert knowledge(start, data).certain
    assert "answers" in str(surprises(start, data))


def test_whoever_gave_a_function_is_not_asked_for_it_again():
    """Of two clouds far apart an untrained network may tell which is which; only luck is left."""

    def build_it() -> nn.Module:
        start = nn.Linear(4, 2)
        with torch.no_grad():
            start.weight[1, 0] = start.weight[0, 0].abs() + 5.0
        return start

    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (200,), generator=generator)
    inputs = torch.randn(200, 4, generator=generator)
    inputs[:, 0] += 20.0 * labels - 10.0
    training = nv.PlainTraining(epochs=1)
    method = nv.Progressive(batches=2, plain_training=training)
    certificate = nv.certify(build_it, (inputs, labels), method=method)
    (doubt,) = (a.detail for a in certificate.assumptions if a.effect != "none")
    assert "very lucky" in doubt and "Give the function" not in doubt
    assert "nv.models.build" in doubt


class Kept(nn.Module):
    """A trained backbone whose weights are no parameters, and a fresh head."""

    def __init__(self, backbone: nn.Module, *, listed: bool) -> None:
        super().__init__()
        if listed:
            self.backbone = [backbone]
        else:
            for name, tensor in backbone.state_dict().items():
                self.register_buffer(name.replace(".", "_"), tensor.clone())
        self.head = nn.Linear(256, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "backbone"):
            hidden = self.backbone[0](inputs.flatten(1))
        else:
            hidden = nn.functional.linear(inputs.flatten(1), self.weight, self.bias)
        return self.head(hidden.relu())


@pytest.mark.slow
@pytest.mark.parametrize("listed", [False, True], ids=["buffers", "a list"])
def test_a_backbone_that_is_no_parameter(listed: bool):
    """The function gives it whatever the seed, so no seed shows that it saw nothing."""
    backbone = trained(coins(), until=0.0).layers[0].requires_grad_(False)  # type: ignore[index]

    def start() -> nn.Module:
        return Kept(backbone, listed=listed)

    method = nv.Posterior(
        trials=1000, prior_fraction=0.0, twin=False, training={"epochs": 3}, prior_scale=0.1
    )
    certificate = nv.certify(start, coins(), method=method)
    assert certificate.status == "conditional"
    assert "whatever the seed" in certificate.lines()[3]
    said = "trained on the coins of another mint, by A. N. Other"
    declared = nv.certify(start, coins(), method=method.changed(pretrained=said))
    assert declared.status == "valid"


@pytest.mark.slow
def test_a_network_may_bring_a_few_numbers_along():
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("means", torch.linspace(-1, 1, 20))
            self.head = nn.Linear(20, 10)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.head(inputs.flatten(1) - self.means)

    method = nv.Posterior(trials=1000, prior_fraction=0.0, twin=False, training={"epochs": 3})
    assert nv.certify(Shifted, coins(), method=method).status == "valid"
