"""Refusals shared by this room: each says what is wrong, where, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import ScaleGroups


def check_covered(Q: DiagonalGaussian, P: DiagonalGaussian | None, groups: ScaleGroups) -> None:
    """Refuse unless posterior, prior and groups speak of the same tensors and shapes."""
    parties = [("the posterior", Q)] + ([("the prior", P)] if P is not None else [])
    for label, distribution in parties:
        for name in distribution.means.keys() ^ groups.exponents.keys():
            raise BadInput(
                f"tensor {name!r} is in {label} or in the scale groups but not in both; build "
                "all of them from the same module (scale_groups(capture(module, example)))"
            )
        for name, mean in distribution.means.items():
            expected = tuple(groups.shapes[name])
            if tuple(mean.shape) != expected:
                raise BadInput(
                    f"tensor {name!r} has shape {tuple(mean.shape)} in {label} but {expected} in "
                    "the scale groups; build all of them from the same module"
                )


def check_log_scales(groups: ScaleGroups, log_scales: np.ndarray) -> np.ndarray:
    """The log-scales as a float64 vector of the right length, finite in every entry."""
    vector = np.asarray(log_scales, dtype=np.float64)
    if vector.shape != (groups.size,):
        raise BadInput(
            f"log_scales has shape {vector.shape} but these groups have {groups.size} free "
            f"scales; pass a vector of shape ({groups.size},)"
        )
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise BadInput(
            f"log_scales[{place}] is {vector[place]}; a log-scale must be finite (0 leaves a "
            "channel as it is)"
        )
    return vector
