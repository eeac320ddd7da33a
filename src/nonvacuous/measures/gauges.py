"""The same network written down differently: random rescalings, orders and output scales.

What is claimed of a measure is tried on these, and the attack shows what moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.measures.registry import MEASURES, Invariance, Measure, relative_difference
from nonvacuous.measures.subject import Subject
from nonvacuous.networks.scale_groups import Group
from nonvacuous.rescaling.output_layer import output_layer
from nonvacuous.rescaling.solver import polished, push, rescale
from nonvacuous.seeds import derived_seed

#: Relative change of the scores above which an exchange of channels is no symmetry.
_SAME = 1e-9


def moved(subject: Subject, kind: Invariance, *, draw: int, spread: float = 1.0) -> Subject | str:
    """The subject under the random change number ``draw``, or why it has none of this kind.

    spread   of the logarithms of the factors: the standard deviation of a Gaussian
    """
    generator = np.random.default_rng(derived_seed(subject.seed, "gauge", kind, draw))
    if kind == "permutation":
        return _permuted(subject, generator)
    weights, groups = dict(subject.weights), subject.groups
    if kind == "rescaling":
        if groups.size == 0:
            reasons = "; ".join(f"{entry.what}: {entry.reason}" for entry in groups.pinned)
            return f"no channel of the network can be rescaled ({reasons})"
        factors = groups.factors(generator.normal(scale=spread, size=groups.size))
        return subject.moved({n: w * torch.from_numpy(factors[n]) for n, w in weights.items()})
    try:
        output = output_layer(subject.graph)
    except Unsupported as error:
        return str(error)
    louder = float(np.exp(generator.normal(scale=spread)))
    return subject.moved(weights | {name: weights[name] * louder for name in output.tensors})


def _permuted(subject: Subject, generator: np.random.Generator) -> Subject | str:
    """Channels exchange places with those of the same layer, in all weights that touch them."""
    with torch.no_grad():
        reference = subject.outputs(subject.example)
    same = _SAME * (float(reference.abs().max()) or 1.0)
    weights: Mapping[str, Tensor] = subject.weights
    initial = subject.initial
    for group in subject.groups.groups:
        order = generator.permutation(group.size)
        trial = _exchanged(subject, weights, group, order)
        if trial is None:
            continue
        # Not every group of scales may change its order (a depthwise convolution ties two): only
        # what leaves the function alone is a symmetry.
        with torch.no_grad():
            change = (subject.outputs(subject.example, trial) - reference).abs().max()
        if float(change) > same:
            continue
        weights = trial
        if initial is not None:
            initial = _exchanged(subject, initial, group, order) or initial
    if weights is subject.weights:
        return "no channels of the network can change places"
    return subject.moved(weights, initial=initial)


def _exchanged(
    subject: Subject, weights: Mapping[str, Tensor], group: Group, order: np.ndarray
) -> dict[str, Tensor] | None:
    """The weights with channel k of the group where order[k] was; None where sizes differ."""
    result = dict(weights)
    for name, entries in subject.groups.exponents.items():
        for entry in entries:
            if not ((entry.index >= group.start) & (entry.index < group.start + group.size)).any():
                continue
            if len(entry.axes) != 1:
                return None
            slots = [np.flatnonzero(entry.index == group.start + k) for k in range(group.size)]
            if len(set(map(len, slots))) != 1:
                return None
            source = np.arange(len(entry.index))
            for k, target in enumerate(order):
                source[slots[k]] = slots[target]
            result[name] = result[name].index_select(entry.axes[0], torch.from_numpy(source))
    return result


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
    return subject.once("balanced", lambda: _balance(subject))


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


#: A value that claims not to change may change by so much, relative to itself.
TOLERANCE = 1e-9


def largest_change(
    measure: Measure, subject: Subject, kind: Invariance, *, gauges: int, spread: float = 1.0
) -> float | None:
    """The largest relative change over random gauges; None where the network has none."""
    given, worst = measure(subject), 0.0
    for draw in range(gauges):
        other = moved(subject, kind, draw=draw, spread=spread)
        if isinstance(other, str):
            return None
        worst = max(worst, relative_difference(given, measure(other)))
    return worst


def claim_findings(name: str, subjects: Iterable[Subject], *, gauges: int = 50) -> tuple[str, ...]:
    """Every claim of a measure that is false on one of these networks; none is good news."""
    if name not in MEASURES:
        raise BadInput(f"there is no measure {name!r}; register it first")
    measure, findings = MEASURES[name], []
    for subject in subjects:
        for kind in sorted(measure.invariant):
            change = largest_change(measure, subject, kind, gauges=gauges)
            if change is not None and change > TOLERANCE:
                findings.append(
                    f"{name} claims not to depend on {kind}, but changes by {change:.1e} of itself "
                    f"in {gauges} random gauges of {type(subject.module).__name__}"
                )
    return tuple(findings)
