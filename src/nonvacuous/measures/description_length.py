"""How short a message describes the network, pruned and rounded, and what Occam's razor says.

The code is a prefix code fixed in advance. It names one of a few combinations of bits per weight
and share of weights kept; then, for every tensor, a step (32 bits), how many weights are not zero,
which ones, and their levels. Every string it can produce has its share of the prior, 2^-length,
and the bound holds for all of them at once: the choice of the best costs nothing more.
"""

from __future__ import annotations

import functools
import math
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from nonvacuous.bounds import kl_inverse_upper
from nonvacuous.bounds.holdout import log_choose
from nonvacuous.bounds.rounding import EPSILON, as_risk, up
from nonvacuous.measures.flatness import TOLERATED, errors
from nonvacuous.measures.gauges import balanced
from nonvacuous.measures.registry import Undefined, register_measure
from nonvacuous.measures.subject import Subject, Weights

BITS = (2, 3, 4, 6, 8, 12)
KEPT = (1.0, 0.5, 0.25, 0.1, 0.05)
_FAILURE = 0.05
_STEP_BITS = 32


def rounded(weight: Tensor, *, bits: int, kept: float) -> tuple[Tensor, float]:
    """A tensor as it is decoded, and the length of its description in bits.

    Of ``weight`` the largest ``kept`` are rounded to 2^bits - 1 levels around zero, the others
    are zero. Tensors with one axis (biases) are never pruned.
    """
    size = weight.numel()
    count = max(1, math.ceil(kept * size)) if weight.ndim > 1 else size
    flat = weight.flatten()
    largest = float(flat.abs().max())
    highest = 2 ** (bits - 1) - 1
    # The step that is sent has 32 bits; levels are taken before it is rounded, so that they do not
    # change when all weights are multiplied by one factor.
    step = float(np.float32(largest / highest))
    levels = torch.zeros_like(flat)
    if step > 0:
        chosen = flat.abs().topk(count).indices
        levels[chosen] = (flat[chosen] / largest * highest).round().clamp(-highest, highest)
    present = int((levels != 0).sum())
    lost = 16 * EPSILON * math.lgamma(size + 1)  # what differences of logarithms may have lost
    positions = (float(log_choose(size, present)) + lost) / math.log(2)
    signs_and_sizes = present * math.log2(2 * highest)
    length = _STEP_BITS + math.log2(size + 1) + positions + signs_and_sizes
    return (levels * step).reshape(weight.shape), length


def described(subject: Subject, weights: Weights) -> tuple[float | None, float]:
    """Try all messages for these weights, the shortest first.

    Returns the nats of the shortest message whose network is hardly worse (None where all are), and
    the smallest bound of any message.

    A message that is longer than one that will do, and whose bound would not be better even if its
    network made no error, is not tried.
    """
    n = len(subject.examples[1])
    allowed = errors(subject, subject.weights) + TOLERATED * n
    messages = (_written(weights, bits, kept) for bits in BITS for kept in KEPT)
    shortest, best = None, 1.0
    for nats, network in sorted(messages, key=itemgetter(0)):
        exponent = up((nats + math.log(1 / _FAILURE)) / n)
        if shortest is not None and kl_inverse_upper(0.0, exponent) >= best:
            break
        wrong = errors(subject, network)
        if shortest is None and wrong <= allowed:
            shortest = nats
        best = min(best, as_risk(float(kl_inverse_upper(wrong / n, exponent))))
    return shortest, best


def _written(weights: Weights, bits: int, kept: float) -> tuple[float, dict[str, Tensor]]:
    """The length of a whole message in nats, and the weights that it says."""
    parts = {name: rounded(weight, bits=bits, kept=kept) for name, weight in weights.items()}
    length = math.log2(len(BITS) * len(KEPT)) + math.fsum(bits for _, bits in parts.values())
    nats = up(length * math.log(2), ulps=1 << 10)
    return nats, {name: tensor for name, (tensor, _) in parts.items()}


def _register(prefix: str, *, in_balance: bool) -> None:
    where = ", of the weights in the gauge of smallest norm" if in_balance else ""
    register = functools.partial(
        register_measure,
        family="description length",
        needs=["examples"],
        cost="expensive",
        invariant=["rescaling", "permutation"] if in_balance else ["permutation", "output scale"],
    )

    def description(subject: Subject) -> tuple[float | None, float]:
        return subject.once(
            f"{prefix}description",
            lambda: described(subject, balanced(subject) if in_balance else subject.weights),
        )

    @register(
        f"{prefix}description-length",
        formula="nats of the shortest pruned and rounded network that adds at most "
        f"{100 * TOLERATED:.0f} points of training error{where}",
        source="Rissanen (1978); pruning and rounding as in Zhou et al. (2019)",
    )
    def nats(subject: Subject) -> float | Undefined:
        shortest, _ = description(subject)
        if shortest is None:
            return Undefined(
                f"rounded to {max(BITS)} bits the network already makes more errors: its weights "
                "differ in size by too much for one step per tensor"
            )
        return shortest

    @register(
        f"{prefix}occam-bound",
        formula="a bound on the risk of the network so described, δ = 0.05: smallest kl⁻¹(its "
        f"training error, (nats + ln(1/δ)) / n){where}",
        source="Langford (2005), Occam's razor",
    )
    def bound(subject: Subject) -> float:
        subject.check_covered()
        return description(subject)[1]


_register("", in_balance=False)
_register("balanced-", in_balance=True)
