"""What goes into and comes out of training many networks at once: plain records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.settings import (
    Count,
    NonNegative,
    Positive,
    PositiveCount,
    Settings,
    Share,
    checked,
)
from nonvacuous.training.checks import one_of, whole_number

AUGMENTATIONS = ("none", "crop", "full")
PRECISIONS = ("float32", "bfloat16")
METHODS = ("auto", "matrices", "streams", "one at a time")

Prepare = Callable[[Tensor], Tensor]
"""A function of a batch of inputs, such as whitening; each input must be changed by itself."""


@dataclass(frozen=True, eq=False)
class ManyExamples:
    """What networks that are trained together learn from and are measured on.

    inputs      input sets, each (n, ...); jobs say which one they see. Sets may differ in shape
                as long as networks see the same shape after cropping
    labels      (rows, n): one labeling per row, int64; jobs say which one they learn
    test        one pair (inputs, labels) per input set
    marked      (rows, n): training examples whose errors are counted apart, such as those whose
                label was corrupted
    crop_size   networks see windows of this many pixels squared: the central one of each image,
                or, where a job says "crop" or "full", one at random. Without it such jobs see
                images of the full size, moved by up to 4 pixels with black margins
    prepare     applied to every batch of inputs after cropping and augmentation, in training and
                measuring alike, such as `data.whiten_each_image`. It must treat each input by
                itself; images come as (batch, channels, height, width)
    """

    inputs: Sequence[Tensor]
    labels: Tensor
    test: Sequence[tuple[Tensor, Tensor]] | None = None
    marked: Tensor | None = None
    crop_size: int | None = None
    prepare: Prepare | None = None

    def __post_init__(self) -> None:
        # Indices would silently reach a part of what is longer.
        pairs = [(inputs, self.labels[0]) for inputs in self.inputs] + list(self.test or ())
        numbers = all(len(inputs) == len(labels) for inputs, labels in pairs)
        tests = self.test is None or len(self.test) == len(self.inputs)
        marks = self.marked is None or self.marked.shape == self.labels.shape
        if not (numbers and tests and marks):
            raise BadInput(
                "Inputs, labels, marks and tests do not belong together: give one column of labels "
                "(and of marks) per input, one label per test input, one test per input set."
            )


class Job(Settings):
    """One network to train: what it learns from and how.

    labels          which row of the label matrix it learns
    inputs          which of the input sets it sees
    seed            of its initial weights, its order of the examples and all its other draws: two
                    jobs with equal seeds begin alike and see the examples in the same order
    learning_rate   of the first epoch
    weight_decay    added to the gradient, times the weights, for all parameters (as in torch's SGD)
    augmentation    "none"; "crop": a window at a random place of each image, anew at each visit;
                    "full": also mirrored at random, with brightness, contrast and saturation varied
    dropout         probability with which each input of a linear layer is set to 0 in training;
                    the network's first layer, if linear, keeps all of its inputs
    """

    labels: Count = 0
    inputs: Count = 0
    # Derived seeds are larger than any count.
    seed: Annotated[int, checked(whole_number, least=0)] = 0
    learning_rate: Positive = 0.01
    weight_decay: NonNegative = 0.0
    augmentation: Annotated[str, checked(one_of, choices=AUGMENTATIONS)] = "none"
    dropout: Share = 0.0


class ManySettings(Settings):
    """What all jobs share.

    epochs          passes over the training examples
    batch_size      at most this many examples per step; an epoch visits every example once, in as
                    few batches as possible, whose sizes differ by at most one
    momentum        of stochastic gradient descent
    decay           factor on the learning rate after each epoch
    stop_when_fit   let a job end early once it has fitted its training set: 0 errors and a loss of
                    at most `fit_loss`, at `patience` measurements in a row
    fit_loss        None asks for 0 errors only
    patience        see stop_when_fit
    stop_loss       let a job end early once its training loss is at most this, whatever its errors
    measure_every   epochs between two measurements; the last epoch is always measured
    precision       "float32" (on a GPU its matrix units round factors to TF32's 10 bits) or
                    "bfloat16" (matrix products and convolutions only; weights and their updates
                    stay float32)
    """

    epochs: PositiveCount
    batch_size: PositiveCount = 128
    momentum: Share = 0.9
    decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    stop_when_fit: bool = False
    fit_loss: Positive | None = None
    patience: PositiveCount = 1
    stop_loss: Positive | None = None
    measure_every: PositiveCount = 1
    precision: Annotated[str, checked(one_of, choices=PRECISIONS)] = "float32"

    def rate(self, job: Job, epoch: int) -> float:
        """A job's learning rate in an epoch, counted from 0."""
        return job.learning_rate * self.decay**epoch


@dataclass(frozen=True)
class EpochRecord:
    """A network measured at the end of an epoch, in evaluation mode.

    epoch and steps count from the start; train_loss is the mean cross-entropy on the training set,
    None where it left the finite numbers; errors are counts. Marked and unmarked training examples
    are counted apart where marks were given. rate is the learning rate of the epoch.
    """

    epoch: int
    steps: int
    train_loss: float | None
    train_errors: int
    marked_errors: int | None
    unmarked_errors: int | None
    test_errors: int | None
    rate: float


@dataclass(frozen=True, eq=False)
class JobResult:
    """A trained network with its history.

    state           an ordinary state_dict on the CPU, for `build(job.seed).load_state_dict(state)`
    fit_epoch       the first epoch measured with 0 training errors; None if there was none
    stopped         "epochs" (all done), "fit" (see ManySettings.stop_when_fit), "loss" (see
                    ManySettings.stop_loss) or "diverged" (its loss left the finite numbers; the
                    last record tells when)
    """

    job: Job
    history: tuple[EpochRecord, ...]
    state: dict[str, Tensor]
    fit_epoch: int | None
    stopped: str


@dataclass(frozen=True, eq=False)
class ManyResult:
    """All jobs in the order given, the method that trained them and the seconds it took.

    seconds         of the whole call, recording included; where training was resumed, together
                    with the earlier calls up to the checkpoint
    """

    jobs: tuple[JobResult, ...]
    method: str
    seconds: float


def check_jobs(jobs: Sequence[Job], examples: ManyExamples) -> None:
    """Jobs that ask for what there is."""
    inputs, crop_size = examples.inputs, examples.crop_size
    for number, job in enumerate(jobs):
        shape = tuple(inputs[job.inputs].shape[1:])
        if job.augmentation != "none" and len(shape) != 3:
            raise BadInput(
                f"jobs[{number}] asks for augmentation {job.augmentation!r}, which needs images of "
                f"shape (channels, height, width); its inputs have shape {shape}. Use 'none'."
            )
    if crop_size is not None:
        for number, tensor in enumerate(inputs):
            if tensor.ndim != 4 or crop_size > min(tensor.shape[2:]):
                raise BadInput(
                    f"crop_size is {crop_size}, but inputs[{number}] has the shape "
                    f"{tuple(tensor.shape)}: windows of that size need images (examples, channels, "
                    "height, width) at least as large."
                )


def built(build: Callable[[int], nn.Module], jobs: Sequence[Job]) -> list[nn.Module]:
    """One fresh network per job, all of the same architecture."""
    modules: list[nn.Module] = []
    for job in jobs:
        module = build(job.seed)
        if not isinstance(module, nn.Module):
            raise BadInput(
                f"build({job.seed}) returned {type(module).__name__}; it must return a new "
                "torch.nn.Module."
            )
        if any(module is other for other in modules):
            raise BadInput(
                f"build({job.seed}) returned a network it had returned before; make a new one at "
                "each call, for instance lambda seed: models.build('mlp:512', shape, 10, seed=seed)"
            )
        modules.append(module)
        if _shapes(module) != _shapes(modules[0]):
            raise BadInput(
                f"build({job.seed}) returned another architecture than build({jobs[0].seed}): "
                "networks trained together have parameters of the same names and shapes. Train "
                "other architectures by another call."
            )
    if not any(parameter.requires_grad for parameter in modules[0].parameters()):
        raise BadInput("The network has no parameter that requires a gradient: nothing to train.")
    return modules


def _shapes(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(tensor.shape)) for name, tensor in module.state_dict().items()]
