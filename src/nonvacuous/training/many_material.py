"""What networks trained together are given: batches of the examples on the device, own layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nonvacuous.data.preprocessing import center_crop
from nonvacuous.errors import BadInput
from nonvacuous.seeds import derived_seed
from nonvacuous.training.many_jobs import Job, ManyExamples, ManySettings, Prepare

# Random numbers as a function of (seed, step, purpose, place), computed on any device.
#
# Training many networks at once must draw for each of them what it would draw alone. A generator
# hands out numbers in the order of the requests, which differs between the methods; a hash of the
# place has no order. It needs no stored state either, so a resumed run draws what it would have
# drawn, and a recorded CUDA graph draws anew at each replay because the step lies in a tensor.

_BITS = 0xFFFFFFFF


def draw_seed(seed: int) -> int:
    """The 32-bit seed of all draws of a job."""
    return derived_seed(seed, "draws") & _BITS


def uniforms(seeds: Tensor, step: Tensor, purpose: int, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in [0, 1): of this shape for one seed, with a leading axis for several.

    `step` is a single whole number in a tensor, as are the seeds.
    """
    positions = torch.arange(math.prod(shape), device=seeds.device)
    start = _mixed(_mixed(seeds + purpose * 0x9E3779B1) + step * 0x85EBCA77)
    mixed = _mixed(start.unsqueeze(-1) ^ (positions * 0xC2B2AE3D))
    # 24 bits: as many as a float32 holds exactly.
    return ((mixed >> 8) * 2.0**-24).view(seeds.shape + shape)


def _mixed(values: Tensor) -> Tensor:
    """The finalizer of MurmurHash3 on the low 32 bits: each bit in changes half of those out."""
    values = values & _BITS
    values = ((values ^ (values >> 16)) * 0x85EBCA6B) & _BITS
    values = ((values ^ (values >> 13)) * 0xC2B2AE35) & _BITS
    return values ^ (values >> 16)


# Images changed at random at each visit: windows, mirroring, colors; always on their device.
#
# Images are stored with their channels last, (count, height, width, channels).

PADDING = 4
"""Black pixels put around images that are no larger than the window cut from them."""
STRENGTH = 0.3
"""Brightness, contrast and saturation are multiplied by 1 - STRENGTH to 1 + STRENGTH."""

_CORNER, _MIRROR, _COLOR = 101, 102, 103


def with_margin(images: Tensor, size: int | None) -> Tensor:
    """Images from which windows can be cut: padded if they are not larger than the window."""
    height, width = images.shape[1:3]
    if size is not None and (size < height or size < width):
        return images
    return pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))


def augmented(
    images: Tensor, chosen: Tensor, window: Sequence[int], kind: str, seed: Tensor, step: Tensor
) -> Tensor:
    """The images at the places `chosen`, each cut to a window at a random place.

    One lookup gathers, cuts and mirrors. `kind` is "crop" or "full".
    """
    count, (height, width) = len(chosen), window
    device = images.device
    corners = uniforms(seed, step, _CORNER, (2, count))
    tops = (corners[0] * (images.shape[1] - height + 1)).long()
    lefts = (corners[1] * (images.shape[2] - width + 1)).long()
    columns = torch.arange(width, device=device).expand(count, width)
    if kind == "full":
        mirrored = uniforms(seed, step, _MIRROR, (count, 1)) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    rows = tops[:, None] + torch.arange(height, device=device)
    columns = lefts[:, None] + columns
    cut = images[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    return _varied_colors(cut, seed, step) if kind == "full" else cut


def _varied_colors(images: Tensor, seed: Tensor, step: Tensor) -> Tensor:
    drawn = uniforms(seed, step, _COLOR, (3, len(images), 1, 1, 1))
    brightness, contrast, saturation = 1 + STRENGTH * (2 * drawn - 1)
    images = images * brightness
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = mean + contrast * (images - mean)
    if images.shape[3] == 3:
        gray = images.mean(dim=3, keepdim=True)
        images = gray + saturation * (images - gray)
    return images


_CHUNK = 4096


class Material:
    """Inputs, labels and marks on one device, and the settings that all networks share.

    Each input set is kept as networks are measured on it (central windows, prepared) and, if a job
    augments it, as it came. Images are kept with their channels last: that is the layout in which
    convolutions are fastest, and one lookup then reads whole pixels.
    """

    def __init__(
        self,
        examples: ManyExamples,
        jobs: Sequence[Job],
        settings: ManySettings,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.settings, self.device, self.dtype = settings, device, dtype
        self.examples = examples.labels.shape[1]
        self.labels = examples.labels.to(device)
        self.marked = None if examples.marked is None else examples.marked.to(device)
        self._prepare, self._crop_size = examples.prepare, examples.crop_size
        used = sorted({job.inputs for job in jobs})
        moved = {k: stored(examples.inputs[k].to(device, dtype)) for k in used}
        self.train = {k: self._seen(tensor) for k, tensor in moved.items()}
        self._raw = {
            k: with_margin(moved[k], examples.crop_size)
            for k in sorted({job.inputs for job in jobs if job.augmentation != "none"})
        }
        self.test = {
            k: (self._seen(stored(inputs.to(device, dtype))), labels.to(device))
            for k, (inputs, labels) in enumerate(examples.test or ())
            if k in used
        }

    def _seen(self, tensor: Tensor) -> Tensor:
        """Stored inputs as networks are measured on them."""
        parts = [
            stored(as_measured(shown(part), self._crop_size, self._prepare))
            for part in tensor.split(_CHUNK)
        ]
        return torch.cat(parts).contiguous()

    def batch(self, job: Job, chosen: Tensor, *, seed: Tensor, step: Tensor) -> Tensor:
        """The inputs at the places `chosen` as this job's network sees them at this step."""
        if job.augmentation == "none":
            return shown(self.train[job.inputs][chosen])
        window = self.train[job.inputs].shape[1:3]
        cut = augmented(self._raw[job.inputs], chosen, window, job.augmentation, seed, step)
        if self._prepare is not None:
            cut = stored(self._prepare(shown(cut)))
        return shown(cut.contiguous())


def as_measured(inputs: Tensor, crop_size: int | None, prepare: Prepare | None) -> Tensor:
    """Inputs in torch's order of axes, their central windows prepared."""
    if inputs.ndim == 4 and crop_size is not None:
        inputs = center_crop(inputs, crop_size)
    return inputs if prepare is None else prepare(inputs)


def stored(tensor: Tensor) -> Tensor:
    """Images with their channels last; other inputs as they are."""
    return tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor


def shown(tensor: Tensor, *, axes: int = 4) -> Tensor:
    """Images, which have so many axes, in torch's order of these; nothing moves in memory."""
    return tensor.movedim(-1, -3) if tensor.ndim == axes else tensor


def channels_first(shown: Tensor) -> Tensor:
    """The same moved to torch's usual order in memory; also said of a single channel."""
    return shown.clone(memory_format=torch.contiguous_format)


# Layers that a network is trained with in place of its own, which compute the same functions.
#
# Dropout has draws that belong to a job, so that every method of training drops the same units.


class BandedResponseNorm(nn.Module):
    """`nn.LocalResponseNorm` whose sums over neighboring channels are one matrix product.

    Torch sums by three-dimensional pooling, which takes most of a small network's step.
    """

    def __init__(self, layer: nn.LocalResponseNorm) -> None:
        super().__init__()
        self._size, self._alpha, self._beta, self._k = layer.size, layer.alpha, layer.beta, layer.k
        self._band: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs over (k + alpha * mean square of `size` neighboring channels) ** beta."""
        # Along the last axis: that is how channels-last images lie in memory.
        last = inputs.movedim(1, -1)
        sums = last.square() @ self._neighbors(inputs)
        scale = (sums * (self._alpha / self._size) + self._k).pow(-self._beta)
        normalized: Tensor = (last * scale).movedim(-1, 1)
        return normalized

    def _neighbors(self, inputs: Tensor) -> Tensor:
        """A square matrix of zeros and ones: column c adds up the channels around c."""
        band = self._band
        if band is None or band.device != inputs.device or band.dtype != inputs.dtype:
            channels = torch.arange(inputs.shape[1], device=inputs.device)
            distance = channels[:, None] - channels
            near = (distance >= -(self._size // 2)) & (distance <= (self._size - 1) // 2)
            self._band = band = near.to(inputs.dtype)
        return band


_FIRST_PURPOSE = 1000
_BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass(eq=False)
class Chance:
    """What the draws depend on: set before each forward pass, shared by all layers of a network."""

    seed: Tensor
    step: Tensor
    rate: Tensor


class SeededDropout(nn.Module):
    """As `torch.nn.Dropout` (or, by channel, `Dropout2d`), drawing by seed and step."""

    def __init__(self, drop: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._drop = drop

    def forward(self, values: Tensor) -> Tensor:
        """The values in evaluation; in training some are 0 and the others larger."""
        return self._drop(values) if self.training else values


def dropped(
    values: Tensor,
    chance: Chance,
    purpose: int,
    rate: Tensor | float,
    *,
    by_channel: bool = False,
) -> Tensor:
    """Set values to 0 with probability `rate` and divide the others by 1 - rate.

    With several seeds the first axis of the values belongs to them.
    """
    shape = tuple(values.shape)[chance.seed.ndim :]
    if by_channel:
        shape = shape[:2] + (1,) * (len(shape) - 2)
    drawn = uniforms(chance.seed, chance.step, _FIRST_PURPOSE + purpose, shape)
    kept = torch.where(drawn >= rate, 1.0 / (1.0 - rate), 0.0)
    return values * kept.to(values.dtype)


def with_own_layers(module: nn.Module, chance: Chance, *, everywhere: bool) -> nn.Module:
    """The module with layers of this file and, if told `everywhere`, with the job's own dropout.

    The job's own stands in front of every linear layer, except where that is the first layer with
    weights: the inputs themselves are not dropped. None of these layers has parameters, so that
    the names in the network's state stay what they were.
    """
    # A layer that stands in several places has draws of its own in each.
    places = dict(module.named_modules()) | dict(module.named_modules(remove_duplicate=False))
    for purpose, (name, layer) in enumerate(places.items()):
        if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
            raise BadInput(
                f"The network's layer {name} is {type(layer).__name__}, whose draws cannot be "
                "made the same alone and beside other networks. Use nn.Dropout, or train the "
                "networks one by one with nonvacuous.training.erm.train."
            )
        if type(layer) is nn.Dropout or isinstance(layer, _BY_CHANNEL):
            by_channel = isinstance(layer, _BY_CHANNEL)
            drop = partial(
                dropped, chance=chance, purpose=purpose, rate=layer.p, by_channel=by_channel
            )
            module.set_submodule(name, SeededDropout(drop))
        if type(layer) is nn.LocalResponseNorm:
            module.set_submodule(name, BandedResponseNorm(layer))
    if everywhere:
        _drop_before_linear_layers(module, chance)
    return module


def linear_layers_after_the_first(module: nn.Module) -> list[nn.Linear]:
    """The linear layers in front of which a job's dropout stands."""
    weighty = [
        layer for layer in module.modules() if isinstance(getattr(layer, "weight", None), Tensor)
    ]
    return [layer for layer in weighty[1:] if isinstance(layer, nn.Linear)]


def _drop_before_linear_layers(module: nn.Module, chance: Chance) -> None:
    layers = linear_layers_after_the_first(module)
    if not layers:
        raise BadInput(
            "A job asks for dropout, but the network has no linear layer after its first layer, so "
            "there is nothing to drop. Set dropout to 0, or put nn.Dropout into the network."
        )
    for number, layer in enumerate(layers):

        def drop(
            layer: nn.Module, arguments: tuple[Tensor, ...], purpose: int = -1 - number
        ) -> tuple[Tensor, ...]:
            if not layer.training:
                return arguments
            return (dropped(arguments[0], chance, purpose, chance.rate), *arguments[1:])

        layer.register_forward_pre_hook(drop)
