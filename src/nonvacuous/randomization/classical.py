"""Classical measures of capacity: Rademacher complexity, uniform stability, VC dimension.

Rademacher complexity is measured by training: how well does a class of networks fit random signs?
Each sign vector asks for a network that agrees with it on as many training inputs as possible. What
training reaches is at most what the best network of the class reaches, so the mean is a lower bound
on the complexity, and a bound on the gap computed from it is a diagnosis and not a certificate.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import capacity, checks
from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, NonvacuousError, NotYetSupported
from nonvacuous.networks import capture, fold_batch_norm
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference
from nonvacuous.randomization.intervals import Interval, over_networks
from nonvacuous.rescaling.structure import score_difference
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
    gap = capacity.rademacher_gap(rademacher=max(0.0, estimate), examples=examples, failure=failure)
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
    the uniform stability of the rule, the largest difference that any swap in any training set can
    make, is exactly 1. So one swap shows it, and it is the same for true and for random labels.
    Another example with an equal input would have to be fitted too, so it is refused.
    """
    last = len(examples) - 1
    checks.at_most("position", checks.count("position", position), "the last one", last)
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


@dataclass(frozen=True)
class Capacity:
    """What the architecture could do with any labels: never looks at them.

    lines    (what, number, what it means), ready to be shown
    """

    lines: tuple[tuple[str, str, str], ...]


def capacity_of(module: nn.Module, examples: Examples) -> Capacity:
    """VC dimension and sizes that suffice to memorize, for this network and these examples."""
    count, inputs = len(examples), examples.inputs[0].numel()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    sizes = capacity.memorization_sizes(examples=count, inputs=inputs)
    lines = [
        ("weights of this network", f"{parameters:,}", f"{parameters / count:,.1f} per example"),
        (
            "weights that suffice for any labels",
            f"{sizes.projection_weights:,}",
            f"2n + d, in one hidden layer of {sizes.projection_units:,} units: any distinct inputs",
        ),
        (
            "hidden units that suffice",
            f"{sizes.general_position_units:,}",
            "4⌈n/d⌉ in one hidden layer: inputs in general position only",
        ),
        (
            "width of two hidden layers that suffices",
            f"{sizes.two_layer_width:,}",
            "4⌈√n/2⌉ each: any distinct inputs",
        ),
    ]
    fixed, example = copy.deepcopy(module).cpu().eval(), examples.inputs[:2].cpu().clone()
    widths, verdict = _by_theorem(fixed, example, count=count)
    return Capacity((*lines, verdict, _vc(fixed, example, widths, count=count)))


def _by_theorem(
    module: nn.Module, example: Tensor, *, count: int
) -> tuple[tuple[int, ...] | None, tuple[str, str, str]]:
    """The widths of a perceptron and what is known of it; of others nothing, and why."""
    what = "this network, by theorem"
    try:
        widths = perceptron_widths(capture(module, example))
        known = capacity.memorization_verdict(
            examples=count, inputs=example[0].numel(), widths=widths
        )
    except NonvacuousError as error:
        return None, (what, "no theorem here covers it", str(error).splitlines()[0])
    reason = (known.any_distinct or known.general_position or ("",))[0]
    return widths, (what, known.verdict, reason)


def _vc(
    module: nn.Module, example: Tensor, widths: tuple[int, ...] | None, *, count: int
) -> tuple[str, str, str]:
    """From above, counted on the captured graph; of a perceptron from below as well."""
    try:
        layers = score_difference(capture(fold_batch_norm(module, example), example))
        upper = capacity.vc_upper(
            parameters=[own for own, _ in layers], comparisons=[signs for _, signs in layers]
        )
    except NonvacuousError as error:
        return ("VC dimension", "not counted", str(error).splitlines()[0])
    ends = f"at most {upper:,}"
    if widths is not None:
        ends = f"{capacity.vc_lower(inputs=example[0].numel(), widths=widths):,} to {upper:,}"
    if upper > count:
        meaning = f"the same for true and random labels; a bound needs far more than n = {count:,}"
    else:
        meaning = f"below n = {count:,}: here it does say something"
    return ("VC dimension", ends, meaning)


#: Operators that hand on the numbers of each example in their order.
_SILENT = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "clone",
    "alias", "detach", "dropout", "feature_dropout",
})  # fmt: skip


def perceptron_widths(graph: LayerGraph) -> tuple[int, ...]:
    """The widths of the hidden layers of a fully connected ReLU network with biases.

    NotYetSupported names what stands in the way where the network is anything else.
    """
    if len(graph.inputs) != 1:
        raise NotYetSupported("not a perceptron: it reads more than one input")
    ((name, shape),) = graph.inputs.items()
    current, bent, seen = Reference("input", name), False, set[str]()
    widths: list[int] = []
    for node in graph.nodes:
        read = tuple(r for r in node.references if r.kind != "parameter")
        if read != (current,):
            raise NotYetSupported(
                f"not a perceptron: {_named(node)} does not read the layer before"
            )
        trained = node.parameters or node.arguments.get("train") is True
        silent = node.kind in _SILENT and not trained
        if node.kind == "linear" and bent == bool(widths):
            _check_linear(node, shape, seen)
            seen.update(node.parameters)
            widths.append(node.shape[1])
            bent = False
        elif node.kind == "relu" and widths and not bent:
            bent = True
        elif not silent or math.prod(node.shape[1:]) != math.prod(shape[1:]):
            raise NotYetSupported(
                f"not a perceptron: linear layers and ReLU must take turns, and {_named(node)} "
                "does not fit in"
            )
        current, shape = Reference("node", node.name), node.shape
    if bent or not widths or graph.outputs != (current,):
        raise NotYetSupported("not a perceptron: it does not return the scores of a linear layer")
    return tuple(widths[:-1])


def _check_linear(node: Node, shape: tuple[int, ...], seen: set[str]) -> None:
    """One matrix and one bias of its own, for all numbers of an example at once."""
    parts = (node.arguments.get("weight"), node.arguments.get("bias"))
    if not all(isinstance(part, Reference) and part.kind == "parameter" for part in parts):
        raise NotYetSupported(
            f"not a perceptron with biases: {_named(node)} has none, or weights that are computed"
        )
    if not seen.isdisjoint(node.parameters):
        raise NotYetSupported(f"not a perceptron: {_named(node)} repeats the weights of another")
    if len(shape) != 2:
        raise NotYetSupported(
            f"not a perceptron: {_named(node)} is applied to parts of an example, one by one"
        )


def _named(node: Node) -> str:
    return f"{node.layer or 'the network'} ({node.op})"
