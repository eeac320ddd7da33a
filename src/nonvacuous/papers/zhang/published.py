"""What "Understanding deep learning requires rethinking generalization" printed, as data.

Zhang, Bengio, Hardt, Recht, Vinyals (ICLR 2017; arXiv 1611.03530). Accuracies in percent.
"""

from __future__ import annotations

from dataclasses import dataclass

PAPER = "Zhang, Bengio, Hardt, Recht, Vinyals (ICLR 2017)"
TITLE = "Understanding deep learning requires rethinking generalization"
#: A network that gets so many of its labels right, in percent, has all but fitted them.
NEARLY = 99.0
#: What counts as reproduced, in percentage points: the training accuracy that the paper calls a
#: fit, how near a test accuracy must come, and how near to guessing random labels must stay.
FIT, TEST_TOLERANCE, CHANCE_TOLERANCE = 99.3, 2.5, 1.0

#: The networks by the names used here: their names in ``nonvacuous.models`` and in the paper.
MODELS = {
    "inception": "inception",
    "inception-no-bn": "inception:no-bn",
    "alexnet": "alexnet",
    "mlp-3x512": "mlp:512,512,512",
    "mlp-1x512": "mlp:512",
}
TITLES = {
    "inception": "Inception",
    "inception-no-bn": "Inception, no batch norm",
    "alexnet": "AlexNet",
    "mlp-3x512": "MLP 3×512",
    "mlp-1x512": "MLP 1×512",
}
#: Table 1's numbers of parameters, for images of 3 x 28 x 28 and ten classes.
PARAMETERS = {
    "inception": 1_649_402,
    "inception-no-bn": 1_649_402,
    "alexnet": 1_387_786,
    "mlp-3x512": 1_735_178,
    "mlp-1x512": 1_209_866,
}


@dataclass(frozen=True)
class PublishedRow:
    """One row of Table 1 (CIFAR-10).

    number         counted from the top, 1 to 19
    crop, decay    whether training used random crops and weight decay
    labels         "true" or "random-labels"
    train, test    accuracy in percent
    """

    number: int
    network: str
    crop: bool
    decay: bool
    labels: str
    train: float
    test: float


def _rows() -> tuple[PublishedRow, ...]:
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
    return tuple(PublishedRow(number, *row) for number, row in enumerate(printed, start=1))


TABLE_1 = _rows()


@dataclass(frozen=True)
class PublishedRandomFit:
    """Random labels with a regularizer: accuracy on the training examples, in percent.

    regularizer   "crop", "full" (crops, flips, brightness and contrast) or "decay"
    train         None: the paper says that training did not converge
    """

    network: str
    regularizer: str
    train: float | None


#: Random labels fitted in spite of regularizers (the paper's appendix).
RANDOM_WITH_REGULARIZERS = (
    PublishedRandomFit("inception", "crop", 99.93),
    PublishedRandomFit("inception", "full", 99.28),
    PublishedRandomFit("inception", "decay", 100.0),
    PublishedRandomFit("alexnet", "decay", None),
    PublishedRandomFit("mlp-3x512", "decay", 100.0),
    PublishedRandomFit("mlp-1x512", "decay", 99.21),
)

#: Steps until the loss of Inception is at most 0.01: an independent reproduction of Figure 1a, not
#: the paper's own numbers, which it shows as curves only.
STEPS_TO_FIT = {
    "true": 5_700,
    "shuffled-pixels": 6_700,
    "gaussian": 9_900,
    "random-pixels": 13_000,
    "random-labels": 17_700,
}


@dataclass(frozen=True)
class PublishedImageNet:
    """ImageNet with Inception v3, top-1 accuracy in percent. Not computed here."""

    labels: str
    regularizers: str
    train: float | None
    test: float


IMAGENET = (
    PublishedImageNet("true", "all", None, 77.84),
    PublishedImageNet("true", "none", None, 59.80),
    PublishedImageNet("random-labels", "none", 95.20, 0.1),
)


def random_fit(network: str, regularizer: str) -> PublishedRandomFit | None:
    """What the paper says about random labels with this regularizer, if it says anything."""
    return next(
        (
            entry
            for entry in RANDOM_WITH_REGULARIZERS
            if (entry.network, entry.regularizer) == (network, regularizer)
        ),
        None,
    )
