"""Flatness, sharpness, gradients: how loss and errors change around weights and inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from nonvacuous.errors import Unsupported
from nonvacuous.measures import derivatives
from nonvacuous.measures.gauges import balanced
from nonvacuous.measures.norms import length
from nonvacuous.measures.registry import Undefined, register_measure
from nonvacuous.measures.subject import Subject, Weights
from nonvacuous.risk.losses import class_margins
from nonvacuous.seeds import derived_seed

_register = functools.partial(register_measure, needs=["examples"])
_register_sharpness = functools.partial(_register, family="sharpness")


def _root_mean_square(values: Tensor) -> float:
    return math.sqrt(float(values.square().mean()))


_register(
    "fisher-rao",
    family="Fisher–Rao",
    formula="sqrt(mean over examples of ⟨w, ∇ loss(x, y)⟩²), loss the cross-entropy",
    source="Liang, Poggio, Rakhlin and Stokes (2019), with the labels given",
    invariant=["rescaling", "permutation"],
)(lambda subject: _root_mean_square(derivatives.slopes_along_weights(subject)))
_register_sharpness(
    "sharpness-trace",
    formula=f"mean over the first {derivatives.FEW} inputs of Σ p_k ‖∇ ln p_k‖²: trace of the "
    "Gauss–Newton Hessian",
    source="Dinh et al. (2017), who show that it depends on the gauge",
    invariant=["permutation"],
    cost="expensive",
)(derivatives.gauss_newton_trace)
_register_sharpness(
    "sharpness-balanced",
    formula="sharpness-trace of the same function in the gauge of smallest norm",
    source="sharpness-trace where the norm is smallest over rescaling",
    invariant=["rescaling", "permutation"],
    cost="expensive",
)(lambda subject: derivatives.gauss_newton_trace(subject.moved(balanced(subject))))
_register_sharpness(
    "sharpness-largest",
    formula="largest eigenvalue of the Hessian of the mean cross-entropy on the first "
    f"{derivatives.FEW} examples",
    source="Keskar et al. (2017), to second order; Dinh et al. (2017): it depends on the gauge",
    invariant=["permutation"],
    cost="expensive",
)(derivatives.largest_curvature)
_register_sharpness(
    "sharpness-along-weights",
    formula="|wᵀ H w|, H the Hessian of the mean cross-entropy",
    source="after the relative flatness of Petzka et al. (2021), along all weights at once",
    invariant=["rescaling", "permutation"],
)(lambda subject: abs(derivatives.bend_along_weights(subject)))


_register_sharpness(
    "gradient-norm",
    formula="‖∇ of the mean cross-entropy by the weights‖₂",
    source="Jiang et al. (2020)",
    invariant=["permutation"],
)(lambda subject: length([derivatives.weight_gradient(subject)]))

#: The training error may grow by so much.
TOLERATED = 0.1
_DRAWS = 5
#: Noise scales 2^(j/8): with a grid, rounding errors cannot change the value.
_LOWEST, _HIGHEST, _FINENESS = -160, 80, 8
#: Below this a weight counts as this large, in the noise that follows the weights.
_FLOOR = 1e-3


def errors(subject: Subject, weights: Weights) -> int:
    """Training errors with these weights; a tie is an error."""
    scores = subject.all_outputs(weights)
    return int((~(class_margins(scores, subject.examples[1]) > 0)).sum())


def noise_scale(subject: Subject, weights: Weights, shape: Callable[[Tensor], Tensor]) -> float:
    """The largest scale of the grid at which the mean training error grows by at most 10 points.

    ``shape`` is the standard deviation of the noise of a weight in units of it. The same noise is
    used at all scales, so that more of it is mostly worse, and bisection finds the end.
    """
    total = len(subject.examples[1])
    allowed = errors(subject, weights) + TOLERATED * total
    directions = []
    for draw in range(_DRAWS):
        source = torch.Generator().manual_seed(derived_seed(subject.seed, "flatness", draw))
        noise = {
            name: shape(weight) * torch.randn(weight.shape, generator=source, dtype=torch.float64)
            for name, weight in weights.items()
        }
        directions.append(subject.at_examples(noise))
    weights = subject.at_examples(weights)

    def bears(step: int) -> bool:
        scale, wrong = 2.0 ** (step / _FINENESS), 0
        for way in directions:
            wrong += errors(subject, {n: w + scale * way[n] for n, w in weights.items()})
            if wrong > _DRAWS * allowed:
                return False  # the other draws cannot take errors back
        return True

    low, high = _LOWEST, _HIGHEST
    if not bears(low):
        raise Unsupported("the slightest noise on the weights adds errors on one example in ten")
    if bears(high):
        raise Unsupported("no noise makes the network worse: it knows no more than guessing")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bears(middle) else (low, middle)
    return float(2.0 ** (low / _FINENESS))


def isotropic_scale(subject: Subject, *, in_balance: bool) -> float:
    """The scale of equal noise on all weights, in the given gauge or in that of smallest norm."""
    return subject.once(
        f"noise {in_balance}",
        lambda: noise_scale(
            subject, balanced(subject) if in_balance else subject.weights, torch.ones_like
        ),
    )


#: No claim of permutation anywhere, since noise is drawn weight by weight.
_register_flatness = functools.partial(_register, family="flatness", cost="expensive")


_register_flatness(
    "flatness-isotropic",
    formula="1/σ², σ the largest noise N(0, σ²) on every weight that adds at most 10 points of "
    "training error",
    source="Jiang et al. (2020), after Keskar et al. (2017) and Neyshabur et al. (2017)",
)(lambda subject: isotropic_scale(subject, in_balance=False) ** -2)
_register_flatness(
    "flatness-magnitude",
    formula="1/σ², noise N(0, σ² (w² + 0.001²))",
    source="after Jiang et al. (2020), whose floor does not shrink with σ",
)(lambda s: noise_scale(s, s.weights, lambda w: (w.square() + _FLOOR**2).sqrt()) ** -2)
_register_flatness(
    "flatness-relative",
    formula="1/σ², noise N(0, σ² w²): every weight times 1 + σ times a random number",
    source="flatness-magnitude without its floor, which alone depends on the gauge",
    invariant=["rescaling", "output scale"],
)(lambda subject: noise_scale(subject, subject.weights, torch.abs) ** -2)
_register_flatness(
    "flatness-balanced",
    formula="1/σ², noise N(0, σ²) on the weights of the same function in the gauge of smallest "
    "norm",
    source="flatness-isotropic where the norm is smallest over rescaling",
    invariant=["rescaling"],
)(lambda subject: isotropic_scale(subject, in_balance=True) ** -2)
_register(
    "input-gradient",
    family="input gradients",
    formula="sqrt(mean over examples of ‖∇ loss by x‖₂²), loss the cross-entropy",
    source="Novak et al. (2018)",
    invariant=["rescaling", "permutation"],
)(lambda subject: _root_mean_square(derivatives.input_gradients(subject, of_margin=False)))


@_register(
    "input-margin",
    family="input gradients",
    formula="median of margin(x) / ‖∇ margin by x‖₂: the distance to the boundary, to first order",
    source="Elsayed et al. (2018); Jiang et al. (2019)",
    invariant=["rescaling", "permutation", "output scale"],
    higher="better",
)
def input_margin(subject: Subject) -> float | Undefined:
    slopes = derivatives.input_gradients(subject, of_margin=True)
    if not bool((slopes > 0).all()):
        return Undefined("the margin of some example does not depend on its input at all")
    return float(torch.quantile(subject.margins / slopes, 0.5))
