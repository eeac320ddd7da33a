"""Losses with a declared range: a bound on a loss outside its range would be false.

A loss looks at the outputs of a classifier, one row of scores for each example, and the labels.
Rows with a score that is not finite get the worst value of the range: a network that breaks down
on an example has failed there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class Loss:
    """A loss of one prediction, known to lie in [lower, upper].

    ``function(outputs, labels)`` gives one value for each row of outputs. ``binary`` promises that
    only the two ends of the range occur, so that losses can be counted as errors. Values outside
    the range, or NaN, raise :class:`~nonvacuous.errors.BadInput` when they occur.
    """

    name: str
    lower: float
    upper: float
    function: Callable[[Tensor, Tensor], Tensor]
    binary: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.lower < self.upper < math.inf:
            raise BadInput(
                f"loss {self.name!r} has no finite range, lower < upper, but {self.lower}, "
                f"{self.upper}; no bound here applies to it"
            )

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """One value in [lower, upper] for each example."""
        _check_outputs(self.name, outputs, labels)
        values = self.function(outputs, labels)
        if values.shape != labels.shape:
            raise BadInput(
                f"loss {self.name!r} returned shape {tuple(values.shape)} for {len(labels)} "
                "examples; it must return one value for each example"
            )
        values = values.to(torch.get_default_dtype()) if not values.is_floating_point() else values
        broken = ~torch.isfinite(outputs).all(dim=1)
        values = values.masked_fill(broken, self.upper)
        inside = (values >= self.lower) & (values <= self.upper)
        if self.binary:
            inside = (values == self.lower) | (values == self.upper)
        if not bool(inside.all()):
            worst = float(values[~inside][0])
            ends = f"{self.lower}, {self.upper}"
            allowed = f"{{{ends}}}" if self.binary else f"[{ends}]"
            raise BadInput(
                f"loss {self.name!r} took the value {worst} outside its declared range {allowed}; "
                "correct the range or the function, a bound for it would be false"
            )
        return values

    def unit_sum(self, values: Tensor) -> float:
        """The sum of values that this loss returned, in units of its range, in float64."""
        if self.binary:
            return float((values == self.upper).sum())
        return float(((values.double() - self.lower) / (self.upper - self.lower)).sum())


def check_name(loss: Loss) -> None:
    """Refuse somebody's loss that is called like one of the library's."""
    made_by = getattr(getattr(loss.function, "func", loss.function), "__module__", "")
    ours = loss.name == zero_one.name or loss.name.startswith(tuple(MADE_FROM_A_NUMBER))
    if ours and made_by != __name__:
        raise BadInput(
            f"the name {loss.name!r} belongs to a loss of the library, and what is known of that "
            "one would be taken for granted of yours; give it another name"
        )


def class_margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Score of the right class minus the best other score, for each example."""
    own = outputs.gather(1, labels.unsqueeze(1))
    others = outputs.scatter(1, labels.unsqueeze(1), -math.inf)
    return (own - others.amax(dim=1, keepdim=True)).squeeze(1)


def _not_ahead(outputs: Tensor, labels: Tensor, margin: float = 0.0) -> Tensor:
    """1 unless the right class leads every other by more than the margin."""
    # Not ``<= margin``: where the difference is NaN, that must count as an error too.
    return (~(class_margins(outputs, labels) > margin)).to(outputs.dtype)


zero_one = Loss(name="zero-one", lower=0.0, upper=1.0, function=_not_ahead, binary=True)
"""1 for an error and 0 otherwise; a tie with another class is an error."""


def margin_loss(margin: float) -> Loss:
    """1 unless the right class leads every other by more than ``margin``, else 0.

    With margin 0 this is :data:`zero_one`; it is never below it, so a bound on the margin loss
    bounds the error.
    """
    checks.non_negative("margin", margin)
    ahead = partial(_not_ahead, margin=margin)
    name = f"margin {written(margin)}"
    return Loss(name=name, lower=0.0, upper=1.0, function=ahead, binary=True)


def bounded_cross_entropy(minimum_probability: float = 1e-5) -> Loss:
    """Cross-entropy with probabilities cut off from below, divided by its largest value.

    ``-ln(max(p, minimum_probability)) / ln(1 / minimum_probability)``, where p is the softmax
    probability of the right class: a loss in [0, 1].
    """
    checks.within("minimum_probability", minimum_probability, 0.0, 1.0, open=True)
    largest = -math.log(minimum_probability)

    def function(outputs: Tensor, labels: Tensor) -> Tensor:
        nats = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
        return nats.div(largest).clamp(0.0, 1.0)

    name = f"cross-entropy with probabilities of at least {written(minimum_probability)}"
    return Loss(name=name, lower=0.0, upper=1.0, function=function)


#: Losses that are made from a number, by the words before it in their names. To add one, enter it
#: here: ``verify`` finds by its name the loss that a certificate speaks of.
MADE_FROM_A_NUMBER: dict[str, Callable[[float], Loss]] = {
    "margin ": margin_loss,
    "cross-entropy with probabilities of at least ": bounded_cross_entropy,
}


def loss_named(name: str) -> Loss | None:
    """The built-in loss of that name, or None."""
    if name == zero_one.name:
        return zero_one
    for words, make in MADE_FROM_A_NUMBER.items():
        if name.startswith(words):
            try:
                loss = make(float(name.removeprefix(words)))
            except ValueError:
                return None
            return loss if loss.name == name else None
    return None


def written(number: float) -> str:
    """The number in as few digits as say which it is: ``verify`` makes the loss again from them.

    >>> written(1.0), written(1e-5), written(0.1234567)
    ('1', '1e-05', '0.1234567')
    """
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


def _check_outputs(name: str, outputs: Tensor, labels: Tensor) -> None:
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < 2:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise BadInput(
            f"loss {name!r} needs one row of at least two class scores for each example, but the "
            f"network returned {shape}; wrap the network so that it returns scores alone"
        )
    if len(outputs) != len(labels):
        raise BadInput(f"the network returned {len(outputs)} rows for {len(labels)} examples")
