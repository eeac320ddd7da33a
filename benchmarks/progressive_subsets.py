"""Progressive certificates and gates on hundreds of random subsets of real data sets.

    python benchmarks/progressive_subsets.py --device cuda --case mnist-3000 fashion-3000
    python benchmarks/progressive_bounds.py

Draws subsets, trains one network after every fortieth of each, all side by side, and counts its
errors on the next fortieth and on all that come after; the second command makes bounds of these.
Networks: one hidden layer of 128 on images, none on the features of a pretrained network
(--features, a folder of pretrained_features.py); all take the same number of steps.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from provenance import write_result
from torch import Tensor
from torch.nn.functional import cross_entropy

from nonvacuous.certification.measurement import count_errors
from nonvacuous.data import Examples, load
from nonvacuous.models import build
from nonvacuous.training.erm import train
from nonvacuous.training_settings import PlainTraining

_BATCH, _MODELS = 50, 700


class Case(NamedTuple):
    data: str
    examples: int
    #: A number of hidden units; 0 on features; or a network of nv.models, trained one by one.
    network: int | str
    steps: int
    rate: float
    parts: int = 40
    #: Parts before the first checkpoint.
    first: int = 12


CASES = {
    "digits-1437": Case("digits", 1437, 128, 600, 0.1),
    "mnist-1000": Case("mnist", 1000, 128, 400, 0.1),
    "mnist-3000": Case("mnist", 3000, 128, 800, 0.1),
    "mnist-10000": Case("mnist", 10_000, 128, 2000, 0.1),
    "fashion-1000": Case("fashion-mnist", 1000, 128, 400, 0.1),
    "fashion-3000": Case("fashion-mnist", 3000, 128, 800, 0.1),
    "fashion-10000": Case("fashion-mnist", 10_000, 128, 2000, 0.1),
    "cifar-1000": Case("cifar10", 1000, 0, 400, 0.5),
    "cifar-3000": Case("cifar10", 3000, 0, 800, 0.5),
    "cifar-10000": Case("cifar10", 10_000, 0, 2000, 0.5),
    "cifar-50000": Case("cifar10", 50_000, 0, 5000, 0.5),
    "cifar-images-10000": Case("cifar10", 10_000, "resnet9:32/mirror", 600, 0.2, 20, 8),
}


class Networks:
    """Many small networks of one shape, each with weights of its own."""

    def __init__(self, count: int, sizes: list[int], generator: torch.Generator) -> None:
        device = generator.device
        self.weights = [
            (torch.randn(count, a, b, generator=generator, device=device) / math.sqrt(a))
            for a, b in pairwise(sizes)
        ]
        self.weights = [weight.requires_grad_() for weight in self.weights]
        self.biases = [
            torch.zeros(count, 1, b, device=device, requires_grad=True) for b in sizes[1:]
        ]

    def __call__(self, inputs: Tensor) -> Tensor:
        """From (networks, examples, inputs) to (networks, examples, classes)."""
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = torch.baddbmm(bias, inputs.relu() if number else inputs, weight)
        return inputs


def trained(
    case: Case, inputs: Tensor, labels: Tensor, rows: Tensor, sizes: Tensor, seed: int
) -> Networks:
    """Network i learns from the first sizes[i] of rows[i]."""
    generator = torch.Generator(inputs.device).manual_seed(seed)
    hidden = [case.network] if case.network else []
    shape = [inputs.shape[1], *hidden, int(labels.max()) + 1]
    networks = Networks(len(rows), shape, generator)
    optimizer = torch.optim.SGD(
        [*networks.weights, *networks.biases], lr=case.rate, momentum=0.9, fused=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, case.steps)
    for _ in range(case.steps):
        drawn = torch.rand(len(rows), _BATCH, generator=generator, device=inputs.device)
        chosen = rows.gather(1, (drawn * sizes[:, None]).long())
        outputs = networks(inputs[chosen])
        loss = cross_entropy(outputs.flatten(0, 1), labels[chosen].flatten(), reduction="sum")
        (loss / _BATCH).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return networks


def errors_side_by_side(
    case: Case, inputs: Tensor, labels: Tensor, orders: Tensor, ends: np.ndarray, seed: int
) -> np.ndarray:
    """(subsets, checkpoints, parts after the first) errors, all networks trained at once."""
    numbers = range(case.first, case.parts)
    rows = orders.repeat_interleave(len(numbers), dim=0)
    sizes = torch.tensor(ends[case.first : -1].tolist(), device=rows.device).repeat(len(orders))
    networks = trained(case, inputs, labels, rows, sizes, seed)
    wrong = torch.zeros(len(rows), len(numbers), dtype=torch.long, device=rows.device)
    with torch.no_grad():
        for column, part in enumerate(numbers):
            tested = rows[:, ends[part] : ends[part + 1]]
            for some in torch.arange(len(tested[0]), device=rows.device).split(_BATCH):
                answers = networks(inputs[tested[:, some]]).argmax(dim=2)
                wrong[:, column] += (answers != labels[tested[:, some]]).sum(dim=1)
    return wrong.view(len(orders), len(numbers), len(numbers)).cpu().numpy()


def errors_one_by_one(
    case: Case, whole: Examples, order: np.ndarray, ends: np.ndarray, device: str, seed: int
) -> np.ndarray:
    """The same for one subset and a network of nv.models."""
    assert isinstance(case.network, str)
    numbers = range(case.first, case.parts)
    model = build(case.network, whole.example_shape, whole.classes, seed=seed)
    wrong = np.zeros((1, len(numbers), len(numbers)), dtype=np.int64)
    for row, number in enumerate(numbers):
        training = PlainTraining(
            epochs=max(1, round(case.steps * 256 / ends[number])),
            batch_size=256,
            learning_rate=case.rate,
            schedule="one-cycle",
            weight_decay=5e-4,
            augmentation=("flip", "crop"),
            label_smoothing=0.1,
            half_precision=True,
        )
        part = whole.subset(order[: ends[number]])
        network = train(model, part, training, seed=seed, device=device).module
        for column in range(row, len(numbers)):
            begin = ends[case.first + column]
            tested = whole.subset(order[begin : ends[case.first + column + 1]])
            wrong[0, row, column] = count_errors(network, tested)
    return wrong


def count(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    """Errors of each checkpoint of each subset on the next part, and on all that come after."""
    ends = np.linspace(0, case.examples, case.parts + 1).round().astype(int)
    whole = load(case.data, data_dir=arguments.data_dir).train
    alone = isinstance(case.network, str)
    inputs, labels = (None, None) if alone else material(case, whole, arguments)
    at_once = 1 if alone else max(1, _MODELS // (case.parts - case.first))
    last, tables = arguments.first + arguments.subsets, []
    for begin in range(arguments.first, last, at_once):
        seeds = range(begin, min(begin + at_once, last))
        size = len(whole) if inputs is None else len(inputs)
        orders = np.stack([np.random.default_rng(s).permutation(size) for s in seeds])
        orders = orders[:, : case.examples]
        if inputs is None or labels is None:
            tables.append(errors_one_by_one(case, whole, orders[0], ends, arguments.device, begin))
        else:
            rows = torch.from_numpy(orders).to(inputs.device)
            tables.append(errors_side_by_side(case, inputs, labels, rows, ends, begin))
    table = np.concatenate(tables)
    return {
        **case._asdict(),
        "subsets": arguments.subsets,
        "next": _lines(np.diagonal(table, axis1=1, axis2=2)),
        "rest": _lines(np.triu(table).sum(axis=2)),
    }


def _lines(table: np.ndarray) -> list[str]:
    """One string for each subset: a number on a line of its own makes long files."""
    return [" ".join(map(str, row)) for row in table.tolist()]


def material(case: Case, whole: Examples, arguments: argparse.Namespace) -> tuple[Tensor, Tensor]:
    inputs = whole.inputs.flatten(1).float()
    if not case.network:
        features = torch.from_numpy(np.load(arguments.features / "train.npy")).float()
        roots = features.clamp_min(0).sqrt()
        inputs = 10.0 * roots / roots.norm(dim=1, keepdim=True)
    labels = whole.labels.long()[: len(inputs)]
    return inputs.to(arguments.device), labels.to(arguments.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--features", type=Path, default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--subsets", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first subset")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for name in arguments.case:
        started = time.perf_counter()
        end = f"-{arguments.first}" if arguments.first else ""
        counts = count(CASES[name], arguments)
        path = write_result(f"progressive-counts-{name}{end}", counts, seed=arguments.first)
        print(path.name, f"{time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
