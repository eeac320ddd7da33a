"""Everything that decides which networks the study of measures trains, and how it judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Self

from nonvacuous.errors import BadInput
from nonvacuous.experiments.settings_files import SettingsFile, check_names
from nonvacuous.training.checks import real_number, whole_number

#: The axes of the grid, in the order in which they are shown.
AXES = (
    "width", "depth", "learning_rate", "batch_size", "weight_decay", "dropout", "label_noise",
    "examples",
)  # fmt: skip
#: What networks trained in the same tensors have in common.
SHARED = ("width", "depth", "batch_size", "examples")
_WHOLE = {"width", "depth", "batch_size", "examples"}
#: What may change between a run and its resumption: how trained networks are judged, not they.
JUDGING = {
    "draws",
    "information_draws",
    "beyond",
    "per_root_n",
    "alone",
    "alone_epochs",
    "together",
}


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

    @property
    def key(self) -> str:
        """A name that says what it is."""
        return (
            f"w{self.width}-d{self.depth}-r{self.learning_rate:g}-b{self.batch_size}"
            f"-l{self.weight_decay:g}-o{self.dropout:g}-p{self.label_noise:g}-n{self.examples}"
            f"-s{self.repetition}"
        )

    @property
    def model(self) -> str:
        """The perceptron's name in ``nonvacuous.models``: ``depth`` hidden layers."""
        return "mlp:" + ",".join([str(self.width)] * self.depth)

    @property
    def group(self) -> tuple[Any, ...]:
        """Networks with the same of this can be trained in the same tensors."""
        return tuple(getattr(self, name) for name in SHARED)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Axis -> value, the repetition apart."""
        return {name: getattr(self, name) for name in AXES}


@dataclass(frozen=True)
class StudySettings(SettingsFile):
    """The grid, the stopping rule and the statistics.

    data          a data set's name; pool: squares of so many pixels are averaged first
    width ... examples
                  the values of each axis; the grid has every combination
    repetitions   networks of each combination, by different seeds
    stop_loss     training ends when the cross-entropy on the training set is at most this
    epochs        a network that has not got there by then is counted, but not judged
    measures      names or families of measures, or "cheap"; none names all
    unused_as_test
                  training examples that no network sees are tested on too
    per_root_n    divide measures that do not know how many examples there were by their square
                  root, as bounds do
    beyond        pairs enter the sign-error if their gaps differ by more standard errors than this
    draws         of the bootstrap; information_draws: of that for mutual information
    alone         networks trained once more one at a time, to compare the time
    alone_epochs  for so many epochs each
    together      most networks trained in the same tensors
    """

    data: str = "digits"
    pool: int = 1
    width: tuple[int, ...] = (32, 96)
    depth: tuple[int, ...] = (1, 2)
    learning_rate: tuple[float, ...] = (0.02, 0.05)
    batch_size: tuple[int, ...] = (16, 64)
    weight_decay: tuple[float, ...] = (0.0, 0.001)
    dropout: tuple[float, ...] = (0.0, 0.1)
    label_noise: tuple[float, ...] = (0.0, 0.1)
    examples: tuple[int, ...] = (150, 400)
    repetitions: int = 1
    stop_loss: float = 0.1
    epochs: int = 400
    measure_every: int = 2
    momentum: float = 0.9
    measures: tuple[str, ...] = ()
    unused_as_test: bool = True
    per_root_n: bool = True
    beyond: float = 1.0
    draws: int = 300
    information_draws: int = 60
    alone: int = 4
    alone_epochs: int = 10
    together: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (*AXES, "measures"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in AXES:
            self._check_axis(name)
        real_number("stop_loss", self.stop_loss, above=0.0)
        real_number("momentum", self.momentum, least=0.0, below=1.0)
        real_number("beyond", self.beyond, least=0.0)
        for name in ("pool", "repetitions", "epochs", "measure_every", "together", "alone_epochs"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("draws", "information_draws"):
            whole_number(name, getattr(self, name), least=10)
        for name in ("alone", "seed"):
            whole_number(name, getattr(self, name), least=0)

    def _check_axis(self, name: str) -> None:
        values = getattr(self, name)
        if not values or len(set(values)) < len(values):
            raise BadInput(f"{name} is {list(values)}; give at least one value, none of them twice")
        for value in values:
            if name in _WHOLE:
                whole_number(name, value, least=2 if name == "examples" else 1)
            elif name == "learning_rate":
                real_number(name, value, above=0.0)
            elif name == "label_noise":
                real_number(name, value, least=0.0, below=1.0 + 1e-12)
            else:
                real_number(name, value, least=0.0, below=1.0)

    def cells(self) -> tuple[Cell, ...]:
        """Every network of the grid."""
        values = (getattr(self, name) for name in AXES)
        return tuple(
            Cell(*combination) for combination in product(*values, range(self.repetitions))
        )

    def groups(self) -> Iterator[tuple[Cell, ...]]:
        """Networks to be trained at once."""
        found: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in self.cells():
            found.setdefault(cell.group, []).append(cell)
        for cells in found.values():
            for start in range(0, len(cells), self.together):
                yield tuple(cells[start : start + self.together])

    @classmethod
    def quick(cls) -> Self:
        """A few networks and the cheap measures, in seconds."""
        return cls(
            width=(8, 32), depth=(1, 2), learning_rate=(0.1,), batch_size=(32,),
            weight_decay=(0.0,), dropout=(0.0,), label_noise=(0.0, 0.1), examples=(100, 300),
            repetitions=2, measures=("cheap",), draws=100, information_draws=20, alone=2,
        )  # fmt: skip

    @classmethod
    def large(cls) -> Self:
        """Thousands of networks for one GPU: MNIST at 14 by 14 pixels."""
        return cls(
            data="mnist", pool=2, width=(48, 80, 128), depth=(1, 2, 3),
            learning_rate=(0.02, 0.04, 0.08), batch_size=(32, 96), weight_decay=(0.0, 0.0005),
            dropout=(0.0, 0.1), label_noise=(0.0, 0.1), examples=(250, 1000), repetitions=3,
            stop_loss=0.05, epochs=500, unused_as_test=False, alone=12,
            alone_epochs=30,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, where: str = "settings") -> Self:
        """Settings as they stand in a file."""
        check_names(record, cls, where)
        for name in (*AXES, "measures"):
            if name in record and not isinstance(record[name], list | tuple):
                raise BadInput(f"{where}: {name} must be a list, such as {name} = [...]")
        return cls(**record)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, as they stand in a file."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
        }
