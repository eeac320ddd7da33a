"""Certificates for deterministic convolutional networks on MNIST, sparse and dense.

python benchmarks/sparsity_conv.py                # about ten minutes of one thread

A prior learned on 5 % of the images, a network trained toward it on the others, and Theorem E with
n = 57,000. Every certificate pays for being the smallest of CHOICES: networks, variants and ten
recipes. Step sizes were settled on Fashion-MNIST; trials on MNIST count among the ten.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from provenance import write_result
from torch import nn

from nonvacuous.bounds.holdout import holdout
from nonvacuous.data import Examples, load
from nonvacuous.data.splits import split_examples
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import SparseSettings, certify_sparse_conv
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.training import unit_norm

FRACTION, FAILURE, SAMPLING_FAILURE = 0.05, 0.05, 0.01
SUBSET, PASSES = 400, 1
#: Networks (with their pulls) x variants x recipes: every one is paid for.
RECIPES = 10
CHOICES = 4 * 2 * RECIPES
VARIANTS: tuple[Literal["sparse", "dense"], ...] = ("sparse", "dense")


def strided() -> nn.Module:
    """A convolution with stride 2, then the classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 144, 10, bias=False),
    )


def pooled() -> nn.Module:
    """The same with half the channels and max-pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 36, 10, bias=False),
    )


def two_convolutions() -> nn.Module:
    """A second convolution with stride 2."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 25, 10, bias=False),
    )


#: Name, network, learning rate, pulls toward the prior.
NETWORKS: tuple[tuple[str, Callable[[], nn.Module], float, tuple[float, ...]], ...] = (
    ("5x5/2, 16 channels", strided, 0.5, (1.0, 0.1)),
    ("5x5/2, 8 channels, max pool 2", pooled, 0.5, (1.0,)),
    ("5x5/2, 8 channels, 3x3/2, 16 channels", two_convolutions, 0.15, (1.0,)),
)


def images(examples: Examples) -> Examples:
    """Inputs of norm 1, as images."""
    scaled = unit_norm(examples)
    return replace(scaled, inputs=scaled.inputs.reshape(-1, 1, 28, 28))


def errors(module: nn.Module, examples: Examples) -> int:
    """Examples on which the label is not ahead of every other class."""
    wrong = 0
    with torch.no_grad():
        for start in range(0, len(examples), 4000):
            scores = module(examples.inputs[start : start + 4000])
            places = examples.labels[start : start + 4000, None]
            own = scores.gather(1, places)[:, 0]
            wrong += int((own <= scores.scatter(1, places, -torch.inf).amax(1)).sum())
    return wrong


def measure(number: int, train: Examples, test: Examples, *, seed: int) -> list[dict[str, Any]]:
    """The cases of one network: its pulls share the prior."""
    name, build, rate, pulls = NETWORKS[number]
    split = split_examples(train, prior_fraction=FRACTION, seed=derived_seed(seed, "split"))
    shaping, bound = train.subset(split.prior), train.subset(split.bound)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "start", name))
        start = build()
    first = ConvTraining(steps=1500, learning_rate=rate, noise=0.03, shifts=1)
    prior = train_conv(start, shaping, settings=first, seed=derived_seed(seed, "prior", name))
    wrong = errors(prior, bound)
    found = []
    for pull in pulls:
        second = ConvTraining(steps=800, learning_rate=0.4 * rate, noise=0.03, pull=pull)
        network = train_conv(
            prior, bound, settings=second, toward=prior, seed=derived_seed(seed, "network", name)
        )
        case: dict[str, Any] = {
            "network": name,
            "pull": pull,
            "prior_training": asdict(first),
            "training": asdict(second),
            "examples": len(bound),
            "prior_examples": len(shaping),
            "twin": holdout(errors=wrong, examples=len(bound), failure=FAILURE),
            "test_errors": errors(network, test),
            "test_examples": len(test),
        }
        for variant in VARIANTS:
            certificate = certify_sparse_conv(
                network,
                prior,
                bound,
                SparseSettings(
                    variant=variant,
                    confidence=1.0 - FAILURE,
                    sampling_failure=SAMPLING_FAILURE,
                    choices=CHOICES,
                    passes=PASSES,
                    subset=SUBSET,
                ),
                seed=derived_seed(seed, "certificate", name, pull, variant),
            )
            case[variant] = certificate.to_dict()
            print(name, pull, variant, certificate.risk_upper, file=sys.stderr, flush=True)
        found.append(case)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = load("mnist")
    train, test = images(data.train), images(data.test)
    cases = [
        case
        for number in range(len(NETWORKS))
        for case in measure(number, train, test, seed=arguments.seed)
    ]
    result = {
        "choices": CHOICES,
        "failure": FAILURE,
        "sampling_failure": SAMPLING_FAILURE,
        "subset": SUBSET,
        "passes": PASSES,
        "cases": cases,
    }
    write_result("sparsity-conv", result, seed=arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
