"""Does a network that is said to be untrained know the examples all the same?

Asked in three ways: how well it does, whether its weights know more than in random order, and
whether what is said to have made them makes them again.

If the numbers of each tensor were drawn independently of one another and of the data, their order
means nothing: the network with every tensor shuffled is as likely as the network itself. So the
chance that it errs on fewer of these examples than all of 19 shuffled networks is at most 1/20, and
less where it must be better by more than counting errors explains. Asked twice: of its answers, and
of what its last hidden layer makes of the examples, by a linear rule fitted on one half of them and
tested on the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nonvacuous.audit.watching import ALLOWED_NUMBERS
from nonvacuous.data import Examples
from nonvacuous.distributions.copying import copied_network
from nonvacuous.recipes import recipe_of
from nonvacuous.rules.digests import fixed_tensors

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
    """What the network, in evaluation mode, knows of some of these examples."""
    device = next(module.parameters(), torch.empty(0)).device
    inputs, labels = _some(examples, EXAMPLES)
    with torch.no_grad():
        scores = module(inputs.to(device)).cpu()
    errors = [_wrong(scores, labels)]
    if len(labels) > 1:  # one example less its own mean is nothing but zeros
        errors.append(_wrong(scores - scores.mean(dim=0), labels))
    most = float(torch.bincount(labels, minlength=examples.classes).max()) / len(labels)
    return Knowledge(min(errors) / len(labels), 1.0 - most, examples.classes)


def _some(examples: Examples, count: int) -> tuple[Tensor, Tensor]:
    """So many inputs and labels of all classes: in many data sets one class follows the other."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    chosen = order[:count].to(examples.inputs.device)
    return examples.inputs[chosen], examples.labels[chosen.to(examples.labels.device)].cpu()


def irreproducible(start: nn.Module) -> str:
    """Why a seed does not account for these weights; nothing where it does."""
    recipe = recipe_of(start)
    if recipe is None:
        return "nothing says how they came about"
    whence = f"{recipe.name} at seed {recipe.seed}"
    try:
        again, other = recipe.made(), recipe.made(seed=recipe.seed + 1)
    except Exception as error:  # the user's code may raise anything
        return f"{whence} could not be built again ({type(error).__name__}: {error})"
    own, rebuilt = fixed_tensors(start), fixed_tensors(again)
    common = own.keys() & rebuilt.keys()
    different = own.keys() ^ rebuilt.keys()
    different |= {name for name in common if not _same(own[name], rebuilt[name])}
    if different:
        return f"{whence}, built again, has another {min(different)!r}"
    # What is the same from every seed comes from elsewhere, unless it is all equal; a network may
    # bring along a few such numbers, as masks and means of channels, but no weights.
    elsewhere = {} if recipe.built_in else fixed_tensors(other)
    parameters, numbers = {name for name, _ in start.named_parameters()}, 0
    for name, tensor in own.items():
        varied = bool((tensor != tensor.flatten()[0]).any()) if tensor.numel() else False
        if varied and name in elsewhere and _same(tensor, elsewhere[name]):
            numbers += tensor.numel()
            if name in parameters or numbers > ALLOWED_NUMBERS:
                return f"{recipe.name} gives the same {name!r} whatever the seed"
    return ""


def _same(first: Tensor, second: Tensor) -> bool:
    """To the last bit, on whatever device, in the type of the first."""
    if first.shape != second.shape:
        return False
    return first.detach().cpu().equal(second.detach().cpu().to(first.dtype))


SHUFFLES = 19
#: So many examples are enough to see it, and few enough for large networks.
SHUFFLED_EXAMPLES = 1024
#: Standard deviations of a difference of two counts that luck is granted.
_DEVIATIONS = 3.0


def surprises(module: nn.Module, examples: Examples) -> tuple[str, ...]:
    """All in which the network beats itself with shuffled weights, in words; nothing for most."""
    inputs, labels = _some(examples, SHUFFLED_EXAMPLES)
    network = copied_network(module).eval().requires_grad_(False)
    own = _errors(network, inputs, labels, examples.classes)
    least = dict.fromkeys(own, len(labels))
    weights = {name: tensor.clone() for name, tensor in network.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    open_questions = set(own)
    for _ in range(SHUFFLES):
        for name, tensor in network.named_parameters():
            order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
            tensor.copy_(weights[name].flatten()[order].view_as(tensor))
        for where, errors in _errors(network, inputs, labels, examples.classes).items():
            least[where] = min(least.get(where, errors), errors)
        rates = {where: errors / len(labels) for where, errors in least.items()}
        luck = {w: math.sqrt(2.0 * len(labels) * rate * (1.0 - rate)) for w, rate in rates.items()}
        open_questions = {w for w in own if own[w] + _DEVIATIONS * luck[w] + 1.0 < least[w]}
        if not open_questions:  # one that does as well settles it
            return ()
    return tuple(
        f"{where}: {own[where] / len(labels):.1%} errors, {least[where] / len(labels):.1%} or more "
        "when shuffled"
        for where in sorted(open_questions)
    )


def _errors(module: nn.Module, inputs: Tensor, labels: Tensor, classes: int) -> dict[str, int]:
    #: What goes into the last layer that has weights of its own.
    seen: list[Tensor] = []

    def note(_: nn.Module, arguments: tuple[object, ...]) -> None:
        if arguments and isinstance(arguments[0], Tensor) and len(arguments[0]) == len(inputs):
            seen[:] = [arguments[0]]

    layers = [m for m in module.modules() if next(m.parameters(recurse=False), None) is not None]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    device = next(module.parameters(), torch.empty(0)).device
    try:
        with torch.no_grad():
            scores = module(inputs.to(device)).double().cpu()
    finally:
        for hook in hooks:
            hook.remove()
    counts = {"answers": min(_wrong(scores, labels), _wrong(scores - scores.mean(0), labels))}
    if seen and len(labels) > 1:
        counts["last hidden layer"] = _probe(seen[0].flatten(1).double().cpu(), labels, classes)
    return counts


def _wrong(scores: Tensor, labels: Tensor) -> int:
    return int((scores.argmax(dim=1) != labels).sum())


def _probe(features: Tensor, labels: Tensor, classes: int) -> int:
    """Errors of ridge regression, each half of the examples answered by the other."""
    targets = nn.functional.one_hot(labels, classes).double()
    half, errors = len(labels) // 2, 0
    halves = slice(0, half), slice(half, None)
    for fitted, tested in (halves, halves[::-1]):
        mean, center = features[fitted].mean(0), targets[fitted].mean(0)
        known = features[fitted] - mean
        gram = known @ known.T
        ridge = 0.01 * gram.diagonal().mean().clamp_min(1e-30) * torch.eye(len(known)).double()
        answer = torch.linalg.solve(gram + ridge, targets[fitted] - center)
        scores = (features[tested] - mean) @ known.T @ answer + center
        errors += _wrong(scores, labels[tested])
    return errors
