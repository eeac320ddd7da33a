"""Would Theorems D or F do better than E for convolutions? Their thresholds, at their best.

python benchmarks/sparsity_conv_theorems.py       # some minutes of one thread

Networks with one to four convolutions, trained on 5 % of MNIST, and one noisy pass of 300 other
images. E: the threshold that certificates use. D and F: what is left of theirs when everything
that would have to be named or capped is given for free, so that their certificates could only be
worse (docs/theory/sparsity.md, 10b).
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import numpy as np
import torch
from provenance import write_result
from sparsity_conv import Images, images
from torch import Tensor, nn

from nonvacuous.bounds.sparsity import (
    expected_shortfall,
    self_normalized_quantile,
    two_sided_quantile,
)
from nonvacuous.data import Examples, load
from nonvacuous.data.splits import split_examples
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.certify import evaluator_of
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_jacobian import ConvBounds, mean_shifts
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.conv_theorem import read_inputs, unit_reach
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.noise import ConvPass, conv_pass, standard_noise
from nonvacuous.sparsity.setting import ConvSetting, SparseSettings

ESCAPE = 5
#: Deeper networks bear less noise: the first layer's is 2^(-(36 + 8 convolutions)/4), and each
#: layer has 2^(1/2) times that of the one before.
FIRST, FEWER, STEP = -36, -8, 2


def network(convolutions: int) -> nn.Module:
    """A convolution with stride 2, then others that keep the size, then the classes."""
    parts: list[nn.Module] = [nn.Conv2d(1, 8, 5, stride=2, bias=False), nn.ReLU()]
    for _ in range(convolutions - 1):
        parts += [nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU()]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(8 * 144, 10, bias=False))


def theorem_f(
    chain: ConvChain, noisy: ConvPass, bounds: ConvBounds, norms: Tensor, escape: float
) -> tuple[Tensor, Tensor]:
    """Mean shifts and spread of Theorem F with caps at the noise that was drawn."""
    hidden, units = chain.hidden, sum(stage.units for stage in chain.stages[:-1])
    far = expected_shortfall(0.1 * escape / (2 * units))
    carried = torch.zeros_like(noisy.whole[0])
    gaps = torch.zeros_like(carried)[:, None]
    for j in range(hidden):
        if j:
            carried = bounds.step(j) * (carried + gaps.square().sum(1).sqrt())
        squares = [unit_reach(chain, noisy, bounds, k, j).square() for k in range(j + 1)]
        reach = torch.stack(squares).sum(0).sqrt()
        gaps = mean_shifts(chain.stages[j], noisy.before[j], reach, far * reach, None)
    means = norms * (gaps.square().sum(1).sqrt() + carried)
    spread = sum(
        (norms * noisy.whole[k] * bounds.onward(k, hidden - 1)).square() for k in range(hidden)
    )
    tail = expected_shortfall(0.9 * escape) * (spread + 2 * noisy.whole[-1].square()).sqrt()
    return means, tail


def theorem_d(
    chain: ConvChain, noisy: ConvPass, bounds: ConvBounds, norms: Tensor, escape: float
) -> tuple[Tensor, Tensor]:
    """Carried error and spread of Theorem D, quantiles of norms replaced by root mean squares."""
    hidden = chain.hidden
    share = escape / (2 * hidden)
    error = torch.zeros_like(noisy.whole[0])
    carried = error
    for j in range(hidden):
        stage, own = chain.stages[j], noisy.units[j]
        far = two_sided_quantile(failure=share, events=stage.units)
        row = bounds.rows[j]
        moves = row * error[:, None] + far * own
        awake = (noisy.before[j] > -2 * moves[:, None]).double()
        carried = bounds.step(j) * error if j else error
        error = carried + (awake * own.square()[:, None]).sum((1, 2)).sqrt()
    last = noisy.whole[hidden - 1] * bounds.pools[hidden - 1]
    near = (noisy.before[-1].abs() < 2 * far * own[:, None]).double()
    shifts = (near * own.square()[:, None]).sum((1, 2)).sqrt() / math.sqrt(2 * math.pi)
    level = self_normalized_quantile(share)
    spread = ((norms * last).square() + 2 * noisy.whole[-1].square()).sqrt()
    return norms * (carried + shifts + last / math.sqrt(2 * math.pi)), level * spread


def measure(convolutions: int, train: Examples, seed: int, steps: int) -> dict[str, Any]:
    split = split_examples(train, prior_fraction=0.05, seed=derived_seed(seed, "split"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "start", convolutions))
        start = network(convolutions)
    trained = train_conv(
        start,
        train.subset(split.prior),
        settings=ConvTraining(steps=steps, learning_rate=0.15, noise=0.01),
        seed=seed,
    )
    examples = train.subset(split.bound[:300])
    chain = read_network(trained, examples.inputs)
    inputs = read_inputs(chain, chain, examples)
    first = FIRST + FEWER * convolutions
    settings = [
        ConvSetting(first, (STEP,) * convolutions, ESCAPE, tail, factor)
        for tail, factor in (("exponential", 0), ("cap", 1))
    ]
    setting = settings[0]
    generator = torch.Generator().manual_seed(seed)
    kept: dict[str, Any] = {"convolutions": convolutions, "sigmas": list(setting.sigmas)}
    for sparse in (True, False):
        evaluator = evaluator_of(
            chain, chain, SparseSettings(variant="sparse" if sparse else "dense")
        )
        with torch.no_grad():
            noise = standard_noise(chain, len(inputs), generator)
            noisy = conv_pass(chain, inputs, setting.sigmas, noise)
            rows, rival = torch.arange(len(inputs)), inputs.rivals[:, 0]
            kept["E sparse" if sparse else "E dense"] = min(
                float(evaluator.thresholds(tail, inputs, noisy)[rows, rival].median())
                for tail in settings
            )
            if not sparse:
                continue
            norms = evaluator._anchor.norms[inputs.labels, rival]
            for other, theorem in (("F", theorem_f), ("D", theorem_d)):
                means, tail = theorem(
                    chain, noisy, evaluator.bounds, norms, setting.escape_probability
                )
                kept[f"{other} at best"] = float((means + tail).median())
                kept[f"{other}: means"], kept[f"{other}: spread"] = (
                    float(means.median()),
                    float(tail.median()),
                )
            own = noisy.scores[rows, inputs.labels] - noisy.scores[rows, rival]
            kept["margin"] = float(own.median())
            kept["errors"] = float((own <= 0).double().mean())
            kept["operator norms"] = list(evaluator.bounds.spectral[1:])
    print(kept, file=sys.stderr, flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    train = images(load("mnist").train, Images(1, 28, 1))
    # Enough for the split; loading them is what takes time.
    train = train.subset(np.arange(20_000))
    cases = [measure(k, train, arguments.seed, arguments.steps) for k in (1, 2, 3, 4)]
    write_result("sparsity-conv-theorems", {"cases": cases}, seed=arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
