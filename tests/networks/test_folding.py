"""Folding batch normalization: nothing of it is left, and the function is the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nonvacuous.errors import BadInput, WrongMode
from nonvacuous.networks import capture, fold_batch_norm, scale_groups
from nonvacuous.networks.folding import ChannelAffine
from tests.networks.architecture import Architecture
from tests.networks.convolutional import CONVOLUTIONAL


def random_statistics(module: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    module = module.double().eval()
    with torch.no_grad():
        for m in module.modules():
            if isinstance(m, _BatchNorm):
                m.running_mean.normal_()
                m.running_var.uniform_(0.3, 3.0)
                if m.affine:
                    m.weight.normal_()  # negative gains too
                    m.bias.normal_()
    return module


def checked(module: nn.Module, x: Tensor) -> nn.Module:
    before = copy.deepcopy(module.state_dict())
    folded = fold_batch_norm(module, x)
    assert not any(isinstance(m, _BatchNorm) for m in folded.modules())
    assert not any(m.training for m in folded.modules())
    torch.testing.assert_close(folded(x), module(x), rtol=1e-11, atol=1e-11)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    return folded


class Borrowed(nn.Module):
    """A convolution whose weight the network uses itself, without a bias and with a stride."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.layer, self.norm = nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm(nn.functional.conv2d(inputs, self.layer.weight, stride=2))


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_whose_weight_is_borrowed_takes_no_shift(bias: bool) -> None:
    """Nothing would read a bias that folding gives to the layer."""
    module = random_statistics(Borrowed(bias=bias))
    folded = checked(module, torch.randn(2, 3, 7, 7, dtype=torch.float64))
    assert isinstance(folded.norm, ChannelAffine)


@pytest.mark.slow_if("resnet18 folded")
@pytest.mark.parametrize(
    "architecture", [a for a in CONVOLUTIONAL if a.fold and a.name != "resnet50 folded"],
    ids=lambda a: a.name,
)  # fmt: skip
def test_the_function_is_the_same(architecture: Architecture) -> None:
    checked(random_statistics(architecture.build()), architecture.example())


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Linear(4, 6), nn.BatchNorm1d(6), (3, 4)),
        (nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6, affine=False), (3, 4)),
        (nn.Conv1d(4, 6, 3, groups=2), nn.BatchNorm1d(6), (3, 4, 8)),
        (nn.Conv3d(4, 6, 2), nn.BatchNorm3d(6), (3, 4, 3, 3, 3)),
        (nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6), (3, 4, 8)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), nn.BatchNorm2d(6), (3, 4, 5, 5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_layer_takes_the_normalization_in(
    layer: nn.Module, norm: nn.Module, shape: tuple[int, ...]
) -> None:
    module = random_statistics(nn.Sequential(layer, norm, nn.ReLU(), nn.Flatten()))
    folded = checked(module, torch.randn(shape, dtype=torch.float64))
    assert isinstance(folded[1], nn.Identity)
    assert {name for name, _ in folded.named_parameters()} == {"0.weight", "0.bias"}


def test_a_normalization_with_no_layer_of_its_own_becomes_a_factor_per_channel() -> None:
    module = random_statistics(
        nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.ReLU(), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 3, padding=1)
        )
    )
    x = torch.randn(2, 1, 6, 6, dtype=torch.float64)
    folded = checked(module, x)
    assert isinstance(folded[2], ChannelAffine)
    assert {name for name, _ in folded[2].named_parameters()} == {"weight", "bias"}
    assert scale_groups(capture(folded, x)).size == 3 + 3


class Shared(nn.Module):
    """A convolution whose output is also read elsewhere, and one that is called twice."""

    def __init__(self, *, twice: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.twice = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), twice

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.norm(self.conv(y)) if self.twice else self.norm(y) + y


@pytest.mark.parametrize("twice", [False, True])
def test_a_layer_that_others_read_or_call_is_left_as_it_is(twice: bool) -> None:
    module = random_statistics(Shared(twice=twice))
    folded = checked(module, torch.randn(2, 2, 5, 5, dtype=torch.float64))
    assert torch.equal(folded.conv.weight, module.conv.weight)
    assert isinstance(folded.norm, ChannelAffine)


def test_a_linear_layer_on_sequences_is_left_as_it_is() -> None:
    """Its channels lie on the last axis, those of the normalization on axis 1."""
    module = random_statistics(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(5), nn.Flatten()))
    folded = checked(module, torch.randn(2, 5, 4, dtype=torch.float64))
    assert isinstance(folded[1], ChannelAffine)


def test_a_lone_normalization_and_a_network_without_any() -> None:
    x = torch.randn(3, 4, dtype=torch.float64)
    checked(random_statistics(nn.BatchNorm1d(4)), x)
    plain = nn.Linear(4, 2).double().eval()
    copied = fold_batch_norm(plain, x)
    assert copied is not plain
    assert torch.equal(copied(x), plain(x))


def test_unfolded_normalization_names_the_remedy() -> None:
    module = random_statistics(nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU()))
    (entry,) = capture(module, torch.randn(2, 1, 6, 6, dtype=torch.float64)).support
    assert entry.layer == "1"
    assert "fold_batch_norm" in entry.remedy


def test_refusals() -> None:
    x = torch.randn(3, 4)
    with pytest.raises(WrongMode, match="running statistics"):
        fold_batch_norm(nn.BatchNorm1d(4, track_running_stats=False).eval(), x)
    with pytest.raises(WrongMode, match="training mode"):
        fold_batch_norm(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), x)
    with pytest.raises(BadInput, match=r"torch\.nn\.Module"):
        fold_batch_norm("network", x)
