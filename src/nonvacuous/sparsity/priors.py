"""Where a prior is centered: at zero, at the initialization, or at weights learned on other data.

The examples that shape a prior never enter its bound. A prior that is centered at zero or at the
random initialization has seen no example, so its bound runs on all of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from nonvacuous.bounds.holdout import holdout
from nonvacuous.data.examples import Examples
from nonvacuous.data.splits import Split, split_examples
from nonvacuous.errors import BadInput
from nonvacuous.kinds import prior_kind
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.training import (
    Chain,
    ChainTraining,
    chain_errors,
    initial_chain,
    train_chain,
)


@dataclass(frozen=True, eq=False)
class ChainPrior:
    """The center of a prior, where training starts, and the examples left for the bound.

    kind       zero, initialization or learned
    weights    its center
    start      where training toward it starts: the center, or, for zero, random weights
    bound      the examples that its bounds may use
    split      which examples shaped it and which are left
    errors     its own errors on the bound part; None unless learned
    """

    kind: str
    weights: Chain
    start: Chain
    bound: Examples
    split: Split
    errors: int | None

    def held_out_twin(self, *, failure: float) -> float | None:
        """What a plain test of the learned prior itself promises: no theorem, no posterior.

        The prior never met the bound part, so its errors there bound its risk by the binomial
        tail. A certificate above this number has not paid for itself.
        """
        if self.errors is None:
            return None
        return holdout(errors=self.errors, examples=len(self.bound), failure=failure)


def shifted_copies(examples: Examples, pixels: int, *, mirrored: bool = False) -> Examples:
    """Square images of one or three channels and copies moved by up to ``pixels`` each way, norms
    kept; ``mirrored``, each also left to right.

    Only for examples that shape a prior: copies are not independent examples, so that no bound may
    count them.
    """
    if pixels == 0 and not mirrored:
        return examples
    flat = examples.inputs.flatten(1)
    channels = 1 if math.isqrt(flat.shape[1]) ** 2 == flat.shape[1] else 3
    side = math.isqrt(flat.shape[1] // channels)
    if channels * side * side != flat.shape[1] or not 0 <= pixels < side:
        raise BadInput(
            f"{examples.name}: inputs of {flat.shape[1]} values cannot be moved by {pixels} "
            "pixels; shifts need square images of one or three channels, and fewer pixels than a "
            "side"
        )
    images = pad(flat.reshape(-1, channels, side, side), (pixels,) * 4)
    norms = flat.norm(dim=1, keepdim=True)
    moves = range(2 * pixels + 1)
    views = [
        (top, left, flip)
        for top, left in product(moves, moves)
        for flip in ((False, True) if mirrored else (False,))
    ]
    # Filled one after the other: a list of all copies would need the memory twice.
    copies = flat.new_empty(len(views), *flat.shape)
    for target, (top, left, flip) in zip(copies, views, strict=True):
        view = images[:, :, top : top + side, left : left + side]
        moved = (view.flip(3) if flip else view).flatten(1)
        # What is moved over the edge is lost; an input of the certificate never is.
        target.copy_(moved * (norms / moved.norm(dim=1, keepdim=True).clamp_min(1e-12)))
    steps = (f"moved by up to {pixels} pixels",) + (("mirrored",) if mirrored else ())
    return replace(
        examples,
        inputs=copies.flatten(0, 1),
        labels=examples.labels.repeat(len(views)),
        preprocessing=(*examples.preprocessing, *steps),
    )


def make_prior(
    prior: str,
    train: Examples,
    widths: Sequence[int],
    *,
    settings: ChainTraining,
    start: str = "gaussian",
    copied: Callable[[Examples], Examples] | None = None,
    seed: int,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    learned: Chain | None = None,
) -> ChainPrior:
    """A prior for chains with these hidden widths.

    prior      zero, initialization or learned:FRACTION
    train      all examples, inputs already of norm 1; a learned prior takes its share out of them
    settings   how a learned prior is trained; it may use any trick, since its data are its own
    start      see :func:`nonvacuous.sparsity.training.initial_chain`
    copied     makes of a learned prior's examples those that it is trained on, such as
               :func:`shifted_copies`
    device     where to train it, and where its weights and examples then lie; without it, where
               ``train`` lies. The start is the same on every device, training is not
    learned    weights that an earlier call with the same arguments learned, to be used again
    """
    where = torch.device(device) if device is not None else train.inputs.device
    kind, fraction = prior_kind(prior)
    sizes = (train.inputs[:1].numel(), *widths, train.classes)
    drawn = initial_chain(sizes, seed=derived_seed(seed, "start"), start=start)
    initial = tuple(matrix.to(where) for matrix in drawn)
    if kind != "learned":
        everything = np.arange(len(train))
        center = initial if kind == "initialization" else tuple(0.0 * matrix for matrix in initial)
        split = Split(everything[:0], everything, everything[:0])
        return ChainPrior(kind, center, initial, train.to(where), split, None)
    # Copies of an input stay on one side, so that the bound is not computed on what was learned.
    split = split_examples(train, prior_fraction=fraction, seed=derived_seed(seed, "split"))
    if learned is None:
        own = train.subset(split.prior).to(where)
        learned = train_chain(
            initial,
            own if copied is None else copied(own),
            settings=settings,
            seed=derived_seed(seed, "prior"),
            phase="prior",
            progress=progress,
        )
    learned = tuple(matrix.to(where) for matrix in learned)
    bound = train.subset(split.bound).to(where)
    errors = chain_errors(learned, bound)
    return ChainPrior(kind, learned, learned, bound, split, errors)


# Priors for convolutional networks: zero, the initialization, or learned on other examples.


@dataclass(frozen=True, eq=False)
class ConvPrior:
    """As :class:`ChainPrior`: the network at the center, where training toward it starts, and the
    examples left for the bound."""

    kind: str
    center: nn.Module
    start: nn.Module
    bound: Examples


def make_conv_prior(
    prior: str,
    train: Examples,
    initial: nn.Module,
    *,
    settings: ConvTraining,
    seed: int,
    progress: Progress | None = None,
) -> ConvPrior:
    """A prior for networks built like ``initial``; see :func:`make_prior`."""
    kind, fraction = prior_kind(prior)
    if kind == "initialization":
        return ConvPrior(kind, initial, initial, train)
    if kind == "zero":
        center = copy.deepcopy(initial)
        with torch.no_grad():
            for parameter in center.parameters():
                parameter.zero_()
        return ConvPrior(kind, center, initial, train)
    # Copies of an input stay on one side, so that the bound is not computed on what was learned.
    split = split_examples(train, prior_fraction=fraction, seed=derived_seed(seed, "split"))
    learned = train_conv(
        initial,
        train.subset(split.prior),
        settings=settings,
        seed=derived_seed(seed, "prior"),
        phase="prior",
        progress=progress,
    )
    return ConvPrior(kind, learned, learned, train.subset(split.bound))
