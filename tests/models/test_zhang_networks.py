"""The networks of Zhang et al. (2017): published sizes, and the same functions written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from nonvacuous.models import build
from nonvacuous.models.cnn import pad_for_stride_two
from nonvacuous.networks import fold_batch_norm

CIFAR = (3, 28, 28)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("inception", 1_649_402),
        ("inception:no-bn", 1_649_402),
        ("alexnet", 1_387_786),
        ("mlp:512,512,512", 1_735_178),
        ("mlp:512", 1_209_866),
    ],
)
def test_published_parameter_counts(name: str, published: int) -> None:
    model = build(name, CIFAR, 10, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == published
    assert model.eval()(torch.zeros(2, *CIFAR)).shape == (2, 10)


def test_sizes_of_the_maps_inside() -> None:
    sizes: list[tuple[int, ...]] = []
    for name in ("inception", "alexnet"):
        model = build(name, CIFAR, 10, seed=0).eval()
        blocks = model.get_submodule("blocks")
        maps = torch.zeros(1, *CIFAR)
        for block in blocks:
            maps = block(maps)
            sizes.append(tuple(maps.shape[1:]))
    assert sizes == [
        (96, 28, 28), (64, 28, 28), (80, 28, 28), (160, 14, 14), (160, 14, 14), (160, 14, 14),
        (160, 14, 14), (144, 14, 14), (240, 7, 7), (336, 7, 7), (336, 7, 7),
        (64, 14, 14), (64, 7, 7),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [4, 5, 7, 8, 14, 28])
def test_padding_halves_rounded_up_and_favors_the_end(size: int) -> None:
    maps = torch.arange(1.0, size + 1).expand(1, 1, size, size)
    padded = pad_for_stride_two(maps)
    total = max((-(-size // 2) - 1) * 2 + 3 - size, 0)  # TensorFlow's SAME
    start = total // 2
    expected = [0.0] * start + list(range(1, size + 1)) + [0.0] * (total - start)
    assert padded[0, 0, start].tolist() == expected
    assert functional.max_pool2d(padded, 3, stride=2).shape[-1] == -(-size // 2)


def by_hand(model: nn.Module, inputs: Tensor) -> Tensor:
    """The small Inception in training mode, by loops over weights in the order they were made."""
    weights = iter([p for p in model.parameters() if p.ndim == 4])
    shifts = iter([p for p in model.parameters() if p.ndim == 1])
    normalized = any(True for _ in model.buffers())

    def convolution(maps: Tensor, *, stride: int = 1) -> Tensor:
        weight, shift = next(weights), next(shifts)
        size = weight.shape[-1]
        if stride == 2:
            maps = functional.pad(maps, (0, 1, 0, 1))
        maps = functional.conv2d(
            maps, weight, stride=stride, padding=size // 2 if stride == 1 else 0
        )
        if normalized:
            mean = maps.mean((0, 2, 3), keepdim=True)
            variance = ((maps - mean) ** 2).mean((0, 2, 3), keepdim=True)
            maps = (maps - mean) / (variance + 1e-3) ** 0.5
        return (maps + shift.reshape(1, -1, 1, 1)).clamp(min=0)

    maps = convolution(inputs)
    for modules in (2, 4, 2):
        for _ in range(modules):
            maps = torch.cat([convolution(maps), convolution(maps)], 1)
        if modules != 2 or maps.shape[-1] == inputs.shape[-1]:
            pooled = functional.max_pool2d(functional.pad(maps, (0, 1, 0, 1), value=-1e9), 3, 2)
            maps = torch.cat([convolution(maps, stride=2), pooled], 1)
    last = model.get_submodule("output")
    return functional.linear(maps.mean((2, 3)), last.weight, last.bias)


@pytest.mark.parametrize("name", ["inception", "inception:no-bn"])
def test_inception_computes_what_it_says(name: str) -> None:
    model = build(name, (2, 8, 8), 5, seed=1).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(generator=generator)
    inputs = torch.randn(4, 2, 8, 8, generator=generator).double()
    torch.testing.assert_close(model.train()(inputs), by_hand(model, inputs))


def test_alexnet_computes_what_it_says() -> None:
    model = build("alexnet", (2, 8, 8), 5, seed=1).double()
    inputs = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(2)).double()
    maps = inputs
    for block in model.get_submodule("blocks"):
        maps = block.convolution(maps).clamp(min=0)
        maps = functional.max_pool2d(functional.pad(maps, (0, 1, 0, 1), value=-1e9), 3, 2)
        # tf.nn.lrn(maps, depth_radius=4, bias=1, alpha=0.001 / 9, beta=0.75), by a loop.
        rows = []
        for channel in range(64):
            window = maps[:, max(0, channel - 4) : channel + 5]
            rows.append(maps[:, channel] / (1 + 1e-3 / 9 * (window**2).sum(1)) ** 0.75)
        maps = torch.stack(rows, 1)
    scores = model.get_submodule("layers")(maps.flatten(1))
    torch.testing.assert_close(model(inputs), scores)


@pytest.mark.parametrize("name", ["inception", "inception:no-bn", "alexnet"])
def test_the_signal_keeps_its_size_at_the_start(name: str) -> None:
    """Scores neither vanish nor explode, or the published learning rates would not train it."""
    model = build(name, CIFAR, 10, seed=0)
    inputs = torch.randn(16, *CIFAR, generator=torch.Generator().manual_seed(3))
    spread = float(model(inputs).detach().std(dim=0).mean())
    assert 0.02 < spread < 5


@pytest.mark.slow_if("inception")
@pytest.mark.parametrize("name", ["inception", "alexnet"])
def test_many_at_once_equal_each_alone(name: str) -> None:
    """Scores, gradients and running statistics under vmap are those of each network by itself."""
    shape = (3, 8, 8)
    models = [build(name, shape, 5, seed=seed).double() for seed in range(2)]
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    parameters = {key: value.detach().requires_grad_() for key, value in parameters.items()}
    buffers = {key: value.clone() for key, value in buffers.items()}
    inputs = torch.randn(2, 6, *shape, generator=torch.Generator().manual_seed(4)).double()
    skeleton = build(name, shape, 5, seed=0)

    def scores_of(own: dict[str, Tensor], state: dict[str, Tensor], batch: Tensor) -> Tensor:
        scores: Tensor = functional_call(skeleton, (own, state), (batch,))
        return scores

    together = vmap(scores_of)(parameters, buffers, inputs)
    together.square().mean((1, 2)).sum().backward()
    for row, model in enumerate(models):
        alone = model(inputs[row])
        alone.square().mean().backward()
        torch.testing.assert_close(together[row], alone)
        for key, parameter in model.named_parameters():
            stacked = parameters[key].grad
            assert stacked is not None
            torch.testing.assert_close(stacked[row], parameter.grad)
        for key, buffer in model.named_buffers():
            torch.testing.assert_close(buffers[key][row], buffer)


@pytest.mark.slow
def test_batch_normalization_folds_away() -> None:
    model = build("inception", (1, 8, 8), 4, seed=0)
    inputs = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    for _ in range(3):
        model(inputs)
    model.eval()
    folded = fold_batch_norm(model, inputs)
    torch.testing.assert_close(folded(inputs), model(inputs), atol=1e-5, rtol=1e-4)
    assert not [name for name, _ in folded.named_buffers() if "running" in name]
