"""Classical measures of capacity: Rademacher complexity by training, and uniform stability.

How well does a class of networks fit random signs?
Each sign vector asks for a network that agrees with it on as many training inputs as possible. What
training reaches is at most what the best network of the class reaches, so the mean is a lower bound
on the complexity, and a bound on the gap computed from it is a diagnosis and not a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.bounds.capacity import rademacher_gap
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.randomization.intervals import Interval, over_networks
from nonvacuous.seeds import derived_seed


@dataclass(frozen=True)
class Rademacher:
    """What training on random signs says about the complexity of a class.

    complexity     mean over sign vectors of 2 * accuracy - 1: 1 where all fit, 0 for guessing
    sign_vectors   how many were tried
    examples       training inputs
    gap_bound      the generalization gap that classical theory then allows; 1 says nothing
    verdict        the same in words
    """

    complexity: Interval
    sign_vectors: int
    examples: int
    gap_bound: float
    verdict: str

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound on the gap is 1, which every network keeps to."""
        return self.gap_bound >= 1.0


def rademacher_estimate(
    errors: Sequence[int], *, examples: int, confidence: float = 0.95
) -> Rademacher:
    """The estimate from the training errors of networks, one trained on each sign vector.

    errors     wrong signs of each network on the training inputs, as counts
    examples   the number of training inputs
    """
    wrong = [checks.errors_among(count, examples)[0] for count in errors]
    if not wrong:
        raise BadInput(
            "rademacher_estimate: no sign vector was given; train on at least one row of "
            "sign_vectors(...) and count the wrong signs"
        )
    fits = np.array([1.0 - 2.0 * count / examples for count in wrong])
    estimate, failure = float(fits.mean()), checks.failure_of(confidence)
    gap = rademacher_gap(rademacher=max(0.0, estimate), examples=examples, failure=failure)
    if any(wrong):
        worth = "says nothing" if gap >= 1.0 else f"would be {gap:.3f}"
        several = len(fits) > 1
        error = f" ± {fits.std(ddof=1) / math.sqrt(len(fits)):.2g}" if several else ""
        verdict = (
            f"The complexity is at least {estimate:.3f}{error}, as far as training went; the "
            f"best networks of the class may fit more. With this value the bound on the gap "
            f"{worth}: a diagnosis, not a certificate."
        )
    else:
        verdict = (
            f"All {len(wrong)} random sign vectors were fitted without an error: the "
            "complexity is 1 as far as can be told, no class has more, and the bound on the "
            "gap says nothing, whatever the labels."
        )
    complexity = over_networks(fits.tolist(), confidence=confidence)
    return Rademacher(complexity, len(wrong), examples, gap, verdict)


def sign_vectors(count: int, examples: int, *, seed: int) -> Tensor:
    """Random signs as labels 0 and 1, of shape (count, examples) and type int64.

    Row r depends on the seed and r alone, so that more rows can be added to those already used.
    """
    rows = checks.count("count", count, minimum=1)
    length = checks.count("examples", examples, minimum=1)
    key = derived_seed(seed, "sign vectors")
    generators = (
        np.random.Generator(np.random.Philox(key=np.array([key, row], dtype=np.uint64)))
        for row in range(rows)
    )
    return torch.from_numpy(np.stack([g.integers(0, 2, length) for g in generators]))


# Stability of a learning rule: what changes when one training example does.
#
# Uniform stability asks for the worst case over all training sets. A rule that fits every labeling
# has the worst there is: change one label, and the prediction there must follow. So it is shown by
# one swap and not estimated, and it is the same for true and for random labels.

Predictor = Callable[[Tensor], Tensor]
"""Inputs (examples, ...) in, class scores (examples, classes) out."""

Rule = Callable[[Examples, int], Predictor]
"""A learning rule: training examples and a seed in, a predictor out; nothing else may matter."""


@dataclass(frozen=True)
class UniformStability:
    """One swap: the same training set but for one label.

    position              which training example got another label
    old_label, new_label  its label before and after
    errors_before         training errors of the rule on the first training set
    errors_after          training errors on the second
    loss_before           0 or 1: does the first predictor miss (input, old label)?
    loss_after            does the second?
    """

    position: int
    old_label: int
    new_label: int
    errors_before: int
    errors_after: int
    loss_before: int
    loss_after: int

    @property
    def difference(self) -> int:
        """How far this one swap moved one loss: where it is 1, the uniform stability is, too."""
        return abs(self.loss_after - self.loss_before)


def uniform_stability(
    rule: Rule, examples: Examples, *, position: int = 0, seed: int = 0
) -> UniformStability:
    """Change the label of one training example, learn again from the same seed, and compare.

    Where both predictors fit their training set, the loss at (input, old label) goes from 0 to 1:
    the uniform stability of the rule, the largest difference that any swap can make, is exactly 1.
    Another example with an equal input would have to be fitted too, so it is refused.
    """
    if isinstance(position, bool) or not isinstance(position, int):
        raise BadInput(f"uniform_stability: position = {position!r} is not a whole number")
    if not 0 <= position < len(examples):
        raise BadInput(
            f"uniform_stability: position {position} is outside 0..{len(examples) - 1} of "
            f"{examples.name}"
        )
    alike = (examples.inputs == examples.inputs[position]).flatten(1).all(dim=1)
    if int(alike.sum()) > 1:
        raise BadInput(
            f"{examples.name}: example {position} occurs {int(alike.sum())} times, so that its "
            "label cannot be changed alone; choose another position"
        )
    old = int(examples.labels[position])
    new = (old + 1) % examples.classes
    labels = examples.labels.clone()
    labels[position] = new
    swapped = replace(examples, labels=labels)
    before = _wrong(rule(examples, seed), examples)
    second = rule(swapped, seed)
    probe = examples.subset([position])
    return UniformStability(
        position=position,
        old_label=old,
        new_label=new,
        errors_before=int(before.sum()),
        errors_after=int(_wrong(second, swapped).sum()),
        loss_before=int(before[position]),
        loss_after=int(_wrong(second, probe)[0]),
    )


def _wrong(predictor: Predictor, examples: Examples) -> Tensor:
    """The zero-one losses."""
    with torch.no_grad():
        return predictor(examples.inputs).argmax(dim=1) != examples.labels
