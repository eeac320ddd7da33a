"""What goes into and comes out of training many networks at once: plain records."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

AUGMENTATIONS = ("none", "crop", "full")
PRECISIONS = ("float32", "bfloat16")
METHODS = ("auto", "matrices", "vmap", "streams", "one at a time")


@dataclass(frozen=True)
class Job:
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

    labels: int = 0
    inputs: int = 0
    seed: int = 0
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    augmentation: str = "none"
    dropout: float = 0.0


@dataclass(frozen=True)
class ManySettings:
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

    epochs: int
    batch_size: int = 128
    momentum: float = 0.9
    decay: float = 0.95
    stop_when_fit: bool = False
    fit_loss: float | None = None
    patience: int = 1
    stop_loss: float | None = None
    measure_every: int = 1
    precision: str = "float32"


@dataclass(frozen=True)
class EpochRecord:
    """A network measured at the end of an epoch, in evaluation mode.

    epoch and steps count from the start; train_loss is the mean cross-entropy on the training set;
    errors are counts. Marked and unmarked training examples are counted apart where marks were
    given. rate is the learning rate of the epoch.
    """

    epoch: int
    steps: int
    train_loss: float
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
    examples, marked_examples, test_examples
                    what the error counts are out of; None where there was nothing to count
    stopped         "epochs" (all done), "fit" (see ManySettings.stop_when_fit), "loss" (see
                    ManySettings.stop_loss) or "diverged" (its loss left the finite numbers; the
                    last record tells when)
    """

    job: Job
    history: tuple[EpochRecord, ...]
    state: dict[str, Tensor]
    fit_epoch: int | None
    examples: int
    marked_examples: int | None
    test_examples: int | None
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
