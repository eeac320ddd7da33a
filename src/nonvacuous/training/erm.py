"""Plain training: minimize the average cross-entropy. Used for priors learned from prior data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nonvacuous.data.examples import Examples
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.fixing import behind, behind_fixed_front, fixed_front
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.training import checks
from nonvacuous.training.augmentation import augmented, check_augmentation
from nonvacuous.training.events import EventLog
from nonvacuous.training.loop import Records, Schedule, borrowed_global_generator, run_epochs
from nonvacuous.training.optimizers import (
    OPTIMIZERS,
    SCHEDULES,
    build_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)


@dataclass(frozen=True)
class Score:
    """How a network does on examples: mean cross-entropy, and errors as a count."""

    loss: float
    errors: int
    examples: int


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network in evaluation mode and how it came about.

    module          the weights of `best_epoch`
    epochs          epochs run
    best_epoch      the epoch (counted from 1) whose weights are returned; 0 is the start
    stopped_early   whether patience ran out before the last epoch
    train           the returned network on its training examples
    validation      the returned network on the validation examples, if there were any
    history         one entry per epoch: running loss, and validation loss and errors
    """

    module: nn.Module
    epochs: int
    best_epoch: int
    stopped_early: bool
    train: Score
    validation: Score | None
    history: tuple[Mapping[str, Any], ...]


def train(
    model: nn.Module,
    examples: Examples,
    *,
    validation: Examples | None = None,
    epochs: int = 20,
    batch_size: int = 128,
    learning_rate: float = 0.05,
    schedule: str = "constant",
    optimizer: str = "sgd",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    augmentation: Sequence[str] = (),
    label_smoothing: float = 0.0,
    averaging: float = 0.0,
    half_precision: bool = False,
    patience: int | None = None,
    minimum_improvement: float = 0.0,
    seed: int = 0,
    device: torch.device | str | None = None,
    phase: str = "prior",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    events: EventLog | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
) -> Trained:
    """Train a copy of `model` by stochastic gradient descent on the cross-entropy.

    The model given stays as it is. The result depends on the arguments and `seed` alone, neither
    on the global random state nor (on a CPU) on whether the run was killed and resumed.

    validation       examples to watch, which for a prior must be prior data as well: a prior that
                     was stopped by looking at bound data has seen them
    patience         stop when the validation loss has not fallen by more than
                     `minimum_improvement` for so many epochs, and return the best epoch
    momentum         of SGD, or the first decay rate of Adam
    schedule         'constant'; 'cosine': learning rate falling to zero over all epochs; or
                     'one-cycle': rising for a quarter of the time, then falling to zero
    augmentation     changes of images at random at each visit, see `training.augmentation`
    label_smoothing  this share of each label is spread evenly over all classes
    averaging        decay per step of a running mean of the weights, which is then what is judged
                     and returned; 0 returns the last weights
    half_precision   on a GPU: compute in bfloat16 where that is safe; weights stay as they are
    device           where to compute and where the result lies; by default the model's device
    checkpoint       a file to write after every epoch, and to go on from if it is there
    checkpoint_every steps between further checkpoints, for long epochs
    events           a log (or its path) that receives the metrics of every epoch
    """
    examples = Examples.of(examples)
    validation = None if validation is None else Examples.of(validation)
    settings = {
        "epochs": checks.whole_number("epochs", epochs, least=0),
        "batch_size": checks.whole_number("batch_size", batch_size, least=1),
        "learning_rate": checks.real_number("learning_rate", learning_rate, above=0.0),
        "schedule": checks.one_of("schedule", schedule, SCHEDULES),
        "optimizer": checks.one_of("optimizer", optimizer, OPTIMIZERS),
        "momentum": checks.real_number("momentum", momentum, least=0.0, below=1.0),
        "weight_decay": checks.real_number("weight_decay", weight_decay, least=0.0),
        "augmentation": list(augmentation),
        "label_smoothing": checks.real_number(
            "label_smoothing", label_smoothing, least=0.0, below=1.0
        ),
        "averaging": checks.real_number("averaging", averaging, least=0.0, below=1.0),
        "half_precision": bool(half_precision),
        "patience": None
        if patience is None
        else checks.whole_number("patience", patience, least=1),
        "minimum_improvement": checks.real_number(
            "minimum_improvement", minimum_improvement, least=0.0
        ),
        "seed": checks.whole_number("seed", seed, least=0),
    }
    if patience is not None and validation is None:
        raise BadInput(
            "patience was given without validation examples to judge by. Give validation= (for a "
            "prior: a part of the prior data), or leave patience out."
        )
    check_augmentation(tuple(augmentation), examples.example_shape)
    records = Records.of(
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        events=events,
        progress=progress,
        tensorboard=tensorboard,
    )
    place = checks.module_device(model) if device is None else torch.device(device)
    module = copied_network(model).to(place)
    with borrowed_global_generator(place) as reseed:
        learner = _Learner(module, examples, validation, settings, place, reseed)
        run_epochs(
            learner,
            Schedule(phase, len(examples), batch_size, epochs, seed, place),
            records,
            configuration=_configuration(model, examples, validation, settings, records),
            advice=(
                f"Try a smaller learning_rate (now {learning_rate:g}), standardize inputs of very "
                "different sizes (--standardize), and look for extreme values among the inputs."
            ),
        )
    return learner.result(epochs)


def evaluate(module: nn.Module, inputs: Tensor, labels: Tensor, *, batch_size: int = 2048) -> Score:
    """Mean cross-entropy and number of errors of a module in evaluation mode."""
    totals = torch.zeros(2, dtype=torch.float64, device=labels.device)
    was_training = module.training
    module.eval()
    with torch.no_grad():
        for start in range(0, len(labels), batch_size):
            outputs = module(inputs[start : start + batch_size])
            wanted = labels[start : start + batch_size]
            totals[0] += cross_entropy(outputs, wanted, reduction="sum")
            totals[1] += (outputs.argmax(dim=1) != wanted).sum()
    module.train(was_training)
    loss, errors = totals.tolist()
    return Score(loss=loss / len(labels), errors=round(errors), examples=len(labels))


class _Learner:
    """The state of plain training; see `nonvacuous.training.loop.Learner`."""

    def __init__(
        self,
        module: nn.Module,
        examples: Examples,
        validation: Examples | None,
        settings: Mapping[str, Any],
        device: torch.device,
        reseed: Callable[[int], None],
    ) -> None:
        self._module = module
        self._reseed = reseed
        self._settings = settings
        self._inputs, self._labels = checks.resident(examples, module, device)
        self._validation = None
        if validation is not None:
            self._validation = checks.resident(validation, module, device, name="validation")
        trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not trainable:
            raise BadInput("The model has no parameter that requires a gradient: nothing to train.")
        self._front: nn.Module | None = None
        if not settings["augmentation"]:  # else every visit shows other inputs to the front
            self._front = fixed_front(module)
            self._inputs = behind_fixed_front(module, self._inputs)
            if self._validation is not None:
                inputs, labels = self._validation
                self._validation = behind(self._front, inputs), labels
        module.train()
        self._optimizer = build_optimizer(
            settings["optimizer"],
            [(trainable, settings["learning_rate"])],
            momentum=settings["momentum"],
            weight_decay=settings["weight_decay"],
        )
        self._steps = -(-len(examples) // settings["batch_size"])
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self._average = _copies(module) if settings["averaging"] else None
        self._best = _copies(module)
        self.facts: dict[str, Any] = {"history": [], "best_epoch": 0, "best_loss": None}

    def tensors(self) -> dict[str, Tensor]:
        kept = {f"module.{name}": tensor for name, tensor in _tensors(self._module).items()}
        kept |= optimizer_tensors(self._optimizer)
        kept["loss_sum"] = self._loss_sum
        if self._average is not None:
            kept |= {f"average.{name}": tensor for name, tensor in self._average.items()}
        if self._settings["patience"] is not None:
            kept |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        return kept

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in _tensors(self._module).items():
                tensor.copy_(tensors[f"module.{name}"])
            for name, tensor in self._best.items():
                tensor.copy_(tensors.get(f"best.{name}", tensor))
            for name, tensor in (self._average or {}).items():
                tensor.copy_(tensors[f"average.{name}"])
            self._loss_sum.copy_(tensors["loss_sum"])
        restore_optimizer(self._optimizer, tensors)

    def step(self, *, epoch: int, step: int, batch: Tensor) -> None:
        settings = self._settings
        position = epoch * self._steps + step
        set_rate(
            self._optimizer,
            settings["schedule"],
            position / (self._steps * settings["epochs"]),
        )
        self._reseed(derived_seed(settings["seed"], "layers", epoch, step))
        inputs = augmented(self._inputs[batch], settings["augmentation"])
        with torch.autocast(
            inputs.device.type,
            torch.bfloat16,
            enabled=settings["half_precision"] and inputs.is_cuda,
        ):
            outputs = self._module(inputs)
        loss = cross_entropy(
            outputs.to(inputs.dtype),
            self._labels[batch],
            label_smoothing=settings["label_smoothing"],
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._loss_sum += loss.detach() * len(batch)
        if self._average is not None:
            # In the first steps the mean of all weights so far, for the start is worth nothing.
            share = max(1.0 - settings["averaging"], 1.0 / (position + 1))
            _move_toward(self._average, _tensors(self._module), share)

    def _judged(self) -> Mapping[str, Tensor]:
        """The weights that count: the running mean where there is one."""
        return _tensors(self._module) if self._average is None else self._average

    def end_epoch(self, epoch: int) -> tuple[dict[str, Any], bool]:
        facts, patience = self.facts, self._settings["patience"]
        record: dict[str, Any] = {
            "epoch": epoch + 1,
            "loss": self._loss_sum.item() / len(self._labels),
        }
        self._loss_sum.zero_()
        stop = False
        if self._validation is not None:
            with _carrying(self._module, self._judged()):
                score = evaluate(self._module, *self._validation)
            record |= {"validation_loss": score.loss, "validation_errors": score.errors}
            needed = self._settings["minimum_improvement"]
            if facts["best_loss"] is None or score.loss < facts["best_loss"] - needed:
                facts["best_loss"], facts["best_epoch"] = score.loss, epoch + 1
                for name, tensor in self._judged().items():
                    self._best[name].copy_(tensor.detach())
            stop = patience is not None and epoch + 1 - facts["best_epoch"] >= patience
        facts["history"].append(record)
        return record, stop

    def result(self, epochs: int) -> Trained:
        ran, best, chosen = len(self.facts["history"]), len(self.facts["history"]), self._judged()
        if self._settings["patience"] is not None:
            best, chosen = self.facts["best_epoch"], self._best
        _put(self._module, chosen)
        self._module.eval()
        self._module.zero_grad(set_to_none=True)
        trained = Trained(
            module=self._module,
            epochs=ran,
            best_epoch=best,
            stopped_early=ran < epochs,
            train=evaluate(self._module, self._inputs, self._labels),
            validation=None
            if self._validation is None
            else evaluate(self._module, *self._validation),
            history=tuple(self.facts["history"]),
        )
        if self._front is not None:
            self._module.fixed_front = self._front.eval()
        return trained


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in _tensors(module).items()}


@torch.no_grad()
def _put(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, tensor in _tensors(module).items():
        tensor.copy_(values[name])


@torch.no_grad()
def _move_toward(
    average: Mapping[str, Tensor], present: Mapping[str, Tensor], share: float
) -> None:
    """One step of a running mean; whole numbers, such as counts of batches, are copied."""
    real = [name for name, tensor in average.items() if tensor.is_floating_point()]
    torch._foreach_lerp_([average[name] for name in real], [present[name] for name in real], share)
    for name in average.keys() - set(real):
        average[name].copy_(present[name])


@contextmanager
def _carrying(module: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """The module with these weights, for a while."""
    kept = _copies(module)
    _put(module, values)
    yield
    _put(module, kept)


def _configuration(
    model: nn.Module,
    examples: Examples,
    validation: Examples | None,
    settings: Mapping[str, Any],
    records: Records,
) -> dict[str, Any]:
    """What a checkpoint belongs to; digests take time, so only if there is a checkpoint."""
    if records.checkpoint is None:
        return {}
    return {
        **settings,
        "kind": "plain training",
        "architecture": str(model),
        "initial_weights": tensors_digest(_tensors(model)),
        "examples": examples.content_hash(),
        "validation": None if validation is None else validation.content_hash(),
    }
