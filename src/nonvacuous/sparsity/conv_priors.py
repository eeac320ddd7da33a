"""Priors for convolutional networks: zero, the initialization, or learned on other examples."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from nonvacuous.data.examples import Examples
from nonvacuous.data.splits import split_examples
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.priors import parse_prior


@dataclass(frozen=True, eq=False)
class ConvPrior:
    """The center of a prior, where training toward it starts, and the examples left for the bound.

    kind     zero, initialization or learned
    center   the network at the center
    start    the center, or, for zero, the given network
    bound    the examples that its bounds may use
    """

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
    """A prior for networks built like ``initial``.

    prior      zero, initialization or learned:FRACTION
    train      all examples; a learned prior takes its share out of them
    settings   how a learned prior is trained
    """
    kind, fraction = parse_prior(prior)
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
