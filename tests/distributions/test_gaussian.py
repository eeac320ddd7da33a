"""The Gaussian over weights: construction, refusal, sampling, storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


class Tied(nn.Module):
    """One weight used by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(inputs)))


def test_around_and_centered_cover_every_parameter(network: nn.Module) -> None:
    around = DiagonalGaussian.around(network, scale=0.2)
    centered = DiagonalGaussian.centered(network, scale=2.0)
    names = tuple(name for name, _ in network.named_parameters())
    assert around.names == centered.names == names
    assert around.weights == sum(p.numel() for p in network.parameters())
    for name, parameter in network.named_parameters():
        assert torch.equal(around.means[name], parameter)
        assert torch.equal(around.scales[name], torch.full_like(parameter, 0.2))
        assert not around.means[name].requires_grad
        assert torch.count_nonzero(centered.means[name]) == 0


def test_scales_by_name(network: nn.Module) -> None:
    scales: dict[str, float | torch.Tensor] = dict.fromkeys(dict(network.named_parameters()), 0.5)
    scales["0.weight"] = torch.rand(3, 4) + 0.1
    posterior = DiagonalGaussian.around(network, scale=scales)
    assert torch.equal(posterior.scales["0.weight"], scales["0.weight"])
    assert float(posterior.scales["2.bias"][0]) == 0.5
    del scales["2.bias"]
    with pytest.raises(BadInput, match=r"2\.bias"):
        DiagonalGaussian.around(network, scale=scales)


def test_keeps_its_own_copies(network: nn.Module) -> None:
    posterior = DiagonalGaussian.around(network)
    before = posterior.digest()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert posterior.digest() == before
    with pytest.raises(TypeError):
        posterior.means["0.weight"] = torch.zeros(3, 4)  # type: ignore[index]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 1e-60])
def test_refuses_scales_that_are_not_positive_and_finite(network: nn.Module, scale: float) -> None:
    with pytest.raises(BadInput, match=r"scales\['0\.weight'\]"):
        DiagonalGaussian.around(network, scale=scale)


def test_refuses_bad_tensors_by_name() -> None:
    good = {"w": torch.zeros(2)}
    one = {"w": torch.ones(2)}
    with pytest.raises(BadInput, match=r"'w'.*NaN"):
        DiagonalGaussian(means={"w": torch.tensor([0.0, float("nan")])}, scales=one)
    with pytest.raises(BadInput, match=r"'w'.*shape"):
        DiagonalGaussian(means=good, scales={"w": torch.ones(3)})
    with pytest.raises(BadInput, match=r"'w'.*dtype"):
        DiagonalGaussian(means=good, scales={"w": torch.ones(2, dtype=torch.float64)})
    with pytest.raises(BadInput, match="floating-point"):
        DiagonalGaussian(means={"w": torch.zeros(2, dtype=torch.int64)}, scales=one)
    with pytest.raises(BadInput, match=r"lacks 1 .* 'w'"):
        DiagonalGaussian(means=good, scales={"v": torch.ones(2)})
    with pytest.raises(BadInput, match="no parameter"):
        DiagonalGaussian(means={}, scales={})


def test_comparison_needs_the_same_network(network: nn.Module) -> None:
    posterior = DiagonalGaussian.around(network)
    with pytest.raises(BadInput, match=r"0\.bias"):
        posterior.kl_to(DiagonalGaussian.around(nn.Linear(4, 3)))
    other = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    with pytest.raises(BadInput, match=r"'0\.weight' has shape"):
        posterior.kl_to(DiagonalGaussian.around(other))
    with pytest.raises(BadInput, match=r"'0\.weight' has shape"):
        posterior.check_covers(other)


def test_samples_have_the_declared_moments(network: nn.Module) -> None:
    posterior = DiagonalGaussian.around(network, scale=0.3)
    generator = torch.Generator().manual_seed(3)
    drawn = torch.stack([posterior.sample(generator=generator)["0.weight"] for _ in range(4000)])
    noise = (drawn - posterior.means["0.weight"]) / 0.3
    assert float(noise.mean(0).abs().max()) < 5 / 4000**0.5
    assert float((noise.var(0) - 1).abs().max()) < 5 * (2 / 4000) ** 0.5


def test_sampling_is_a_function_of_the_generator(network: nn.Module) -> None:
    posterior = DiagonalGaussian.around(network)
    first, second = (posterior.sample(generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in posterior.names)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_follows_the_dtype(network: nn.Module, dtype: torch.dtype) -> None:
    posterior = DiagonalGaussian.around(network.to(dtype), scale=0.1)
    drawn = posterior.sample(generator=torch.Generator().manual_seed(0))
    assert all(tensor.dtype == dtype for tensor in drawn.values())
    assert posterior.kl_nats(DiagonalGaussian.centered(network, 1.0)) > 0


def test_tied_parameters_appear_once_and_reach_both_layers() -> None:
    network = Tied().eval()
    posterior = DiagonalGaussian.around(network, scale=0.1)
    assert posterior.names == ("first.weight", "first.bias", "second.bias")
    zeros = {name: torch.zeros_like(mean) for name, mean in posterior.means.items()}
    outputs = functional_call(network, zeros, (torch.randn(3, 4),))
    assert torch.count_nonzero(outputs) == 0
    aliased = {name: p.detach() for name, p in network.named_parameters(remove_duplicate=False)}
    with pytest.raises(BadInput, match=r"second\.weight"):
        DiagonalGaussian.from_means(aliased, 0.1).check_covers(network)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_through_a_file(network: nn.Module, tmp_path: Path, dtype: torch.dtype) -> None:
    posterior = DiagonalGaussian.around(network.to(dtype), scale=0.07)
    path = tmp_path / "posterior.safetensors"
    posterior.save(path)
    loaded = DiagonalGaussian.load(path)
    assert loaded.names == posterior.names
    assert loaded.digest() == posterior.digest()
    first = posterior.sample(generator=torch.Generator().manual_seed(5))
    second = loaded.sample(generator=torch.Generator().manual_seed(5))
    assert all(torch.equal(first[name], second[name]) for name in posterior.names)
    assert [entry.name for entry in tmp_path.iterdir()] == ["posterior.safetensors"]


def test_a_broken_write_leaves_the_old_file(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "posterior.safetensors"
    old = DiagonalGaussian.around(network, scale=0.1)
    old.save(path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        DiagonalGaussian.around(network, scale=0.9).save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["posterior.safetensors"]
    assert DiagonalGaussian.load(path).digest() == old.digest()


def test_loading_refuses_what_it_did_not_write(network: nn.Module, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "x.safetensors"
    with pytest.raises(BadInput, match="no file"):
        DiagonalGaussian.load(path)
    path.write_bytes(b"not a tensor file")
    with pytest.raises(BadInput, match="not a readable"):
        DiagonalGaussian.load(path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(BadInput, match="does not hold"):
        DiagonalGaussian.load(path)
    DiagonalGaussian.around(network).save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BadInput, match="not a readable"):
        DiagonalGaussian.load(path)


def test_equal_distributions_give_equal_files(tmp_path: Path, network: nn.Module) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "new" / "b.safetensors"
    DiagonalGaussian.around(network).save(first)
    DiagonalGaussian.around(network).save(second)
    assert first.read_bytes() == second.read_bytes()


def test_digest_sees_names_shapes_dtypes_and_bytes() -> None:
    base = DiagonalGaussian.from_means({"w": torch.zeros(2, 3)}, 1.0)
    others = [
        DiagonalGaussian.from_means({"v": torch.zeros(2, 3)}, 1.0),
        DiagonalGaussian.from_means({"w": torch.zeros(3, 2)}, 1.0),
        DiagonalGaussian.from_means({"w": torch.zeros(2, 3, dtype=torch.float64)}, 1.0),
        DiagonalGaussian.from_means({"w": torch.zeros(2, 3)}, 1.5),
        DiagonalGaussian.from_means({"w": torch.ones(2, 3)}, 1.0),
    ]
    digests = {gaussian.digest() for gaussian in (base, *others)}
    assert len(digests) == 6
    assert DiagonalGaussian.from_means({"w": torch.zeros(2, 3)}, 1.0).digest() == base.digest()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_moves_to_a_gpu_and_back(network: nn.Module) -> None:
    posterior = DiagonalGaussian.around(network, scale=0.1)
    moved = posterior.to("cuda")
    prior = DiagonalGaussian.centered(network)
    assert moved.digest() == posterior.digest()
    assert moved.kl_nats(prior.to("cuda")) == pytest.approx(posterior.kl_nats(prior), rel=1e-12)
    for place in ("cpu", "cuda"):
        drawn = moved.sample(generator=torch.Generator(place).manual_seed(0))
        assert all(tensor.is_cuda for tensor in drawn.values())
    network.to("cuda")
    assert DiagonalGaussian.around(network).device.type == "cuda"
