"""How networks are trained on the way to a certificate: plain numbers, with defaults that work."""

from __future__ import annotations

from typing import Annotated, Literal

from nonvacuous.certification.settings import (
    TRAINING,
    Count,
    Flag,
    NonNegative,
    Positive,
    PositiveCount,
    Settings,
    Switch,
)

Schedule = Literal["constant", "cosine", "one-cycle"]
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
    momentum: NonNegative = 0.9
    weight_decay: NonNegative = 0.0
    schedule: Schedule = "cosine"
    augmentation: Annotated[
        tuple[Augmentation, ...],
        Flag("Change images at random while the prior (or the twin) is trained.", TRAINING),
    ] = ()
    label_smoothing: NonNegative = 0.0
    #: Decay per step of a running mean of the weights, which is then the result; 0: the last ones.
    averaging: NonNegative = 0.0
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
    scale_learning_rate: Positive | None = None
    momentum: NonNegative = 0.9
    schedule: Schedule = "cosine"
    optimizer: Literal["sgd", "adam"] = "sgd"
    warm_up_epochs: Count = 0
    minimum_probability: Positive = 1e-4
    #: Train on 1 - p**power, p the probability of the label, instead of the cross-entropy.
    power: Positive | None = None
