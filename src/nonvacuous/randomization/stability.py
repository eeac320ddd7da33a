"""Stability of a learning rule: what changes when one training example does.

Uniform stability asks for the worst case over all training sets. A rule that fits every labeling
has the worst there is: change one label, and the prediction there must follow. So it is shown by
one swap and not estimated, and it is the same for true and for random labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput

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
