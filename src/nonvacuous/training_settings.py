"""How networks are trained on the way to a certificate: plain numbers, with defaults that work."""

from __future__ import annotations

from typing import Annotated, Literal

from nonvacuous.settings import (
    TRAINING,
    Count,
    Flag,
    Inside,
    NonNegative,
    Positive,
    PositiveCount,
    Settings,
    Share,
    Switch,
)

#: 'cosine' falls to zero over all epochs; 'one-cycle' rises for a quarter of them, then falls.
RateSchedule = Literal["constant", "cosine", "one-cycle"]
Optimizer = Literal["sgd", "adam"]
Augmentation = Literal["affine", "crop", "cutout", "flip"]
_BATCH = Flag("Examples per step, in all training.", TRAINING)


class PlainTraining(Settings):
    """Plain training: of a learned prior on the prior part, and of the held-out twin."""

    epochs: Annotated[
        PositiveCount,
        Flag(
            "Passes over its examples when the prior (or the held-out twin) is trained.",
            TRAINING,
            "prior_epochs",
        ),
    ] = 60
    batch_size: Annotated[PositiveCount, _BATCH] = 64
    learning_rate: Annotated[
        Positive,
        Flag(
            "Step size when the prior (or the held-out twin) is trained.",
            TRAINING,
            "prior_learning_rate",
        ),
    ] = 0.05
    #: Of SGD; the first decay rate of Adam.
    momentum: Share = 0.9
    weight_decay: NonNegative = 0.0
    schedule: RateSchedule = "cosine"
    augmentation: Annotated[
        tuple[Augmentation, ...],
        Flag("Change images at random while the prior (or the twin) is trained.", TRAINING),
    ] = ()
    #: This share of each label is spread evenly over all classes.
    label_smoothing: Share = 0.0
    #: Decay per step of a running mean of the weights, which is then the result; 0: the last ones.
    averaging: Share = 0.0
    #: On a GPU: bfloat16 where that is safe.
    half_precision: Switch = False
    #: Stop after so many epochs without progress on a tenth of the same examples; None: never.
    patience: PositiveCount | None = None


class PosteriorTraining(Settings):
    """Training of the posterior on a PAC-Bayes objective."""

    objective: Annotated[
        Literal["quadratic", "seeger", "mcallester", "thiemann", "catoni"],
        Flag("The bound that posterior training minimizes.", TRAINING),
    ] = "quadratic"
    kl_penalty: Annotated[
        Positive, Flag("Weight of the complexity in training; 1 follows the bound.", TRAINING)
    ] = 1.0
    epochs: Annotated[
        PositiveCount, Flag("Passes over the examples when the posterior is trained.", TRAINING)
    ] = 20
    learning_rate: Annotated[
        Positive, Flag("Step size when the posterior is trained.", TRAINING)
    ] = 0.002
    batch_size: Annotated[PositiveCount, _BATCH] = 64
    #: For the logarithms of the scales; None: 20 times the other, since they are of order one and
    #: means of the order of a scale.
    scale_learning_rate: Positive | None = None
    momentum: Share = 0.9
    schedule: RateSchedule = "cosine"
    optimizer: Optimizer = "sgd"
    #: Epochs over which the weight of the complexity grows linearly from 0.
    warm_up_epochs: Count = 0
    #: Where the cross-entropy is cut; keep it well below 1/classes. The larger, the closer to the
    #: 0-1 loss: at 1e-5 guessing costs so little that a posterior hardly leaves a prior that does.
    minimum_probability: Inside = 1e-4
    #: Train on 1 - p**power, p the probability of the label, instead of the cross-entropy.
    power: Positive | None = None
