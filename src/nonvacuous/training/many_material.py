"""The examples of all jobs, resident on the device, and the batches that networks see of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nonvacuous.training.many_augmentation import augmented, center_windows, with_margin
from nonvacuous.training.many_draws import draw_seed
from nonvacuous.training.many_jobs import Job

Prepare = Callable[[Tensor], Tensor]
"""A function of a batch of inputs, such as whitening; each input must be changed by itself."""

_CHUNK = 4096


class Material:
    """Inputs, labels and marks on one device.

    Each input set is kept as networks are measured on it (central windows, prepared) and, if a job
    augments it, as it came. Images are kept with their channels last: that is the layout in which
    convolutions are fastest, and one lookup then reads whole pixels.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        labels: Tensor,
        jobs: Sequence[Job],
        *,
        test: Sequence[tuple[Tensor, Tensor]] | None,
        marked: Tensor | None,
        crop_size: int | None,
        prepare: Prepare | None,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = device, dtype
        self.examples = labels.shape[1]
        self.labels = labels.to(device)
        self.marked = None if marked is None else marked.to(device)
        self._prepare = prepare
        self._crop_size = crop_size
        used = sorted({job.inputs for job in jobs})
        moved = {place: stored(inputs[place].to(device, dtype)) for place in used}
        self.train = {place: self._seen(tensor) for place, tensor in moved.items()}
        self._raw = {
            place: with_margin(moved[place], crop_size)
            for place in sorted({job.inputs for job in jobs if job.augmentation != "none"})
        }
        self.test: dict[int, tuple[Tensor, Tensor]] = {}
        if test is not None:
            self.test = {
                place: (
                    self._seen(stored(test[place][0].to(device, dtype))),
                    test[place][1].to(device),
                )
                for place in used
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
        size = self.train[job.inputs].shape
        cut = augmented(
            self._raw[job.inputs],
            chosen,
            (size[1], size[2]),
            kind=job.augmentation,
            seed=seed,
            step=step,
        )
        if self._prepare is not None:
            cut = stored(self._prepare(shown(cut)))
        return shown(cut.contiguous())

    def seed(self, job: Job) -> Tensor:
        """The seed of the job's draws, where draws are made."""
        return torch.tensor(draw_seed(job.seed), device=self.device)


def as_measured(inputs: Tensor, crop_size: int | None, prepare: Prepare | None) -> Tensor:
    """Inputs in torch's order of axes, their central windows prepared."""
    if inputs.ndim == 4:
        inputs = shown(center_windows(stored(inputs), crop_size))
    return inputs if prepare is None else prepare(inputs)


def stored(tensor: Tensor) -> Tensor:
    """Images with their channels last; other inputs as they are."""
    return tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor


def shown(tensor: Tensor) -> Tensor:
    """Images in torch's order of axes, without moving them in memory."""
    return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor
