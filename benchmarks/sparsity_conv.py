"""Certificates for deterministic convolutional networks, sparse and dense.

python benchmarks/sparsity_conv.py                # MNIST, about ten minutes of one thread
python benchmarks/sparsity_conv.py --data cifar10 --fraction 0.5 --channels 4 --device cuda

A prior learned on 5 % of the images (or more), a network trained toward it on the others, and
Theorem E. Every certificate pays for being the smallest of CHOICES: networks, variants and a
thousand recipes (steps, rates, noises, fractions, channels), those among them that were tried.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from provenance import RESULTS, write_result
from torch import nn

from nonvacuous.bounds.holdout import holdout
from nonvacuous.data import Examples, load
from nonvacuous.data.splits import split_examples
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import SparseSettings, certify_sparse
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.training import unit_norm

FAILURE, SAMPLING_FAILURE = 0.05, 0.01
SUBSET, PASSES = 400, 1
#: Networks (with their pulls) x variants x recipes: every one is paid for. The list of recipes that
#: anyone would try (steps, rates, noises, fractions, channels) has far fewer entries.
RECIPES = 1_000
CHOICES = 8 * 2 * RECIPES
VARIANTS: tuple[Literal["sparse", "dense"], ...] = ("sparse", "dense")


@dataclass(frozen=True)
class Images:
    """What networks are built for: colors and side of an image, and a factor of the channels."""

    colors: int
    side: int
    factor: int

    def strided(self) -> nn.Module:
        """A convolution with stride 2, then the classes."""
        return self._closed(self._first(16 * self.factor), nn.ReLU())

    def pooled(self) -> nn.Module:
        """The same with half the channels and max-pooling."""
        return self._closed(self._first(8 * self.factor), nn.ReLU(), nn.MaxPool2d(2))

    def two_convolutions(self) -> nn.Module:
        """A second convolution with stride 2."""
        few, many = 8 * self.factor, 16 * self.factor
        second = nn.Conv2d(few, many, 3, stride=2, bias=False)
        return self._closed(self._first(few), nn.ReLU(), second, nn.ReLU())

    def _first(self, channels: int) -> nn.Module:
        return nn.Conv2d(self.colors, channels, 5, stride=2, bias=False)

    def _closed(self, *parts: nn.Module) -> nn.Module:
        body = nn.Sequential(*parts, nn.Flatten())
        size = body(torch.zeros(1, self.colors, self.side, self.side)).shape[1]
        return nn.Sequential(*body, nn.Linear(size, 10, bias=False))


#: Name, network, learning rate, pulls toward the prior.
NETWORKS: tuple[tuple[str, Callable[[Images], nn.Module], float, tuple[float, ...]], ...] = (
    ("5x5/2, {0} channels", Images.strided, 0.5, (1.0, 0.1)),
    ("5x5/2, {1} channels, max pool 2", Images.pooled, 0.5, (1.0,)),
    ("5x5/2, {1} channels, 3x3/2, {0} channels", Images.two_convolutions, 0.15, (1.0,)),
)


def images(examples: Examples, kind: Images) -> Examples:
    """Inputs of norm 1, as images; photographs without the mean of their own entries."""
    scaled = unit_norm(examples, centered=kind.colors > 1)
    shape = (-1, kind.colors, kind.side, kind.side)
    return replace(scaled, inputs=scaled.inputs.reshape(shape))


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


def measure(
    number: int, kind: Images, train: Examples, test: Examples, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """The cases of one network: its pulls share the prior."""
    name, build, rate, pulls = NETWORKS[number]
    name = name.format(16 * kind.factor, 8 * kind.factor)
    seed, longer = arguments.seed, arguments.steps
    split = split_examples(
        train, prior_fraction=arguments.fraction, seed=derived_seed(seed, "split")
    )
    shaping, bound = (
        train.subset(part).to(arguments.device) for part in (split.prior, split.bound)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "start", name))
        start = build(kind).to(arguments.device)
    first = ConvTraining(
        steps=longer,
        learning_rate=rate,
        noise=0.03 if arguments.fraction < 0.5 else 0.01,
        shifts=1,
        mirrored=kind.colors > 1,
    )
    prior = train_conv(start, shaping, settings=first, seed=derived_seed(seed, "prior", name))
    wrong = errors(prior, bound)
    pulls = pulls if arguments.fraction < 0.5 else (1.0, 5.0)
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
            certificate = certify_sparse(
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
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--fraction", type=float, default=0.05, help="that the prior learns from")
    parser.add_argument("--channels", type=int, default=1, help="times those of MNIST's networks")
    parser.add_argument("--steps", type=int, default=1500, help="of the prior's training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", type=int, default=range(len(NETWORKS)))
    parser.add_argument("--name", default="sparsity-conv", help="of the result file")
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = load(arguments.data)
    colors, side = data.train.inputs.shape[1:3]
    kind = Images(colors, side, arguments.channels)
    train, test = images(data.train, kind), images(data.test, kind).to(arguments.device)
    cases: list[dict[str, Any]] = []
    for number in arguments.only:
        cases += measure(number, kind, train, test, arguments)
        result = {
            "data": arguments.data,
            "fraction": arguments.fraction,
            "choices": CHOICES,
            "failure": FAILURE,
            "sampling_failure": SAMPLING_FAILURE,
            "subset": SUBSET,
            "passes": PASSES,
            "cases": cases,
        }
        # As it goes: a machine may be taken away.
        write_result(arguments.name, result, seed=arguments.seed, folder=arguments.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
