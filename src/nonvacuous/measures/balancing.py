"""One gauge for every function: the weights in which the network's scales are in balance.

Whatever gauge a network comes in, minimizing over its free scales ends at the same point. What is
measured there does not depend on the gauge.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.measures.subject import Subject
from nonvacuous.rescaling import push, rescale
from nonvacuous.rescaling.polish import polished

#: Noise that moves along with each weight, so that it marks a point of the orbit; the floor is
#: for weights that are exactly zero.
_POINT, _FLOOR = 1e-3, 1e-30
#: A prior so narrow that the norm of the weights is all that counts.
_NARROW = 1e-3


def balanced(subject: Subject) -> dict[str, Tensor]:
    """The weights of the same function at the point of their orbit with the smallest norm.

    Computed once for each subject. (The norm in the sense of a narrow prior: channels with no
    weight at all on one side would otherwise run away.)
    """
    found: dict[str, Tensor] | None = subject.__dict__.get("_balanced")
    if found is None:
        found = _balance(subject)
        subject.__dict__["_balanced"] = found
    return found


def _balance(subject: Subject) -> dict[str, Tensor]:
    weights = dict(subject.weights)
    if subject.groups.size == 0:
        return weights
    noise = {name: weight.abs() * _POINT + _FLOOR for name, weight in weights.items()}
    marked = DiagonalGaussian(means=weights, scales=noise)
    prior = DiagonalGaussian.from_means(
        {name: torch.zeros_like(weight) for name, weight in weights.items()}, _NARROW
    )
    first = rescale(marked, prior, subject.groups, tolerance=1e-13).log_scales
    last = polished(marked, prior, subject.groups, first)
    return dict(push(marked, subject.groups, last).means)
