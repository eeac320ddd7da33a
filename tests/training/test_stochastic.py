"""Noisy forward passes: right layers found, right distribution, right gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nonvacuous.training import stochastic
from nonvacuous.training.stochastic import Layout, draw_noise, find_layout, noisy_call

from .worlds import small_cnn, small_mlp


class Tied(nn.Module):
    """One weight used by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(functional.relu(self.first(inputs)))


class Twice(nn.Module):
    """One layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.layer(torch.relu(self.layer(inputs))))


class Odd(nn.Module):
    """A matrix product written by hand, a sequence folded into rows, and a changing path."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(4, 4))
        self.rows = nn.Linear(2, 2)
        self.plain = nn.Linear(4, 3)
        self.by_hand = False

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs @ self.matrix
        hidden = self.rows(hidden.reshape(-1, 2)).reshape(-1, 4)
        if self.by_hand:
            return hidden @ self.plain.weight.T + self.plain.bias
        return self.plain(hidden)


def gaussian(module: nn.Module, scale: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    means = {name: parameter.detach() for name, parameter in module.named_parameters()}
    scales = {name: torch.full_like(mean, scale) for name, mean in means.items()}
    return means, scales


def share_draws(monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    monkeypatch.setattr(stochastic, "_SHARING", examples)
    monkeypatch.setattr(stochastic, "_WORTH_SHARING", 0)


def call(
    module: nn.Module,
    inputs: Tensor,
    layout: Layout,
    means: dict[str, Tensor],
    scales: dict[str, Tensor],
    generator: torch.Generator,
) -> Tensor:
    variances = {name: scale.square() for name, scale in scales.items()}
    noise = draw_noise(layout, variances, generator)
    return noisy_call(module, inputs, layout=layout, means=means, noise=noise, generator=generator)


def outputs_of(
    module: nn.Module, inputs: Tensor, layout: Layout, scale: float, draws: int
) -> Tensor:
    means, scales = gaussian(module, scale)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        return torch.stack(
            [call(module, inputs, layout, means, scales, generator) for _ in range(draws)]
        )


def test_linear_layers_and_convolutions_get_noise_per_example() -> None:
    layout = find_layout(small_mlp(), torch.randn(3, 4))
    assert layout.per_example == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert layout.per_batch == ()
    layout = find_layout(small_cnn(), torch.randn(3, 1, 6, 6))
    assert layout.per_example == {"0.weight", "0.bias", "3.weight", "3.bias"}


def test_shared_weights_are_drawn_once_for_all_their_uses() -> None:
    assert find_layout(Tied(), torch.randn(3, 4)).per_example == frozenset()
    assert find_layout(Twice(), torch.randn(3, 4)).per_example == {"last.weight", "last.bias"}


def test_other_uses_are_drawn_per_batch() -> None:
    layout = find_layout(Odd(), torch.randn(3, 4))
    assert layout.per_example == {"plain.weight", "plain.bias"}
    assert layout.per_batch == ("matrix", "rows.weight", "rows.bias")
    norm = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)).eval()
    assert find_layout(norm, torch.randn(3, 4)).per_batch == ("1.weight", "1.bias")


def test_attention_is_drawn_per_batch() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, batch_first=True).eval()
    layout = find_layout(layer, torch.randn(3, 5, 4))
    assert layout.per_example == frozenset()
    assert set(layout.per_batch) == {name for name, _ in layer.named_parameters()}


def test_a_path_not_seen_before_still_gets_noise() -> None:
    module = Odd()
    layout = find_layout(module, torch.randn(3, 4))
    module.by_hand = True
    means, scales = gaussian(module, 0.0)
    scales["plain.weight"] = torch.ones(3, 4)
    results = [
        call(module, torch.ones(2, 4), layout, means, scales, torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    ]
    assert not torch.equal(results[0], results[1])


def test_without_scale_the_outputs_are_those_of_the_means() -> None:
    for module, inputs in (
        (small_mlp(), torch.randn(5, 4)),
        (small_cnn(), torch.randn(5, 1, 6, 6)),
    ):
        outputs = outputs_of(module, inputs, find_layout(module, inputs), 0.0, 1)[0]
        assert torch.allclose(outputs, module(inputs), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("kind", ["linear", "convolution", "grouped", "without bias"])
def test_the_distribution_for_each_example_is_that_of_drawn_weights(
    kind: str, sharing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean, variance and covariance over outputs agree with honest draws of all weights."""
    if sharing:
        share_draws(monkeypatch, 1)
    generator = torch.Generator().manual_seed(1)
    if kind == "linear":
        module: nn.Module = nn.Linear(4, 3)
        inputs = torch.randn(2, 4, generator=generator)
    else:
        groups = 2 if kind == "grouped" else 1
        module = nn.Conv1d(2, 2, 2, groups=groups, bias=kind != "without bias")
        inputs = torch.randn(2, 2, 4, generator=generator)
    draws = 2000
    honest = outputs_of(module, inputs, find_layout(module, inputs, per_example=False), 0.5, draws)
    quick = outputs_of(module, inputs, find_layout(module, inputs), 0.5, draws)
    assert find_layout(module, inputs).per_batch == ()
    for example in range(2):
        first, second = honest[:, example].flatten(1), quick[:, example].flatten(1)
        assert torch.allclose(first.mean(0), second.mean(0), atol=0.08)
        assert torch.allclose(torch.cov(first.T), torch.cov(second.T), atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [False, True])
def test_examples_of_a_batch_are_uncorrelated(
    sharing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sharing:
        share_draws(monkeypatch, 1)
    inputs = torch.ones(2, 1, 6, 6)
    module = small_cnn()
    shared = outputs_of(module, inputs, find_layout(module, inputs, per_example=False), 0.3, 300)
    fresh = outputs_of(module, inputs, find_layout(module, inputs), 0.3, 1500)
    assert torch.equal(shared[:, 0], shared[:, 1])
    centered = fresh - fresh.mean(dim=0)
    correlation = (centered[:, 0] * centered[:, 1]).mean() / centered.square().mean()
    assert abs(correlation) < 0.1


def test_large_networks_share_a_draw_among_a_few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = nn.Conv1d(1, 3, 2), torch.ones(7, 1, 4)
    assert find_layout(module, inputs).products == 9 * 2
    assert find_layout(module, inputs).parts(inputs) == 1
    share_draws(monkeypatch, 3)
    outputs = outputs_of(module, inputs, find_layout(module, inputs), 1.0, 1)[0]
    parts = [torch.unique(part, dim=0) for part in outputs.tensor_split(2)]
    assert len(parts[0]) == len(parts[1]) == 1 and not torch.equal(parts[0], parts[1])
    assert find_layout(nn.Linear(4, 3), torch.ones(7, 4)).parts(torch.ones(7, 4)) == 1


@pytest.mark.parametrize("bias", [True, False])
def test_rounded_products_give_nearly_the_same_outputs_and_slopes(
    bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a processor multiplies bfloat16."""
    module = nn.Sequential(nn.Linear(40, 60, bias=bias), nn.Tanh(), nn.Linear(60, 3, bias=bias))
    inputs = torch.randn(64, 40, generator=torch.Generator().manual_seed(0))
    results = []
    for supported in (False, True):
        monkeypatch.setattr(stochastic, "_WORTH_ROUNDING", 100)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda yes=supported: yes)
        means, scales = gaussian(module, 0.1)
        leaves = [tensor.requires_grad_() for tensor in (*means.values(), *scales.values())]
        generator, layout = torch.Generator().manual_seed(1), find_layout(module, inputs)
        outputs = call(module, inputs, layout, means, scales, generator)
        results.append([outputs.detach(), *torch.autograd.grad(outputs.square().mean(), leaves)])
    assert not torch.equal(results[0][0], results[1][0])
    for exact, rounded in zip(*results, strict=True):
        assert rounded.dtype == torch.float32
        assert float((exact - rounded).norm()) < 0.02 * float(exact.norm())


def test_gradients_reach_means_and_scales_and_survive_zero_inputs() -> None:
    module = small_cnn()
    means, scales = gaussian(module, 0.1)
    leaves = {
        name: (means[name].clone().requires_grad_(), scales[name].clone().requires_grad_())
        for name in means
    }
    outputs = call(
        module,
        torch.zeros(3, 1, 6, 6),
        find_layout(module, torch.zeros(3, 1, 6, 6)),
        {name: pair[0] for name, pair in leaves.items()},
        {name: pair[1] for name, pair in leaves.items()},
        torch.Generator().manual_seed(0),
    )
    outputs.square().sum().backward()
    for mean, scale in leaves.values():
        assert mean.grad is not None and bool(mean.grad.isfinite().all())
        assert scale.grad is not None and bool(scale.grad.isfinite().all())
    assert leaves["3.bias"][1].grad.abs().sum() > 0  # type: ignore[union-attr]


def test_noise_per_example_makes_gradients_steadier() -> None:
    """The reason it exists: with equal examples, the mean gradient varies far less."""
    module, inputs = small_mlp(), torch.ones(64, 4)
    spreads = []
    for per_example in (True, False):
        layout = find_layout(module, inputs, per_example=per_example)
        gradients = []
        for seed in range(200):
            means, scales = gaussian(module, 0.3)
            means = {name: mean.clone().requires_grad_() for name, mean in means.items()}
            generator = torch.Generator().manual_seed(seed)
            call(module, inputs, layout, means, scales, generator).square().mean().backward()
            gradients.append(means["2.bias"].grad)
        spreads.append(torch.stack(gradients).var(dim=0).sum())  # type: ignore[arg-type]
    assert spreads[0] < spreads[1] / 10


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("space", [(), (5,), (3, 4), (2, 3, 2)])
def test_slopes_written_out_are_those_of_finite_differences(
    space: tuple[int, ...], device: str
) -> None:
    torch.manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.rand(shape, dtype=torch.float64, device=device).requires_grad_(True)

    if space:
        signs = torch.sign(torch.randn(4, 3, *(1 for _ in space), device=device).double())
        maps, bias, noise = some(4, 3, *space), some(3), some(3)

        def layer(maps: Tensor, bias: Tensor, noise: Tensor) -> Tensor:
            return stochastic._NoisyBias.apply(maps + 0.0, bias, noise, signs)

        expected = maps + (bias + noise * signs.flatten(1)).view(signs.shape)
        torch.testing.assert_close(layer(maps, bias, noise), expected)
        assert torch.autograd.gradcheck(layer, (maps, bias, noise))
        return
    normal = torch.randn(4, 2, device=device).double()
    inputs = (some(4, 3), some(2, 3), some(2), some(2, 3), some(2))
    assert torch.autograd.gradcheck(
        lambda *given: stochastic._NoisyLinear.apply(*given, normal), inputs
    )
