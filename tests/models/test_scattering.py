"""Fixed wavelet features: what they keep, what they forget, and that they hold no parameter."""

from __future__ import annotations

import math

import pytest
import torch

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.models import build
from nonvacuous.models.scattering import Scattering, _morlet


def waves(angle: float, *, size: int = 32) -> torch.Tensor:
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    phase = 0.75 * math.pi * (rows * math.cos(angle) + columns * math.sin(angle))
    return (0.5 + 0.5 * torch.cos(phase)).view(1, 1, size, size)


@pytest.mark.slow
def test_nothing_in_the_front_is_learned() -> None:
    network = build("scatter:8", (1, 28, 28), 10, seed=0)
    assert not list(network.fixed_front.parameters())
    assert sum(p.numel() for p in network.parameters()) == 81 * 8 + 8 + 8 * 49 * 10 + 10


@pytest.mark.slow_if("shape1-features1")
@pytest.mark.parametrize("shape, features", [((1, 28, 28), (81, 7, 7)), ((3, 32, 32), (243, 4, 4))])
def test_shapes(shape: tuple[int, ...], features: tuple[int, ...]) -> None:
    front = Scattering(shape)
    assert front(torch.rand(2, *shape)).shape == (2, *features)
    assert front.shape(*shape[1:]) == features


@pytest.mark.slow
def test_each_direction_answers_to_its_own_waves() -> None:
    front = Scattering((1, 32, 32))
    for step in range(8):
        energy = front._moduli(waves(math.pi * step / 8))[0].mean(dim=(1, 2))
        first_order = [1 + 9 * index for index in range(8)]  # each is followed by its second order
        assert int(energy[first_order].argmax()) == step


def test_wavelets_have_mean_zero_and_equal_a_sum_written_out() -> None:
    spectrum = _morlet(16, 16, 1, 0.3)
    assert abs(float(spectrum[0, 0])) < 1e-5
    wavelet = torch.fft.ifft2(spectrum.double())
    deviation, slant, frequency = 1.6, 0.5, 0.75 * math.pi / 2

    def wrapped(row: int, column: int, wave: float) -> complex:
        total = 0.0 + 0.0j
        for down in range(-3, 4):
            for right in range(-3, 4):
                y, x = row + 16 * down, column + 16 * right
                along = math.cos(0.3) * y + math.sin(0.3) * x
                across = math.cos(0.3) * x - math.sin(0.3) * y
                decay = math.exp(-(along**2 + slant**2 * across**2) / (2 * deviation**2))
                total += decay * complex(math.cos(wave * along), math.sin(wave * along))
        return total

    sums = [
        sum(wrapped(r, c, wave) for r in range(16) for c in range(16)) for wave in (frequency, 0.0)
    ]
    for row, column in ((0, 0), (1, 2), (15, 3)):
        plain = wrapped(row, column, frequency) - sums[0] / sums[1] * wrapped(row, column, 0.0)
        expected = plain * slant / (2 * math.pi * deviation**2)
        assert abs(complex(wavelet[row, column]) - expected) < 1e-5


@pytest.mark.slow
def test_mirror_images_share_their_features_only_if_asked() -> None:
    images = torch.rand(3, 3, 32, 32)
    both = build("scatter:4/mirror", (3, 32, 32), 10, seed=0).eval()
    torch.testing.assert_close(both(images), both(images.flip(3)), rtol=1e-4, atol=1e-4)
    one = build("scatter:4", (3, 32, 32), 10, seed=0).eval()
    assert (one(images) - one(images.flip(3))).abs().max() > 1e-2


@pytest.mark.slow
def test_buffers_are_the_same_every_time() -> None:
    first, second = Scattering((1, 16, 16)), Scattering((1, 16, 16))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


@pytest.mark.parametrize("name", ["scatter:8,8", "scatter:8/flip", "scatter:x"])
def test_unknown_variants_are_refused(name: str) -> None:
    with pytest.raises(Unrecognized, match="scatter"):
        build(name, (1, 28, 28), 10)


def test_inputs_must_be_images() -> None:
    with pytest.raises(BadInput, match="images of shape"):
        build("scatter:8", (64,), 10)
