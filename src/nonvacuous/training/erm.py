"""Plain training: minimize the average cross-entropy. Used for priors learned from prior data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from nonvacuous.data.examples import Examples
from nonvacuous.distributions.copying import copied_network
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.models.fronts import behind, behind_fixed_front, fixed_front
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import Count, NonNegative, PositiveCount
from nonvacuous.training import checks
from nonvacuous.training.augmentation import augmented, check_augmentation
from nonvacuous.training.loop import Learner, Records, borrowed_global_generator, run_epochs
from nonvacuous.training.optimizers import build_optimizer, optimizer_tensors
from nonvacuous.training_settings import Optimizer, PlainTraining, RateSchedule

_BATCH = 2048  # examples that a network is measured on at once


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
    best_epoch      the epoch (counted from 1) whose weights are returned; 0 is the start
    train           the returned network on its training examples
    history         one entry per epoch run: running loss, and validation loss and errors
    """

    module: nn.Module
    best_epoch: int
    train: Score
    history: tuple[Mapping[str, Any], ...]


class TrainSettings(PlainTraining):
    """Plain training as :func:`train` takes it: what a certificate's settings leave out, too.

    minimum_improvement   by how much the validation loss must fall to count as progress
    """

    epochs: Count = 20
    batch_size: PositiveCount = 128
    schedule: RateSchedule = "constant"
    optimizer: Optimizer = "sgd"
    # Any that is registered, not the library's own alone.
    augmentation: tuple[str, ...] = ()  # type: ignore[assignment]
    minimum_improvement: NonNegative = 0.0


def train(
    model: nn.Module,
    examples: Examples,
    settings: PlainTraining | None = None,
    *,
    validation: Examples | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    records: Records | None = None,
) -> Trained:
    """Train a copy of `model` by stochastic gradient descent on the cross-entropy.

    The model given stays as it is. The result depends on the arguments and `seed` alone, neither
    on the global random state nor (on a CPU) on whether the run was killed and resumed.

    validation   examples to watch, which for a prior must be prior data as well: a prior that was
                 stopped by looking at bound data has seen them. With patience the best epoch on
                 them is returned
    device       where to compute and where the result lies; by default the model's device
    """
    examples = Examples.of(examples)
    validation = None if validation is None else Examples.of(validation)
    chosen = TrainSettings(**dict(settings or ()))
    checks.whole_number("seed", seed, least=0)
    if chosen.patience is not None and validation is None:
        raise BadInput(
            "patience was given without validation examples to judge by. Give validation= (for a "
            "prior: a part of the prior data), or leave patience out."
        )
    check_augmentation(chosen.augmentation, examples.example_shape)
    own = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), "cpu")
    where = torch.device(own if device is None else device)
    module = copied_network(model).to(where)
    with borrowed_global_generator(where) as reseed:
        learner = _Learner(module, examples, validation, chosen, seed, where, reseed)
        run_epochs(
            learner,
            "prior",
            records or Records(),
            configuration=lambda: {
                **chosen.record(),
                "seed": seed,
                "kind": "plain training",
                "architecture": str(model),
                "initial_weights": tensors_digest(_tensors(model)),
                "examples": examples.content_hash(),
                "validation": None if validation is None else validation.content_hash(),
            },
            advice=(
                f"Try a smaller learning_rate (now {chosen.learning_rate:g}), standardize inputs "
                "of very different sizes (--standardize), and look for extreme values among the "
                "inputs."
            ),
        )
    return learner.result()


def evaluate(
    module: nn.Module, inputs: Tensor, labels: Tensor, *, weights: dict[str, Tensor] | None = None
) -> Score:
    """Mean cross-entropy and errors of a module in evaluation mode, or of it with other weights."""
    totals = torch.zeros(2, dtype=torch.float64, device=labels.device)
    with torch.no_grad(), checks.evaluation_mode(module):
        for part, wanted in zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True):
            outputs = functional_call(module, weights or {}, (part,))
            totals[0] += cross_entropy(outputs, wanted, reduction="sum")
            totals[1] += (outputs.argmax(dim=1) != wanted).sum()
    loss, errors = totals.tolist()
    return Score(loss=loss / len(labels), errors=round(errors), examples=len(labels))


class _Learner(Learner):
    """The state of plain training."""

    settings: TrainSettings

    def __init__(
        self,
        module: nn.Module,
        examples: Examples,
        validation: Examples | None,
        settings: TrainSettings,
        seed: int,
        device: torch.device,
        reseed: Callable[[int], None],
    ) -> None:
        self._module, self._reseed = module, reseed
        self.settings, self.seed = settings, seed
        self._inputs, self.labels = checks.resident(examples, module, device)
        self._validation = None
        if validation is not None:
            self._validation = checks.resident(validation, module, device, name="validation")
        trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not trainable:
            raise BadInput("The model has no parameter that requires a gradient: nothing to train.")
        self._front: nn.Module | None = None
        if not settings.augmentation:  # else every visit shows other inputs to the front
            self._front = fixed_front(module)
            self._inputs = behind_fixed_front(module, self._inputs)
            if self._validation is not None:
                inputs, labels = self._validation
                self._validation = behind(self._front, inputs), labels
        module.train()
        self.optimizer = build_optimizer(
            settings.optimizer,
            [(trainable, settings.learning_rate)],
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        # Empty where they are not asked for.
        self._average = _copies(module) if settings.averaging else {}
        self._best = _copies(module) if settings.patience is not None else {}
        self.facts: dict[str, Any] = {"history": [], "best_epoch": 0, "best_loss": None}

    def tensors(self) -> dict[str, Tensor]:
        copies = {"module": _tensors(self._module), "average": self._average, "best": self._best}
        kept = {f"{of}.{name}": own for of, each in copies.items() for name, own in each.items()}
        return {**kept, **optimizer_tensors(self.optimizer), "loss_sum": self._loss_sum}

    def step(self, batch: Tensor, *, epoch: int, step: int, done: int) -> None:
        settings = self.settings
        self._reseed(derived_seed(self.seed, "layers", epoch, step))
        inputs = augmented(self._inputs[batch], settings.augmentation)
        half = settings.half_precision and inputs.is_cuda
        arithmetic = torch.autocast(inputs.device.type, torch.bfloat16, enabled=half)
        with checks.in_batches_of(len(batch)), arithmetic:
            outputs = self._module(inputs).to(inputs.dtype)
        smoothing = settings.label_smoothing
        loss = cross_entropy(outputs, self.labels[batch], label_smoothing=smoothing)
        checks.check_learnable(loss)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self._loss_sum += loss.detach() * len(batch)
        if self._average:
            # In the first steps the mean of all weights so far, for the start is worth nothing.
            share = max(1.0 - settings.averaging, 1.0 / done)
            _move_toward(self._average, _tensors(self._module), share)

    def _judged(self) -> Mapping[str, Tensor]:
        """The weights that count: the running mean where there is one."""
        return self._average or _tensors(self._module)

    def end_epoch(self, epoch: int) -> tuple[dict[str, Any], bool]:
        facts, patience = self.facts, self.settings.patience
        loss = self._loss_sum.item() / len(self.labels)
        record: dict[str, Any] = {"epoch": epoch + 1, "loss": loss}
        self._loss_sum.zero_()
        stop = False
        if self._validation is not None:
            score = evaluate(self._module, *self._validation, weights=self._average)
            record |= {"validation_loss": score.loss, "validation_errors": score.errors}
            needed = self.settings.minimum_improvement
            if facts["best_loss"] is None or score.loss < facts["best_loss"] - needed:
                facts["best_loss"], facts["best_epoch"] = score.loss, epoch + 1
                judged = self._judged()
                for name, best in self._best.items():
                    best.copy_(judged[name].detach())
            stop = patience is not None and epoch + 1 - facts["best_epoch"] >= patience
        return record, stop

    def result(self) -> Trained:
        best, chosen = len(self.facts["history"]), self._judged()
        if self.settings.patience is not None:
            best, chosen = self.facts["best_epoch"], self._best
        with torch.no_grad():
            for name, tensor in _tensors(self._module).items():
                tensor.copy_(chosen[name])
        self._module.eval()
        self._module.zero_grad(set_to_none=True)
        trained = Trained(
            module=self._module,
            best_epoch=best,
            train=evaluate(self._module, self._inputs, self.labels),
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
def _move_toward(
    average: Mapping[str, Tensor], present: Mapping[str, Tensor], share: float
) -> None:
    """One step of a running mean; whole numbers, such as counts of batches, are copied."""
    real = [name for name, tensor in average.items() if tensor.is_floating_point()]
    torch._foreach_lerp_([average[name] for name in real], [present[name] for name in real], share)
    for name in average.keys() - set(real):
        average[name].copy_(present[name])
