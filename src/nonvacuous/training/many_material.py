"""The examples of all jobs, resident on the device, and the batches that networks see of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from nonvacuous.data.preprocessing import center_crop
from nonvacuous.seeds import derived_seed
from nonvacuous.training.many_jobs import Job, ManyExamples, Prepare

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
    """Inputs, labels and marks on one device.

    Each input set is kept as networks are measured on it (central windows, prepared) and, if a job
    augments it, as it came. Images are kept with their channels last: that is the layout in which
    convolutions are fastest, and one lookup then reads whole pixels.
    """

    def __init__(
        self,
        examples: ManyExamples,
        jobs: Sequence[Job],
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = device, dtype
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
        self.test: dict[int, tuple[Tensor, Tensor]] = {}
        tests = dict(enumerate(examples.test or ()))
        for k in used if tests else ():
            inputs, labels = tests[k]
            self.test[k] = self._seen(stored(inputs.to(device, dtype))), labels.to(device)

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


def shown(tensor: Tensor) -> Tensor:
    """Images in torch's order of axes, without moving them in memory."""
    return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor
