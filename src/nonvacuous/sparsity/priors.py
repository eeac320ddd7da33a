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
from typing import Generic, TypeVar

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
from nonvacuous.sparsity import training
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv

#: The weights of a chain, or a network that has them.
CenterT = TypeVar("CenterT")


@dataclass(frozen=True, eq=False)
class CenteredPrior(Generic[CenterT]):
    """The center of a prior, where training starts, and the examples left for the bound.

    kind       zero, initialization or learned
    center     its weights, or the network that has them
    start      where training toward it starts: the center, or, for zero, random weights
    bound      the examples that its bounds may use
    split      which examples shaped it and which are left
    errors     a learned chain's own errors on the bound part
    """

    kind: str
    center: CenterT
    start: CenterT
    bound: Examples
    split: Split
    errors: int | None = None

    def held_out_twin(self, *, failure: float) -> float | None:
        """What a plain test of the learned prior itself promises: no theorem, no posterior.

        The prior never met the bound part, so its errors there bound its risk by the binomial
        tail. A certificate above this number has not paid for itself.
        """
        if self.errors is None:
            return None
        return holdout(errors=self.errors, examples=len(self.bound), failure=failure)


def _centered(
    prior: str,
    train: Examples,
    initial: CenterT,
    zero: CenterT,
    learn: Callable[[Examples, int], CenterT],
    *,
    seed: int,
) -> CenteredPrior[CenterT]:
    kind, fraction = prior_kind(prior)
    if kind != "learned":
        everything = np.arange(len(train))
        split = Split(everything[:0], everything, everything[:0])
        center = initial if kind == "initialization" else zero
        return CenteredPrior(kind, center, initial, train, split)
    # Copies of an input stay on one side, so that the bound is not computed on what was learned.
    split = split_examples(train, prior_fraction=fraction, seed=derived_seed(seed, "split"))
    learned = learn(train.subset(split.prior), derived_seed(seed, "prior"))
    return CenteredPrior(kind, learned, learned, train.subset(split.bound), split)


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
    views = list(product(moves, moves, (False, True) if mirrored else (False,)))
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
    settings: training.ChainTraining,
    start: str = "gaussian",
    copied: Callable[[Examples], Examples] | None = None,
    seed: int,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    learned: training.Chain | None = None,
) -> CenteredPrior[training.Chain]:
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
    sizes = (train.inputs[:1].numel(), *widths, train.classes)
    drawn = training.initial_chain(sizes, seed=derived_seed(seed, "start"), start=start)
    initial = tuple(matrix.to(where) for matrix in drawn)

    def learn(own: Examples, seed: int) -> training.Chain:
        if learned is not None:
            return tuple(matrix.to(where) for matrix in learned)
        own = own.to(where) if copied is None else copied(own.to(where))
        return training.train_chain(
            initial, own, settings=settings, seed=seed, phase="prior", progress=progress
        )

    zero = tuple(0.0 * matrix for matrix in initial)
    made = _centered(prior, train.to(where), initial, zero, learn, seed=seed)
    errors = training.chain_errors(made.center, made.bound) if made.kind == "learned" else None
    return replace(made, errors=errors)


def make_conv_prior(
    prior: str,
    train: Examples,
    initial: nn.Module,
    *,
    settings: ConvTraining,
    seed: int,
    progress: Progress | None = None,
) -> CenteredPrior[nn.Module]:
    """A prior for networks built like ``initial``; see :func:`make_prior`."""
    zero = copy.deepcopy(initial)
    with torch.no_grad():
        for parameter in zero.parameters():
            parameter.zero_()

    def learn(own: Examples, seed: int) -> nn.Module:
        return train_conv(
            initial, own, settings=settings, seed=seed, phase="prior", progress=progress
        )

    return _centered(prior, train, initial, zero, learn, seed=seed)
