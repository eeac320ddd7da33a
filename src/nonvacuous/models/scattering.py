"""Fixed wavelet features of images, and the small network that learns on them.

A scattering transform (Bruna and Mallat 2013) is a convolutional network whose filters are known
beforehand: nothing in it is learned, so nothing in it has a price in a certificate. What is learned
on top can be small, and a bound that pays by the weight is small with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from nonvacuous.models.cnn import image_shape

_ANGLES = 8
_OCTAVES = 2
_STRIDE = 4
_FLOOR = 0.01
_REFERENCE_IMAGES = 200


class Scattering(nn.Module):
    """Logarithms of wavelet moduli of orders 0, 1 and 2 in eight directions at two scales.

    Images of c channels become 81 c maps of a quarter of the height and width (an eighth where
    that leaves eight pixels or more), each of mean 0 and deviation 1 on noise whose spectrum is
    that of natural images: the scaling looks at no data.

    mirror   average over the image and its mirror image, which then get the same features
    """

    wavelets: Tensor
    average: Tensor
    center: Tensor
    spread: Tensor

    def __init__(self, example_shape: Sequence[int], *, mirror: bool = False) -> None:
        super().__init__()
        channels, height, width = image_shape("scatter", example_shape)
        self.mirror = mirror
        self.pool = 2 if min(height, width) >= 8 * _STRIDE else 1
        wavelets = [
            _morlet(height, width, octave, math.pi * step / _ANGLES)
            for octave in range(_OCTAVES)
            for step in range(_ANGLES)
        ]
        self.register_buffer("wavelets", torch.stack(wavelets))
        self.register_buffer("average", _gaussian(height, width, _OCTAVES - 1))
        count = channels * (1 + _OCTAVES * _ANGLES + _ANGLES**2)
        self.register_buffer("center", torch.zeros(count, 1, 1))
        self.register_buffer("spread", torch.ones(count, 1, 1))
        if self.center.is_meta:  # asked for its shapes alone
            return
        with torch.no_grad():
            reference = self(_natural_noise(_REFERENCE_IMAGES, channels, height, width))
        # Few digits, so that another machine's rounding gives the same buffers.
        self.center.copy_(_coarse(reference.mean(dim=(0, 2, 3)))[:, None, None])
        self.spread.copy_(_coarse(reference.std(dim=(0, 2, 3)))[:, None, None])

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """The shape of the features of one image."""
        side = (-(-height // _STRIDE) // self.pool, -(-width // _STRIDE) // self.pool)
        return (len(self.center), *side)

    def forward(self, images: Tensor) -> Tensor:
        """Features of shape (examples, 81 c, height / 4, width / 4)."""
        maps = self._moduli(images)
        if self.mirror:
            maps = (maps + self._moduli(images.flip(3))) / 2
        logs = torch.log(maps.clamp_min(0.0) + _FLOOR)
        return (avg_pool2d(logs, self.pool) - self.center) / self.spread

    def _moduli(self, images: Tensor) -> Tensor:
        spectrum = torch.fft.fft2(images)
        maps = [self._smooth(spectrum)]
        for first in range(_OCTAVES * _ANGLES):
            once = torch.fft.fft2(torch.fft.ifft2(spectrum * self.wavelets[first]).abs())
            maps.append(self._smooth(once))
            if first < _ANGLES:  # what a finer wavelet leaves is looked at with the coarser ones
                for second in range(_ANGLES, 2 * _ANGLES):
                    twice = torch.fft.ifft2(once * self.wavelets[second]).abs()
                    maps.append(self._smooth(torch.fft.fft2(twice)))
        return torch.stack(maps, dim=2).flatten(1, 2)

    def _smooth(self, spectrum: Tensor) -> Tensor:
        smoothed: Tensor = torch.fft.ifft2(spectrum * self.average).real
        return smoothed[..., ::_STRIDE, ::_STRIDE]


class ScatteringNet(nn.Module):
    """Scattering, then a 1 x 1 convolution to `width` channels with ReLU, then a linear layer.

    `fixed_front` holds no parameter: training computes it once for every example.
    """

    def __init__(
        self, example_shape: Sequence[int], classes: int, *, width: int = 16, mirror: bool = False
    ) -> None:
        super().__init__()
        self.fixed_front = Scattering(example_shape, mirror=mirror)
        channels, height, columns = self.fixed_front.shape(*example_shape[1:])
        self.mix = nn.Conv2d(channels, width, 1)
        self.output = nn.Linear(width * height * columns, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.output(self.mix(self.fixed_front(inputs)).relu().flatten(1))
        return scores


def _coarse(values: Tensor) -> Tensor:
    return torch.tensor([float(f"{value:.3g}") for value in values.tolist()])


def _gaussian(height: int, width: int, octave: int) -> Tensor:
    """The spectrum of a Gaussian low-pass filter that sums to 1."""
    envelope = _periodic(height, width, octave, 0.0, slant=1.0, frequency=0.0)
    return _spectrum(envelope / envelope.sum())


def _morlet(height: int, width: int, octave: int, angle: float) -> Tensor:
    """The spectrum of a Morlet wavelet, which is real: a wave under a Gaussian, of mean zero."""
    slant = 0.5
    wave = _periodic(height, width, octave, angle, slant=slant, frequency=0.75 * math.pi)
    envelope = _periodic(height, width, octave, angle, slant=slant, frequency=0.0)
    balanced = wave - wave.sum() / envelope.sum() * envelope
    return _spectrum(balanced * slant / (2 * math.pi * (0.8 * 2**octave) ** 2))


def _spectrum(filter_: Tensor) -> Tensor:
    # Rounded, so that another machine's arithmetic gives the same buffers.
    real: Tensor = torch.fft.fft2(filter_).real
    return (real * 2**20).round().div(2**20).float()


def _periodic(
    height: int, width: int, octave: int, angle: float, *, slant: float, frequency: float
) -> Tensor:
    """A Gaussian, longer across than along `angle`, times a wave; wrapped around the borders."""
    deviation = 0.8 * 2**octave
    cosine, sine = math.cos(angle), math.sin(angle)
    total = torch.zeros(height, width, dtype=torch.complex128)
    for down in range(-2, 3):
        for right in range(-2, 3):
            rows = torch.arange(height, dtype=torch.float64)[:, None] + down * height
            columns = torch.arange(width, dtype=torch.float64)[None, :] + right * width
            along, across = cosine * rows + sine * columns, cosine * columns - sine * rows
            decay = (along**2 + (slant * across) ** 2) / (2 * deviation**2)
            total += torch.exp(torch.complex(-decay, frequency / 2**octave * along))
    return total


def _natural_noise(count: int, channels: int, height: int, width: int) -> Tensor:
    """Noise whose amplitudes fall as 1 / frequency, gray for the most part, around 1/2."""
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(count, channels, height, width, generator=generator)
    vertical = torch.fft.fftfreq(height)[:, None]
    distance = (vertical**2 + torch.fft.fftfreq(width)[None, :] ** 2).sqrt()
    distance[0, 0] = 1.0 / max(height, width)
    pink: Tensor = torch.fft.ifft2(torch.fft.fft2(white) / distance).real
    pink = 0.3 * pink + 0.7 * pink.sum(dim=1, keepdim=True)
    pink = pink - pink.mean(dim=(1, 2, 3), keepdim=True)
    return 0.5 + 0.25 * pink / pink.std(dim=(1, 2, 3), keepdim=True)
