"""Everything that decides what the rescaling figure shows, fixed before any number is computed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from nonvacuous.errors import BadInput
from nonvacuous.study.settings import StudySettings, chosen

#: Rouchouse, Gonon, Gribonval, Guedj: Non-Vacuous Generalization Bounds: Can Rescaling Invariances
#: Help? (arXiv 2509.26149), Figure 1. Read off the figure: bounds to about 0.02, ratios to 0.05.
RESCALING_PAPER = "arXiv 2509.26149, Figure 1"


class PublishedMlp(NamedTuple):
    """One perceptron of the left panel (MNIST): the bound before rescaling and after it, and the
    KL before over the KL after."""

    widths: tuple[int, ...]
    bound: float
    rescaled: float
    kl_ratio: float


class PublishedCnn(NamedTuple):
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


class RescalingSettings(StudySettings):
    """One reproduction of the figure.

    networks          hidden widths of each perceptron
    prior_scales      our grid (lowest, highest, number); every tensor chooses its own, all paid
                      for. The one in the middle also says from which point of the network's orbit
                      the posterior starts: a small one stays near the initial weights
    posterior_scales  the noise levels that are tried (free)
    """

    data: str = Field(default="mnist", description="The data set; the paper's is mnist.")
    examples: int | None = 55_000
    """Train and bound on so many, the first ones; the others keep out."""
    networks: tuple[tuple[int, ...], ...] = tuple(entry.widths for entry in MLPS)
    initialization: Literal["lecun", "pytorch"] = "lecun"
    """lecun: weights uniform with variance 1 / (number of inputs), biases zero. pytorch: torch's
    own."""
    epochs: int = Field(default=5, ge=1, description="Of plain stochastic gradient descent.")
    learning_rate: float = Field(default=0.01, description="Of plain stochastic gradient descent.")
    momentum: float = Field(default=0.9, description="Of plain stochastic gradient descent.")
    batch_size: int = Field(default=128, ge=1, description="Of plain stochastic gradient descent.")
    paper_prior_scale: float = 1.0
    """The paper's setting: a prior centered on zero."""
    paper_posterior_scale: float = 0.03
    """The paper's setting: equal noise around the weights."""
    column_scales: tuple[float, ...] = (0.03, 0.06)
    """Noise at which all ways of accounting are compared."""
    prior_scales: tuple[float, float, int] = (0.0001, 0.5, 241)
    posterior_scales: tuple[float, float, int] = (0.02, 0.1, 16)
    trials: int = Field(default=200_000, ge=1)
    """Pairs of an example and a draw of the weights, for every risk."""
    confidence: float = Field(default=0.95, description="Of all certificates together.")
    attempts: int = Field(default=1_000, ge=1)
    """Certificates that share the confidence: those of the figure, and all that were tried on the
    same examples while these settings were being chosen."""
    only: tuple[str, ...] = Field(default=(), exclude=True)
    """Some of the networks, such as 784-32-10 784-64-32-10."""
    cifar: bool = Field(default=False, exclude=True)
    """Also the figure's right side: a convolutional network on CIFAR-10. The paper does not say
    which; ours has as many weights as its numbers suggest, and is trained at several learning rates
    (--rates). Needs a GPU (--device cuda), and minutes there."""
    rates: tuple[float, ...] = Field(default=(0.03, 0.04, 0.05, 0.07), exclude=True)
    """For --cifar: learning rates. They decide how large the weights are at the end, and these the
    ratios."""
    architectures: tuple[Literal["cnn", "resnet20", "vit"], ...] = Field(default=(), exclude=True)
    """Also every way of accounting for these networks on CIFAR-10: a convolutional one, a residual
    one with batch normalization folded, a small vision transformer."""

    @model_validator(mode="after")
    def _chosen(self) -> RescalingSettings:
        if not self.networks:
            raise BadInput("the figure needs at least one network; networks is empty")
        for widths in self.networks:
            if not widths or min(widths) < 1:
                raise BadInput(
                    f"networks: {widths!r} is not a list of hidden widths, such as [64, 32]"
                )
        if self.only:
            object.__setattr__(self, "networks", self._named())
        return self

    def _named(self) -> tuple[tuple[int, ...], ...]:
        """The networks of ``only``, named like 784-32-10 or by their hidden widths 32."""
        inputs = 64 if self.data == "digits" else 784
        listed = {network_name(widths, inputs=inputs): widths for widths in self.networks}
        whole = {"-".join(map(str, widths)): name for name, widths in listed.items()}
        plain = [name.replace(",", "-") for name in self.only]
        return tuple(chosen(listed, [whole.get(n, n) for n in plain], "network").values())

    @classmethod
    def quick(cls) -> RescalingSettings:
        return cls(
            data="digits",
            examples=None,
            networks=((32,), (64, 32)),
            epochs=10,
            batch_size=32,
            prior_scales=(0.0004, 1.0, 41),
            posterior_scales=(0.03, 0.3, 4),
            trials=2_000,
        )


def network_name(widths: tuple[int, ...], *, inputs: int = 784, classes: int = 10) -> str:
    """The sizes of all layers.

    >>> network_name((64, 32))
    '784-64-32-10'
    """
    return "-".join(map(str, (inputs, *widths, classes)))
