"""The networks of "Understanding deep learning requires rethinking generalization": what is
published of them, what each is trained on, and what came of it.

Zhang, Bengio, Hardt, Recht, Vinyals (ICLR 2017; arXiv 1611.03530). Accuracies in percent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nonvacuous.study.settings import CellRecord, Derived

PAPER = "Zhang, Bengio, Hardt, Recht, Vinyals (ICLR 2017)"
#: A network that gets so many of its labels right, in percent, has all but fitted them.
NEARLY = 99.0

#: The networks by the names used here: their names in the paper.
TITLES = {
    "inception": "Inception",
    "inception-no-bn": "Inception, no batch norm",
    "alexnet": "AlexNet",
    "mlp-3x512": "MLP 3×512",
    "mlp-1x512": "MLP 1×512",
}
#: Steps until the loss of Inception is at most 0.01: an independent reproduction of Figure 1a, not
#: the paper's own numbers, which it shows as curves only.
STEPS_TO_FIT = {
    "true": 5_700,
    "shuffled-pixels": 6_700,
    "gaussian": 9_900,
    "random-pixels": 13_000,
    "random-labels": 17_700,
}
#: ImageNet with Inception v3, not computed here: labels, regularizers, top-1 training and test
#: accuracy.
IMAGENET: tuple[tuple[str, str, float | None, float], ...] = (
    ("true", "all", None, 77.84),
    ("true", "none", None, 59.80),
    ("random", "none", 95.20, 0.1),
)

#: How corruptions and regularizers are called in tables.
_LABELS = {
    "true": "true labels",
    "random-labels": "random labels",
    "shuffled-pixels": "shuffled pixels",
    "random-pixels": "random pixels",
    "gaussian": "Gaussian images",
}
REGULARIZED = {
    "crop": "random crops",
    "full": "full augmentation",
    "decay": "weight decay",
    "dropout": "dropout",
}


@dataclass(frozen=True)
class Cell:
    """One network to train.

    network        a name of the settings, such as "mlp-1x512"
    corruption     what is done to the data, such as "true", "partial:0.4" or "gaussian"
    augmentation   "none", "crop" or "full"
    decay          whether the network's weight decay is on
    decay_times    how many times as strong as the recipe's it then is
    dropout        whether units are dropped in front of linear layers
    """

    network: str
    corruption: str = "true"
    augmentation: str = "none"
    decay: bool = False
    decay_times: float = 1.0
    dropout: bool = False

    @property
    def key(self) -> str:
        """A name for files.

        >>> Cell("mlp-1x512", "partial:0.4", decay=True).key
        'mlp-1x512.partial-0.4.none.decay'
        """
        ending = "decay" if self.decay else "plain"
        if self.decay_times != 1:
            ending += f"-{self.decay_times:g}-times"
        ending += "-dropout" * self.dropout
        return f"{self.network}.{self.corruption.replace(':', '-')}.{self.augmentation}.{ending}"

    @property
    def switched_on(self) -> tuple[str, ...]:
        """The names of its regularizers: some of "crop", "full", "decay", "dropout"."""
        names = (self.augmentation, "decay" * self.decay, "dropout" * self.dropout)
        return tuple(name for name in names if name and name != "none")

    @property
    def regularizers(self) -> str:
        """In words.

        >>> Cell("alexnet", augmentation="crop", decay=True).regularizers
        'random crops, weight decay'
        """
        words = ", ".join(REGULARIZED[name] for name in self.switched_on) or "none"
        strong = f"weight decay × {self.decay_times:g}"
        return words if self.decay_times == 1 else words.replace("weight decay", strong)

    def __str__(self) -> str:
        parts = [network_title(self.network), corruption_title(self.corruption)]
        return ", ".join(parts + [self.regularizers] * (self.regularizers != "none"))


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
class Row:
    """One row of a table, counted from the top, with the paper's accuracies in percent, if any."""

    number: int
    cell: Cell
    train: float | None = None
    test: float | None = None


def _rows() -> Iterator[Row]:
    yes, no = True, False
    printed = (
        ("inception", yes, yes, "true", 100.0, 89.05),
        ("inception", yes, no, "true", 100.0, 89.31),
        ("inception", no, yes, "true", 100.0, 86.03),
        ("inception", no, no, "true", 100.0, 85.75),
        ("inception", no, no, "random-labels", 100.0, 9.78),
        ("inception-no-bn", no, yes, "true", 100.0, 83.00),
        ("inception-no-bn", no, no, "true", 100.0, 82.00),
        ("inception-no-bn", no, no, "random-labels", 100.0, 10.12),
        ("alexnet", yes, yes, "true", 99.90, 81.22),
        ("alexnet", yes, no, "true", 99.82, 79.66),
        ("alexnet", no, yes, "true", 100.0, 77.36),
        ("alexnet", no, no, "true", 100.0, 76.07),
        ("alexnet", no, no, "random-labels", 99.82, 9.86),
        ("mlp-3x512", no, yes, "true", 100.0, 53.35),
        ("mlp-3x512", no, no, "true", 100.0, 52.39),
        ("mlp-3x512", no, no, "random-labels", 100.0, 10.48),
        ("mlp-1x512", no, yes, "true", 99.80, 50.39),
        ("mlp-1x512", no, no, "true", 100.0, 50.51),
        ("mlp-1x512", no, no, "random-labels", 99.34, 10.61),
    )
    for number, (network, crop, decay, labels, train, test) in enumerate(printed, start=1):
        yield Row(number, Cell(network, labels, "crop" if crop else "none", decay), train, test)


#: CIFAR-10: random crops, weight decay, labels, training and test accuracy.
TABLE_1 = tuple(_rows())
#: Random labels fitted in spite of regularizers (the paper's appendix): the training accuracy;
#: None: the paper says that training did not converge.
RANDOM_WITH_REGULARIZERS: Mapping[Cell, float | None] = {
    Cell("inception", "random-labels", "crop"): 99.93,
    Cell("inception", "random-labels", "full"): 99.28,
    Cell("inception", "random-labels", decay=True): 100.0,
    Cell("alexnet", "random-labels", decay=True): None,
    Cell("mlp-3x512", "random-labels", decay=True): 100.0,
    Cell("mlp-1x512", "random-labels", decay=True): 99.21,
}


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


class CellResult(Derived):
    """A trained network.

    parameters   of the network
    redrawn      how many training labels were redrawn
    history      its measurements; the last one is the network that the tables are about
    stopped      "epochs", "fit" or "diverged"
    training     everything that decided about it besides its data: see ``training_record``
    method       how networks were trained at once, and with how many others (``together``)
    seconds      its share of the time
    """

    derived = ("key", "train_accuracy", "test_accuracy", "fit_epoch")

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
        return _percent(self.history[-1].test_errors, self.test_examples)

    @property
    def key(self) -> str:
        return self.cell.key

    @property
    def fit_epoch(self) -> int | None:
        """Of the first measurement without a training error."""
        fitted = self.reached(100.0)
        return None if fitted is None else fitted.epoch

    def reached(self, accuracy: float) -> Point | None:
        """The first measurement with at least this training accuracy, in percent."""
        enough = (p for p in self.history if _percent(p.train_errors, self.examples) >= accuracy)
        return next(enough, None)

    @property
    def at_fit(self) -> Point:
        """The network when it first fitted its labels; the last one where it never did."""
        return self.reached(100.0) or self.history[-1]

    @property
    def best(self) -> Point:
        """The measurement with the fewest test errors: what perfect early stopping would keep."""
        return min(self.history, key=lambda point: (point.test_errors, point.epoch))

    def line(self) -> str:
        return (
            f"{self.cell}: training accuracy {self.train_accuracy:.2f} %, test accuracy "
            f"{self.test_accuracy:.2f} %, {self.history[-1].epoch} epochs"
        )


class GroupTiming(Derived):
    """The time of one training of several networks at once.

    networks        how many; epochs: how many each was trained for, at most
    seconds         for all of them, starting and measuring included
    solo_seconds    per epoch for one network of the same kind trained alone in the same run, start
                    left out; None: not measured
    """

    derived = ("seconds_per_epoch", "speedup")

    network: str
    networks: int
    epochs: int
    seconds: float
    method: str
    device: str
    solo_seconds: float | None = None

    @property
    def seconds_per_epoch(self) -> float:
        return self.seconds / self.networks / self.epochs

    @property
    def speedup(self) -> float | None:
        """How many times longer the same would have taken one network after another."""
        return None if self.solo_seconds is None else self.solo_seconds / self.seconds_per_epoch


class GroupResult(CellRecord):
    """Networks that were trained at once."""

    results: tuple[CellResult, ...]
    timing: GroupTiming

    def lines(self) -> list[str]:
        return [result.line() for result in self.results]


def _percent(errors: int, examples: int) -> float:
    return 100.0 * (examples - errors) / examples
