"""Probing a network: what depends on the batch is seen, rounding is not mistaken for it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous.audit.complexity_checks import slow_kl
from nonvacuous.audit.network_checks import _provocations
from nonvacuous.audit.probing import (
    Network,
    attributes_read,
    batch_dependence,
    overwritten,
    recount,
)
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.risk.losses import Loss, bounded_cross_entropy, margin_loss, zero_one
from tests.risk.plain import plain_loss

from . import worlds


class Odd(nn.Module):
    """The plain network with something done to its outputs."""

    def __init__(self, change: object) -> None:
        super().__init__()
        self.layers, self.change = worlds.network(), change

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.change(self.layers(inputs), inputs)  # type: ignore[operator]
        return scores


@pytest.mark.parametrize(
    "change",
    [
        lambda scores, inputs: scores + 1e-3 * inputs.mean(),
        lambda scores, inputs: scores * len(inputs),
        lambda scores, inputs: scores - scores.mean(0),
        lambda scores, inputs: scores + 1e-3 * torch.rand_like(scores),
        lambda scores, inputs: scores + 1e-3 * torch.arange(len(scores))[:, None],
        lambda scores, inputs: scores.roll(1, 0),
    ],
)
def test_what_depends_on_the_company_is_seen(change: object) -> None:
    network = Network.of(Odd(change).eval())
    assert batch_dependence(network, worlds.examples(16).inputs) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda scores, inputs: scores,
        lambda scores, inputs: scores * 1e12,
        lambda scores, inputs: scores * 0.0,
        lambda scores, inputs: scores.float() + inputs.float()[:, :3],
        lambda scores, inputs: torch.full_like(scores, torch.nan),
        lambda scores, inputs: scores.softmax(1),
    ],
)
def test_what_depends_on_the_example_alone_is_left_in_peace(change: object) -> None:
    network = Network.of(Odd(change).eval())
    assert batch_dependence(network, worlds.examples(16).inputs) is None


def test_a_network_that_insists_on_single_precision() -> None:
    class Insisting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = worlds.network()

        def forward(self, inputs: Tensor) -> Tensor:
            if inputs.dtype != torch.float32:
                raise RuntimeError("single precision only")
            scores: Tensor = self.layers(inputs)
            return scores

    assert batch_dependence(Network.of(Insisting().eval()), worlds.examples(16).inputs) is None


@pytest.mark.slow
def test_a_wide_network_is_not_refused_for_rounding() -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(4, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.Linear(2048, 3))
    assert batch_dependence(Network.of(wide.eval()), worlds.examples(16).inputs) is None


def test_normalization_that_normalizes_each_example_is_fine() -> None:
    for norm in (nn.LayerNorm(4), nn.GroupNorm(2, 4)):
        network = nn.Sequential(norm, worlds.network()).eval()
        assert batch_dependence(Network.of(network), worlds.examples(16).inputs) is None


def test_writing_to_a_buffer_is_seen_and_undone() -> None:
    norm = nn.BatchNorm1d(4).train()
    module = nn.Sequential(norm, worlds.network())
    before = copy.deepcopy(module.state_dict())
    changed = overwritten(Network.of(module), worlds.examples(16).inputs)
    assert "0.running_mean" in changed
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())


class Keeping(nn.Module):
    """Keeps what it has seen, and reads it again in one of many ways, or never."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layers = how, worlds.network()
        self.last = torch.zeros(1, 3)
        self.seen = {"inputs": [torch.zeros(1, 4)]}
        self.layers.register_forward_hook(self._hook)
        self.log = [torch.tensor(0.5)]

    def _hook(self, layer: nn.Module, given: object, scores: Tensor) -> None:
        self.last = scores.detach() if self.how != "graph" else scores

    def forward(self, inputs: Tensor) -> Tensor:
        before = self.last
        scores: Tensor = self.layers(inputs)
        self.seen["inputs"][0] = inputs
        if self.how == "operation":
            return scores + 0.0 * before.sum()
        if self.how == "list":
            return scores + 0.0 * sum(before.flatten().tolist())
        if self.how == "array":
            return scores + 0.0 * float(np.asarray(before).sum())
        if self.how == "written first":
            return scores + 0.0 * self.last
        return scores


@pytest.mark.parametrize("how", ["never", "written first", "graph"])
def test_what_is_kept_and_not_read_is_no_memory(how: str) -> None:
    network, inputs = Network.of(Keeping(how).eval()), worlds.examples(16).inputs
    assert overwritten(network, inputs) == []
    assert attributes_read(network, inputs) == frozenset()


@pytest.mark.parametrize("how", ["operation", "list", "array"])
def test_what_is_kept_and_read_later_is_a_memory(how: str) -> None:
    network, inputs = Network.of(Keeping(how).eval()), worlds.examples(16).inputs
    assert overwritten(network, inputs) == ["last"]
    assert attributes_read(network, inputs) == {"last"}


def test_an_attribute_that_only_some_examples_need_is_read() -> None:
    class Branching(Keeping):
        def forward(self, inputs: Tensor) -> Tensor:
            scores = super().forward(inputs)
            return scores + self.log[0] if bool((inputs[:, 0] > 5.0).any()) else scores

    network, inputs = Network.of(Branching("never").eval()), worlds.examples(300).inputs.clone()
    inputs[:, 0] = 0.0
    assert attributes_read(network, inputs) == frozenset()
    inputs[-1, 0] = 6.0
    assert attributes_read(network, inputs) == {"log[0]"}


def test_a_network_without_rows_of_scores() -> None:
    flat = Odd(lambda scores, inputs: scores.flatten()).eval()
    with pytest.raises(BadInput, match="one row of class scores"):
        batch_dependence(Network.of(flat), worlds.examples(16).inputs)


def test_shared_parameters_are_replaced_together() -> None:
    layer = nn.Linear(4, 4)
    module = nn.Sequential(layer, layer, nn.Linear(4, 3)).eval()
    weights = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    outputs, _ = Network.of(module, weights).run(worlds.examples(5).inputs)
    assert float(outputs.abs().max()) == 0.0


@pytest.mark.parametrize("loss", [zero_one, margin_loss(0.1), bounded_cross_entropy()])
def test_a_recount_agrees_with_a_plain_pass(loss: Loss) -> None:
    module, data = worlds.network(), worlds.examples(500)
    again = recount(Network.of(module), data, loss)
    counted = plain_loss(module, (data.inputs, data.labels), loss=loss)
    assert again.total == pytest.approx(counted) and again.trials == 500
    if loss.binary:
        assert again.errors == int(counted)
        assert again.agrees_with(errors=int(counted), total=None)
        assert not again.agrees_with(errors=int(counted) + again.close + 1, total=None)
    else:
        assert again.errors is None
        assert again.agrees_with(errors=None, total=counted)
        assert not again.agrees_with(errors=None, total=counted + 5.0)


def test_examples_that_hang_on_rounding_are_counted() -> None:
    module = nn.Linear(4, 3).eval()
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
        module.bias[0] = 1.0
        module.bias[1] = 1.0 + 1e-6
    again = recount(Network.of(module), worlds.examples(60), zero_one)
    labels = worlds.examples(60).labels
    assert again.close == int(((labels == 0) | (labels == 1)).sum())


def test_extreme_scores_cover_every_class() -> None:
    for classes in (2, 10):
        for scores in _provocations(classes):
            assert scores.shape[1] == classes and bool(torch.isfinite(scores).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_textbook_kl_agrees_with_the_fast_one(dtype: torch.dtype) -> None:
    module = worlds.network().to(dtype)
    posterior = DiagonalGaussian.around(module, scale=0.02)
    prior = DiagonalGaussian.centered(module, scale=0.3)
    slow, fast = slow_kl(posterior, prior), posterior.kl_to(prior)
    assert slow.keys() == fast.keys()
    for name in slow:
        assert fast[name] == pytest.approx(slow[name], rel=1e-10)
        assert fast[name] >= slow[name] * (1 - 1e-14)
