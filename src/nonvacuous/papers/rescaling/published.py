"""What papers printed, as data."""

from __future__ import annotations

from dataclasses import dataclass

#: Rouchouse, Gonon, Gribonval, Guedj: Non-Vacuous Generalization Bounds: Can Rescaling Invariances
#: Help? (arXiv 2509.26149), Figure 1. Read off the figure: bounds to about 0.02, ratios to 0.05.
RESCALING_PAPER = "arXiv 2509.26149, Figure 1"


@dataclass(frozen=True)
class PublishedMlp:
    """One perceptron of the left panel (MNIST).

    bound      before rescaling
    rescaled   after it
    kl_ratio   the KL before over the KL after
    """

    widths: tuple[int, ...]
    bound: float
    rescaled: float
    kl_ratio: float


@dataclass(frozen=True)
class PublishedCnn:
    """One choice of scales of the right panel (CIFAR-10, a network with 86 % test accuracy)."""

    prior_scale: float
    posterior_scale: float
    bound: float
    rescaled: float
    kl_ratio: float


MLPS = (
    PublishedMlp((256, 256, 256, 256), 3.41, 2.29, 2.31),
    PublishedMlp((512, 64, 512), 3.68, 1.89, 3.97),
    PublishedMlp((1024, 512, 256), 6.45, 3.15, 4.40),
    PublishedMlp((512,), 3.37, 1.44, 5.58),
    PublishedMlp((64, 32, 16, 8, 4), 1.26, 0.65, 4.05),
    PublishedMlp((32, 64, 128), 1.07, 0.69, 2.47),
    PublishedMlp((256, 128, 64), 2.64, 1.27, 4.59),
    PublishedMlp((128, 128, 128), 1.97, 1.11, 3.28),
    PublishedMlp((64, 32), 1.24, 0.61, 4.50),
    PublishedMlp((32,), 0.87, 0.46, 3.92),
)

CNNS = (
    PublishedCnn(0.0623, 0.0469, 2.95, 2.77, 1.21),
    PublishedCnn(0.0497, 0.0481, 2.87, 2.86, 1.08),
    PublishedCnn(0.107, 0.0357, 4.93, 3.11, 3.10),
    PublishedCnn(0.145, 0.0474, 5.09, 2.78, 4.79),
    PublishedCnn(0.0843, 0.0459, 3.70, 2.79, 2.14),
    PublishedCnn(0.0725, 0.0262, 4.53, 3.38, 1.92),
)


def published_mlp(widths: tuple[int, ...]) -> PublishedMlp | None:
    """What the figure shows for these hidden widths, if it shows them."""
    return next((entry for entry in MLPS if entry.widths == widths), None)
