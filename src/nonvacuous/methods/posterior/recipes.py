"""Settings that work, by name: for images, for tables, and for the reference data sets. No torch.

All of them train a network on the prior part as well as they can, leave it where it is but for its
last layer, and give that layer next to no noise: the promise is then close to a plain test.
"""

from __future__ import annotations

from typing import Any, Literal

from nonvacuous.training_settings import PlainTraining, PosteriorTraining

Recipe = Literal["images", "tables", "mnist", "fashion-mnist", "cifar10"]

_LAST = {
    "random": "last",
    "prior_scale": (0.001,),
    "training": PosteriorTraining(epochs=1, batch_size=512, learning_rate=1e-4),
}
_SMALL = PlainTraining(
    epochs=60,
    batch_size=32,
    learning_rate=0.1,
    schedule="one-cycle",
    averaging=0.99,
    label_smoothing=0.1,
)
_LARGE = PlainTraining(
    epochs=30,
    batch_size=512,
    learning_rate=0.2,
    weight_decay=5e-4,
    schedule="one-cycle",
    averaging=0.995,
    label_smoothing=0.1,
    half_precision=True,
)


def _learned(fraction: float, plain: PlainTraining, **changes: Any) -> dict[str, Any]:
    return {
        **_LAST,
        "prior_fraction": fraction,
        "plain_training": plain.model_copy(update=changes),
    }


#: What each recipe sets. The last three are those of the records, with networks resnet9.
RECIPES: dict[Recipe, dict[str, Any]] = {
    "images": _learned(0.6, _SMALL, augmentation=("affine",)),
    "tables": {**_learned(0.5, _SMALL, learning_rate=0.05), "standardize": True},
    "mnist": _learned(0.5, _LARGE, batch_size=256, learning_rate=0.1, augmentation=("affine",)),
    "fashion-mnist": _learned(0.8, _LARGE, augmentation=("crop", "flip", "cutout")),
    "cifar10": _learned(
        0.9, _LARGE, epochs=45, learning_rate=0.4, augmentation=("crop", "flip", "cutout")
    ),
}


def filled(given: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """What was given, and what the recipe says of everything else."""
    whole = {**RECIPES[recipe], **given}
    for name in ("training", "plain_training"):
        own = given.get(name)
        if own is not None:
            chosen = own if isinstance(own, dict) else own.model_dump(exclude_unset=True)
            whole[name] = RECIPES[recipe][name].changed(**chosen)
    return whole
