"""How much faster are networks trained together than one at a time?

Baseline: the same networks, data, batches and precision in the same run, trained one at a time by
ordinary eager PyTorch (channels-last convolutions, tuned kernels and torch's fused optimizer, all
in its favor). Times are of an epoch per network, from the quickest of the epochs timed, without
start-up; measuring the networks is timed apart.

    python benchmarks/many.py                         # two cores: results/many-cpu.json
    python benchmarks/many.py --device cuda           # one GPU: results/many-cuda.json
    python benchmarks/many.py --device cuda --quick   # fewer steps

Data: random images of 3 x 28 x 28 pixels, 10 classes, batches of 128, as for CIFAR-10.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, write_result

from nonvacuous import models
from nonvacuous.errors import NonvacuousError
from nonvacuous.training.graphs import fast_arithmetic
from nonvacuous.training.many_jobs import Job, ManyExamples, ManySettings
from nonvacuous.training.many_material import Material
from nonvacuous.training.many_trainer import build_trainer

BATCH = 128
SHAPE = (3, 28, 28)
CLASSES = 10
EXAMPLES_OF_CIFAR = 50_000
MEASURED_OF_CIFAR = 60_000

Plan = list[tuple[str, str, str, tuple[int, ...]]]
"""Network, precision, method, numbers of networks at once."""


def plan(device: str) -> Plan:
    if device != "cuda":
        return [
            (network, "float32", "matrices", (1, 2, 4, 8))
            for network in ("mlp:512", "mlp:512,512,512")
        ]
    cases: Plan = []
    for network in ("mlp:512", "mlp:512,512,512"):
        for precision in ("float32", "bfloat16"):
            cases += [
                (network, precision, "matrices", (1, 2, 4, 8, 16)),
                (network, precision, "streams", (4, 8)),
            ]
    for network in ("alexnet", "inception"):
        for precision in ("float32", "bfloat16"):
            cases.append((network, precision, "streams", (1, 2, 4, 8)))
    return cases


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Bench:
    """Random data, and networks trained on it."""

    def __init__(self, device: torch.device, *, steps: int, repeats: int, seed: int) -> None:
        self.device, self.steps, self.repeats, self.seed = device, steps, repeats, seed
        generator = torch.Generator().manual_seed(seed)
        count = steps * BATCH
        self.inputs = torch.randn(count, *SHAPE, generator=generator)
        self.labels = torch.randint(0, CLASSES, (1, count), generator=generator)
        self.tests = max(1, count // 5)

    def run(self, network: str, precision: str, method: str, number: int) -> dict[str, Any]:
        """Seconds per epoch and network, scaled to the size of CIFAR-10."""
        jobs = [Job(seed=self.seed + place) for place in range(number)]
        material = Material(
            ManyExamples(
                [self.inputs],
                self.labels,
                test=[(self.inputs[: self.tests], self.labels[0, : self.tests])],
            ),
            jobs,
            ManySettings(epochs=1, batch_size=BATCH, precision=precision),
            device=self.device,
        )
        modules = [models.build(network, SHAPE, CLASSES, seed=job.seed) for job in jobs]
        with fast_arithmetic(self.device):
            begun = time.perf_counter()
            trainer = build_trainer(method, modules, jobs, material)

            def epoch() -> None:
                trainer.epoch(0, lambda: None)

            epoch()
            trainer.measure()
            synchronize(self.device)
            first = time.perf_counter() - begun
            seconds = min(self._seconds(epoch) for _ in range(self.repeats))
            measuring = self._seconds(trainer.measure)
        return {
            "network": network,
            "precision": precision,
            "method": method,
            "networks": number,
            "epoch_seconds": seconds / self.steps / number * math.ceil(EXAMPLES_OF_CIFAR / BATCH),
            "measure_seconds": measuring
            / (len(self.inputs) + self.tests)
            / number
            * MEASURED_OF_CIFAR,
            "start_seconds": first - seconds - measuring,
        }

    def _seconds(self, work: Any) -> float:
        synchronize(self.device)
        begun = time.perf_counter()
        work()
        synchronize(self.device)
        return time.perf_counter() - begun


def measure(bench: Bench, cases: Plan) -> Iterator[list[dict[str, Any]]]:
    """All that was found so far, after each line of the plan."""
    found: list[dict[str, Any]] = []
    baselines: dict[tuple[str, str], float] = {}
    for network, precision, method, numbers in cases:
        if (network, precision) not in baselines:
            alone = bench.run(network, precision, "one at a time", 1)
            baselines[network, precision] = alone["epoch_seconds"]
            _tell(found, {**alone, "times_faster": 1.0}, bench.device)
        for number in numbers:
            try:
                case = bench.run(network, precision, method, number)
            except NonvacuousError as error:
                print(f"{network} {precision} {method}: {error}", flush=True)
                continue
            faster = baselines[network, precision] / case["epoch_seconds"]
            _tell(found, {**case, "times_faster": faster}, bench.device)
            if bench.device.type == "cuda":
                torch.cuda.empty_cache()
        yield found


def _tell(found: list[dict[str, Any]], case: dict[str, Any], device: torch.device) -> None:
    # Absolute times belong to a named machine that does nothing else: a GPU, here.
    shown = f"epoch {case['epoch_seconds']:.3f} s, measuring {case['measure_seconds']:.3f} s, "
    if device.type != "cuda":
        case = {k: v for k, v in case.items() if not k.endswith("_seconds")}
    found.append(case)
    print(
        f"{case['network']:16} {case['precision']:9} {case['method']:14} x {case['networks']:2}: "
        f"{shown}{case['times_faster']:.1f} times faster",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer steps, one epoch timed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    steps = (60 if options.quick else 391) if device.type == "cuda" else 20
    bench = Bench(device, steps=steps, repeats=1 if options.quick else 2, seed=options.seed)
    for cases in measure(bench, plan(options.device)):
        # Written as it grows: a run that is stopped leaves what it found.
        result = {"batch_size": BATCH, "timed_steps": steps, "cases": cases}
        path = write_result(f"many-{device.type}", result, seed=options.seed, folder=options.out)
    print(path)


if __name__ == "__main__":
    main()
