"""Everything that decides which networks the study of measures trains, and how it judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import share
from nonvacuous.study.settings import CellRecord, Derived, Frozen, StudySettings
from nonvacuous.training.checks import whole_number

#: A column of random numbers is judged along: what it scores is what chance alone gives.
CHANCE = "random-numbers"
#: The axes of the grid, in the order in which they are shown.
AXES = (
    "width", "depth", "learning_rate", "batch_size", "weight_decay", "dropout", "label_noise",
    "examples",
)  # fmt: skip
#: What networks trained in the same tensors have in common: the axes of whole numbers.
SHARED = ("width", "depth", "batch_size", "examples")
#: What the others may be, unless it is a share below 1.
_RANGES = {"learning_rate": checks.positive, "label_noise": checks.unit_interval}
#: How the training of a network ends that is judged: at the stopping loss.
REACHED = "loss"


@dataclass(frozen=True)
class Cell:
    """One network of the grid."""

    width: int
    depth: int
    learning_rate: float
    batch_size: int
    weight_decay: float
    dropout: float
    label_noise: float
    examples: int
    repetition: int
    network: str = "mlp"

    @property
    def key(self) -> str:
        kind = "" if self.network == "mlp" else f"{self.network}-"
        return (
            f"{kind}w{self.width}-d{self.depth}-r{self.learning_rate:g}-b{self.batch_size}"
            f"-l{self.weight_decay:g}-o{self.dropout:g}-p{self.label_noise:g}-n{self.examples}"
            f"-s{self.repetition}"
        )

    @property
    def model(self) -> str:
        """Its name in ``nonvacuous.models``: ``depth`` hidden layers or blocks of convolution."""
        return f"{self.network}:" + ",".join([str(self.width)] * self.depth)

    @property
    def group(self) -> tuple[Any, ...]:
        """Networks with the same of this can be trained in the same tensors."""
        return tuple(getattr(self, name) for name in SHARED)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Axis -> value, the repetition apart."""
        return {name: getattr(self, name) for name in AXES}


class MeasuresSettings(StudySettings):
    """The grid, the stopping rule and the statistics."""

    presets: ClassVar[Mapping[str, str]] = {
        "large": "2,592 perceptrons on MNIST at 14 by 14 pixels; for a GPU.",
        "cnn": "1,458 convolutional networks on CIFAR-10 at 16 by 16 pixels; for a GPU.",
        "quick": "A few networks and the cheap measures, in seconds.",
    }

    network: Literal["mlp", "cnn"] = "mlp"
    """mlp: perceptrons. cnn: blocks of 3 by 3 convolution, ReLU and max-pooling."""
    data: str = Field(default="digits", description="The data set.")
    pool: int = Field(default=1, description="Squares of so many pixels are averaged first.")
    centered: bool = False
    """Networks see 4 (x - 1/2) where pixels x run from 0 to 1."""
    width: tuple[int, ...] = (32, 96)
    """Units, or channels, of every hidden layer."""
    depth: tuple[int, ...] = Field(default=(1, 2), description="Hidden layers, or blocks.")
    learning_rate: tuple[float, ...] = Field(default=(0.02, 0.05), description="Learning rates.")
    batch_size: tuple[int, ...] = Field(default=(16, 64), description="Batch sizes.")
    weight_decay: tuple[float, ...] = (0.0, 0.001)
    """Strengths of weight decay."""
    dropout: tuple[float, ...] = Field(default=(0.0, 0.1), description="Shares of units left out.")
    label_noise: tuple[float, ...] = (0.0, 0.1)
    """Shares of labels redrawn."""
    examples: tuple[int, ...] = (150, 400)
    """Numbers of training examples."""
    repetitions: int = 1
    """Networks of each combination of these lists, by different seeds."""
    stop_loss: float = 0.1
    """Training ends when the cross-entropy on the training set is at most this."""
    epochs: int = 400
    """A network that has not got there by then is counted, but not judged."""
    measure_every: int = Field(default=2, description="Epochs between two looks at the loss.")
    momentum: float = Field(default=0.9, description="Of stochastic gradient descent.")
    measures: tuple[str, ...] = ()
    """Names or families of measures, or cheap; all by default."""
    unused_as_test: bool = True
    """Training examples that no network sees are tested on too."""
    per_root_n: bool = True
    """Divide measures that do not know how many examples there were by their square root, as bounds
    do."""
    beyond: float = 1.0
    """Pairs enter the sign-error if their gaps differ by more standard errors than this."""
    draws: int = Field(default=300, description="Of the bootstrap.")
    information_draws: int = Field(default=60, description="Of that for mutual information.")
    alone: int = 4
    """Networks trained once more one at a time, to compare the time."""
    alone_epochs: int = Field(default=10, description="For so many epochs each.")
    together: int = Field(default=256, description="Most networks trained in the same tensors.")
    train: bool = True
    """Train what the folder lacks. Without it the networks that are there are judged, those of a
    stopped run too."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        for name in AXES:
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                what = f"{name} is {list(values)}"
                raise BadInput(f"{what}; give at least one value, none of them twice")
            for value in values:
                if name in SHARED:
                    whole_number(name, value, least=2 if name == "examples" else 1)
                else:
                    _RANGES.get(name, share)(name, value)
        checks.positive("stop_loss", self.stop_loss)
        share("momentum", self.momentum)
        checks.non_negative("beyond", self.beyond)
        for name in ("pool", "repetitions", "epochs", "measure_every", "together", "alone_epochs"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("draws", "information_draws"):
            whole_number(name, getattr(self, name), least=10)
        whole_number("alone", self.alone, least=0)
        return self

    def networks(self) -> tuple[Cell, ...]:
        values = (getattr(self, name) for name in AXES)
        grid = product(*values, range(self.repetitions), [self.network])
        return tuple(Cell(*combination) for combination in grid)

    def groups(self) -> Iterator[tuple[Cell, ...]]:
        """Networks to be trained at once, in a random order: a stop leaves a part of the grid."""
        alike: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in sorted(self.networks(), key=lambda cell: cell.repetition):
            alike.setdefault(cell.group, []).append(cell)
        parts = [
            tuple(cells[start : start + self.together])
            for cells in alike.values()
            for start in range(0, len(cells), self.together)
        ]
        Random(derived_seed(self.seed, "measures study", "order")).shuffle(parts)
        yield from parts

    @classmethod
    def quick(cls) -> Self:
        return cls(
            width=(8, 32), depth=(1, 2), learning_rate=(0.1,), batch_size=(32,),
            weight_decay=(0.0,), dropout=(0.0,), label_noise=(0.0, 0.1), examples=(100, 300),
            repetitions=2, measures=("cheap",), draws=100, information_draws=20, alone=2,
        )  # fmt: skip

    @classmethod
    def large(cls) -> Self:
        return cls(
            data="mnist", pool=2, width=(48, 80, 128), depth=(1, 2, 3),
            learning_rate=(0.02, 0.04, 0.08), batch_size=(32, 96), weight_decay=(0.0, 0.0005),
            dropout=(0.0, 0.1), label_noise=(0.0, 0.1), examples=(250, 1000), repetitions=3,
            stop_loss=0.05, epochs=500, unused_as_test=False, alone=12,
            alone_epochs=30,
        )  # fmt: skip

    @classmethod
    def cnn(cls) -> Self:
        """The axes of Jiang et al. without the optimizer."""
        return cls(
            network="cnn", data="cifar10", pool=2, centered=True, width=(24, 32, 48),
            depth=(1, 2, 3), learning_rate=(0.005, 0.01, 0.02), batch_size=(32, 64, 128),
            weight_decay=(0.0, 0.001, 0.003), dropout=(0.0, 0.15, 0.3), label_noise=(0.0,),
            examples=(1500,), repetitions=2, stop_loss=0.1, epochs=300, unused_as_test=False,
            alone=0, together=27,
        )  # fmt: skip


class MeasuresCell(Frozen):
    """Networks trained in the same tensors, or (``alone``) one after another to take the time.

    most, levels   the largest training set and all levels of noise: what every network draws from
    """

    networks: tuple[Cell, ...]
    alone: bool = False
    data: str
    pool: int
    centered: bool
    most: int
    levels: tuple[float, ...]
    stop_loss: float
    epochs: int
    measure_every: int
    momentum: float
    measures: tuple[str, ...]
    unused_as_test: bool
    seed: int

    @classmethod
    def of(
        cls, networks: Sequence[Cell], settings: MeasuresSettings, *, alone: bool = False
    ) -> MeasuresCell:
        same = settings.model_dump(include={*cls.model_fields} - {"alone", "epochs"})
        return cls(
            networks=tuple(networks),
            alone=alone,
            most=max(settings.examples),
            levels=settings.label_noise,
            epochs=settings.alone_epochs if alone else settings.epochs,
            **same,
        )

    @property
    def key(self) -> str:
        first = self.networks[0]
        shared = f"w{first.width}-d{first.depth}-b{first.batch_size}-n{first.examples}"
        shared = shared if first.network == "mlp" else f"{first.network}-{shared}"
        return f"alone-{shared}" if self.alone else shared


class NetworkRecord(Frozen):
    """One network: how it was trained, what it came to, and every measure of it.

    stopped      REACHED, or why it is not judged
    measures     name -> {"number", "log10"}, or {"undefined": why}; empty where not judged
    """

    key: str
    hyperparameters: Mapping[str, Any]
    repetition: int
    stopped: str
    epochs: int
    steps: int
    train_loss: float | None
    train_errors: int
    test_loss: float | None
    test_errors: int
    test_examples: int
    measures: Mapping[str, Mapping[str, Any]]

    @property
    def judged(self) -> bool:
        return self.stopped == REACHED

    @property
    def test_error(self) -> float:
        return self.test_errors / self.test_examples

    @property
    def gap(self) -> float:
        """Test error minus training error, as shares."""
        return self.test_error - self.train_errors / int(self.hyperparameters["examples"])

    @property
    def loss_gap(self) -> float:
        """The same of the cross-entropy."""
        assert self.test_loss is not None and self.train_loss is not None
        return self.test_loss - self.train_loss


class Times(Derived):
    """How long it took.

    networks, seconds      trained together
    steps                  of all of them
    measuring_seconds      of the processes that computed measures, added up
    alone_*                networks trained one at a time on the same device, and their steps
    """

    derived = ("per_minute", "per_minute_alone", "speedup")

    networks: int = 0
    steps: int = 0
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    device: str = ""
    method: str = ""
    alone_networks: int = 0
    alone_steps: int = 0
    alone_seconds: float = 0.0

    @property
    def per_minute(self) -> float | None:
        """Networks trained in a minute, together."""
        return 60.0 * self.networks / self.seconds if self.seconds else None

    @property
    def per_minute_alone(self) -> float | None:
        """Networks trained in a minute one after the other, by the time of a step."""
        if not self.alone_seconds or not self.steps:
            return None
        return 60.0 * self.networks / (self.alone_seconds / self.alone_steps * self.steps)

    @property
    def speedup(self) -> float | None:
        """How many times longer the same would have taken one after the other."""
        together, alone = self.per_minute, self.per_minute_alone
        return None if together is None or alone is None else together / alone


class GroupResult(CellRecord):
    """The networks of a cell, none where they only took the time, and how long they took."""

    records: tuple[NetworkRecord, ...]
    times: Times

    def lines(self) -> tuple[str]:
        if not self.records:
            return (f"{self.times.alone_networks} networks one at a time",)
        first = self.records[0].key.rsplit("-s")[0]
        reached = f"{sum(record.judged for record in self.records)} of {len(self.records)}"
        return (f"{first} and its like, {reached} reached the stopping loss",)
