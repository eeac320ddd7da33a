"""Does a network that is said to be untrained know the examples all the same?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples

#: An untrained network errs on more than this part of what guessing errs on, where there are many
#: classes.
KNOWING = 1.0 / 3.0
MANY_CLASSES = 5
#: With few classes luck is likely: of two clusters, any line between them tells half. An untrained
#: network rarely errs on less than this part of what guessing errs on, but it may.
LUCKY = 0.1
#: So many examples are enough to see it.
EXAMPLES = 2048


@dataclass(frozen=True)
class Knowledge:
    """How well a network does on some examples, beside a guess of the most frequent class.

    ``error`` is the lesser of two rates: that of the scores as they are, and that of the scores
    with their mean over the examples taken away from each class. A shift of one class's scores
    hides nothing from the second.
    """

    error: float
    guessing: float
    classes: int

    @property
    def certain(self) -> bool:
        """No untrained network is lucky by this much."""
        return self.classes >= MANY_CLASSES and self.error < KNOWING * self.guessing

    @property
    def likely(self) -> bool:
        """With few classes: luck is possible, but rare."""
        return self.classes < MANY_CLASSES and self.error < LUCKY * self.guessing


def knowledge(module: nn.Module, examples: Examples) -> Knowledge:
    """What the network, in evaluation mode, knows of the first of these examples."""
    device = next(module.parameters(), torch.empty(0)).device
    with torch.no_grad():
        scores = module(examples.inputs[:EXAMPLES].to(device)).cpu()
    labels = examples.labels[:EXAMPLES].cpu()
    errors = [_error(scores, labels)]
    if len(labels) > 1:  # one example less its own mean is nothing but zeros
        errors.append(_error(scores - scores.mean(dim=0), labels))
    most = float(torch.bincount(labels, minlength=examples.classes).max()) / len(labels)
    return Knowledge(min(errors), 1.0 - most, examples.classes)


def _error(scores: Tensor, labels: Tensor) -> float:
    return 1.0 - float((scores.argmax(dim=1) == labels).double().mean())
