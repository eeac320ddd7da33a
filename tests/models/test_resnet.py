"""The residual networks: sizes of the paper, shapes, symmetries, training without normalization."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from nonvacuous.errors import BadInput
from nonvacuous.models import build
from nonvacuous.networks import capture, fold_batch_norm, preservation_error, scale_groups


@pytest.mark.parametrize(
    ("depth", "parameters"), [(20, 269_722), (32, 464_154), (56, 853_018), (110, 1_727_962)]
)
def test_parameters_are_those_published(depth: int, parameters: int) -> None:
    module = build(f"resnet:{depth}", (3, 32, 32), 10, seed=0)
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    layers = [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


@pytest.mark.parametrize("name", ["resnet", "resnet:8", "resnet:14/no-bn"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7)])
def test_any_image_gives_scores(name: str, shape: tuple[int, ...]) -> None:
    module = build(name, shape, 5, seed=0).eval()
    images = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    together, alone = module(images), module(images[:1])
    assert together.shape == (3, 5)
    assert torch.allclose(together[:1], alone, atol=1e-5)
    assert torch.equal(build(name, shape, 5, seed=0).eval()(images), together)


@pytest.mark.slow_if("resnet:8")
@pytest.mark.parametrize("name", ["resnet:8", "resnet:8/no-bn"])
def test_scales_pass_the_shortcuts(name: str) -> None:
    module = build(name, (1, 8, 8), 4, seed=0).eval()
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    if "no-bn" not in name:
        module = fold_batch_norm(module, images)
    groups = scale_groups(capture(module, images))
    # 16 channels that all blocks write to, 16 and 32 that join them, and the inside of each block.
    assert groups.size == 16 + 16 + 32 + 16 + 32 + 64
    assert preservation_error(module, images, groups=groups, seed=0) < 1e-4


def test_depth_does_not_swell_the_signal_without_normalization() -> None:
    images = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(64) % 10
    for depth in (8, 56):
        module = build(f"resnet:{depth}/no-bn", (3, 16, 16), 10, seed=0)
        loss = cross_entropy(module(images), labels)
        loss.backward()
        assert 2.0 < loss.item() < 4.0
        first = next(module.parameters())
        assert first.grad is not None and 1e-4 < float(first.grad.norm()) < 10.0


@pytest.mark.parametrize("name", ["resnet:18", "resnet:2", "resnet:x", "resnet:20/bn", "resnet:/"])
def test_other_depths_and_variants_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="resnet"):
        build(name, (3, 32, 32), 10)
