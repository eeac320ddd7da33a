"""Stability of a learning rule: what changes when one training example does.

Uniform stability asks for the worst case over all training sets. A rule that fits every labeling
has the worst there is: change one label, and the prediction there must follow. So it is shown by
one swap and not estimated, and it is the same for true and for random labels.

Average stability asks what happens on average. Both networks start from the same weights and see
the examples in the same order; beside it stands what another seed alone would change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.models import build
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.training.erm import TrainSettings, train

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


@dataclass(frozen=True)
class AverageStability:
    """What replacing one example changes on average, beside what another seed changes.

    train_examples     size of the training sets
    test_examples      examples on which losses are compared
    changed_by_swap    for each swap: how many of them have another loss after it
    changed_by_seed    for each other seed, on the first training set: how many have another loss
    replaced_errors    swaps whose replaced example the network without it gets wrong
    fitted_errors      swaps whose replaced example the network trained on it gets wrong. The
                       difference of the two, per swap, estimates the generalization gap without
                       a test set (Shalev-Shwartz and Ben-David, 2014, Theorem 13.2)
    """

    train_examples: int
    test_examples: int
    changed_by_swap: tuple[int, ...]
    changed_by_seed: tuple[int, ...]
    replaced_errors: int
    fitted_errors: int

    @property
    def by_swap(self) -> float:
        """Share of losses changed by a swap, same seed and order: the average stability."""
        return sum(self.changed_by_swap) / (len(self.changed_by_swap) * self.test_examples)

    @property
    def by_seed(self) -> float:
        """Share of losses changed by another seed alone."""
        return sum(self.changed_by_seed) / (len(self.changed_by_seed) * self.test_examples)

    @property
    def gap(self) -> float:
        """The estimate of the generalization gap from the replaced examples."""
        return (self.replaced_errors - self.fitted_errors) / len(self.changed_by_swap)


def perceptron_rule(
    model: str = "mlp:128", *, epochs: int = 200, learning_rate: float = 0.2, batch_size: int = 50
) -> Rule:
    """The rule that trains a reference network by SGD: a second or two for a few hundred digits."""

    settings = TrainSettings(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)

    def rule(examples: Examples, seed: int) -> Predictor:
        network = build(
            model, examples.example_shape, examples.classes, seed=derived_seed(seed, "weights")
        )
        return train(network, examples, settings, seed=derived_seed(seed, "order")).module

    return rule


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


def average_stability(
    rule: Rule,
    examples: Examples,
    spare: Examples,
    test: Examples,
    *,
    swaps: int = 10,
    other_seeds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> AverageStability:
    """Replace one example at a time by a fresh one, learn again, and count losses that change.

    spare         fresh examples from the same source, one for each swap
    test          examples that are in neither, on which losses are compared
    swaps         how many replacements, each at a random position of its own
    other_seeds   how many further seeds for the baseline
    """
    if swaps < 1 or other_seeds < 1:
        raise BadInput("average_stability: swaps and other_seeds must be 1 or more")
    if swaps > min(len(spare), len(examples)):
        raise BadInput(
            f"average_stability: {swaps} swaps need as many training and spare examples; there are "
            f"{len(examples)} and {len(spare)}"
        )
    generator = torch.Generator().manual_seed(derived_seed(seed, "stability"))
    positions = torch.randperm(len(examples), generator=generator)[:swaps].tolist()
    report: Progress = progress or (lambda *words: None)
    total = 1 + other_seeds + swaps
    first = rule(examples, seed)
    report("stability", 1, total, "first network")
    reference, fitted = _wrong(first, test), _wrong(first, examples)
    by_seed, by_swap, replaced_errors = [], [], 0
    for number in range(other_seeds):
        other = rule(examples, derived_seed(seed, "other seed", number))
        by_seed.append(int((_wrong(other, test) != reference).sum()))
        report("stability", 2 + number, total, "another seed")
    for number, position in enumerate(positions):
        inputs, labels = examples.inputs.clone(), examples.labels.clone()
        inputs[position], labels[position] = spare.inputs[number], spare.labels[number]
        second = rule(replace(examples, inputs=inputs, labels=labels), seed)
        by_swap.append(int((_wrong(second, test) != reference).sum()))
        replaced_errors += int(_wrong(second, examples.subset([position]))[0])
        report("stability", 2 + other_seeds + number, total, "one example replaced")
    return AverageStability(
        train_examples=len(examples),
        test_examples=len(test),
        changed_by_swap=tuple(by_swap),
        changed_by_seed=tuple(by_seed),
        replaced_errors=replaced_errors,
        fitted_errors=int(fitted[positions].sum()),
    )


def _wrong(predictor: Predictor, examples: Examples) -> Tensor:
    """The zero-one losses."""
    with torch.no_grad():
        return predictor(examples.inputs).argmax(dim=1) != examples.labels
