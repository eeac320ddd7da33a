"""One network of the randomization paper: what it was trained on, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.experiments.zhang_published import TITLES
from nonvacuous.files import write_atomically

#: How corruptions and regularizers are called in tables.
_LABELS = {
    "true": "true labels",
    "random-labels": "random labels",
    "shuffled-pixels": "shuffled pixels",
    "random-pixels": "random pixels",
    "gaussian": "Gaussian images",
}
_AUGMENTATIONS = {"crop": "random crops", "full": "full augmentation"}


@dataclass(frozen=True)
class Cell:
    """One network to train.

    network        a name of the settings, such as "mlp-1x512"
    corruption     what is done to the data, such as "true", "partial:0.4" or "gaussian"
    augmentation   "none", "crop" or "full"
    decay          whether the network's weight decay is on
    """

    network: str
    corruption: str = "true"
    augmentation: str = "none"
    decay: bool = False

    @property
    def key(self) -> str:
        """A name for files.

        >>> Cell("mlp-1x512", "partial:0.4", decay=True).key
        'mlp-1x512.partial-0.4.none.decay'
        """
        ending = "decay" if self.decay else "plain"
        return f"{self.network}.{self.corruption.replace(':', '-')}.{self.augmentation}.{ending}"

    @property
    def regularizers(self) -> str:
        """In words.

        >>> Cell("alexnet", augmentation="crop", decay=True).regularizers
        'random crops, weight decay'
        """
        parts = [_AUGMENTATIONS[self.augmentation]] if self.augmentation != "none" else []
        return ", ".join(parts + ["weight decay"] * self.decay) or "none"

    def __str__(self) -> str:
        told = [network_title(self.network), corruption_title(self.corruption)]
        return ", ".join(told + [self.regularizers] * (self.regularizers != "none"))


def network_title(network: str) -> str:
    """The paper's name of a network, where it is one of the paper's."""
    return TITLES.get(network, network)


def corruption_title(corruption: str) -> str:
    """A corruption in words.

    >>> corruption_title("partial:0.4")
    '40 % of the labels redrawn'
    """
    name, _, strength = corruption.partition(":")
    if name == "partial":
        return f"{100 * float(strength):g} % of the labels redrawn"
    return _LABELS.get(corruption, corruption)


@dataclass(frozen=True)
class Point:
    """One measurement, at the end of an epoch.

    loss              mean cross-entropy on the training examples, against the labels given
    redrawn_errors    among the training examples whose label was redrawn; kept_errors: the others
    """

    epoch: int
    steps: int
    loss: float | None
    train_errors: int
    redrawn_errors: int | None
    kept_errors: int | None
    test_errors: int


@dataclass(frozen=True)
class CellResult:
    """A trained network.

    parameters   of the network
    redrawn      how many training labels were redrawn
    history      its measurements; the last one is the network that the tables are about
    stopped      "epochs", "fit" or "diverged"
    training     everything that decided about it besides its data: see ``training_record``
    method       how networks were trained at once, and with how many others (``together``)
    seconds      its share of the time
    """

    cell: Cell
    parameters: int
    examples: int
    redrawn: int
    test_examples: int
    history: tuple[Point, ...]
    stopped: str
    training: Mapping[str, Any]
    method: str
    together: int
    seconds: float
    device: str

    @property
    def train_accuracy(self) -> float:
        """Percent, against the labels given."""
        return _percent(self.history[-1].train_errors, self.examples)

    @property
    def test_accuracy(self) -> float:
        """Percent."""
        return _percent(self.history[-1].test_errors, self.test_examples)

    @property
    def fitted(self) -> Point | None:
        """The first measurement without a training error."""
        return next((point for point in self.history if point.train_errors == 0), None)

    def reached(self, accuracy: float) -> Point | None:
        """The first measurement with at least this training accuracy, in percent."""
        return next(
            (
                point
                for point in self.history
                if _percent(point.train_errors, self.examples) >= accuracy
            ),
            None,
        )

    @property
    def at_fit(self) -> Point:
        """The network when it first fitted its labels; the last one where it never did."""
        return self.fitted or self.history[-1]

    @property
    def best(self) -> Point:
        """The measurement with the fewest test errors: what perfect early stopping would keep."""
        return min(self.history, key=lambda point: (point.test_errors, point.epoch))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file, derived ones included."""
        return {
            **asdict(self),
            "key": self.cell.key,
            "train_accuracy": self.train_accuracy,
            "test_accuracy": self.test_accuracy,
            "fit_epoch": None if self.fitted is None else self.fitted.epoch,
        }

    def save(self, path: Path) -> None:
        """Write JSON; a reader sees the whole file or none."""
        text = json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"
        write_atomically(path, lambda stream: stream.write(text.encode()))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> CellResult:
        """The result out of such a record."""
        known = {name: record[name] for name in cls.__dataclass_fields__}
        known["cell"] = Cell(**record["cell"])
        known["history"] = tuple(Point(**point) for point in record["history"])
        return cls(**known)

    @classmethod
    def load(cls, path: Path) -> CellResult:
        """Read what :meth:`save` wrote."""
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{path} is not a result of this experiment ({error!r}); remove it to compute it "
                "anew"
            ) from error


def _percent(errors: int, examples: int) -> float:
    return 100.0 * (examples - errors) / examples
