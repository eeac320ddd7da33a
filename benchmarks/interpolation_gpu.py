"""Exact interpolation on one GPU: MNIST and CIFAR-10 whole, four kinds of features.

NONVACUOUS_DATA=folder python benchmarks/interpolation_gpu.py --cifar-arrays folder

CIFAR-10 is read from train-inputs.npy (uint8, images x 3 x 32 x 32), train-labels.npy,
test-inputs.npy and test-labels.npy. Where a bandwidth is chosen, it is chosen on a part of the
training data; test data are counted once. Every part is kept as soon as it is done, and a part that
fails does not keep the others from running.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import RESULTS, write_result

from nonvacuous.data import Dataset, Examples, load
from nonvacuous.interpolation import gaussian, interpolate, interpolate_distances, one_hot
from nonvacuous.interpolation.features import features_of
from nonvacuous.interpolation.kernels import median_squared_distance
from nonvacuous.seeds import derived_seed
from nonvacuous.studies.interpolation import (
    Task,
    _many_patches,
    distinct_examples,
    run_study,
)

SEED = 0
PUBLISHED = {"mnist raw": 1.2, "mnist gabor": 0.6, "cifar10 raw": 46.0, "cifar10 patches": 17.0}
#: Where a grid of bandwidths goes on, by this factor, and how many are tried at most.
_STEP, _MOST = 1.5, 10
#: Held out from the training data where a bandwidth is chosen.
HELD_OUT = 10_000


def cifar(folder: Path, limit: int | None) -> Dataset:
    parts = []
    for part in ("train", "test"):
        pixels = np.load(folder / f"{part}-inputs.npy")[:limit]
        labels = np.load(folder / f"{part}-labels.npy")[:limit]
        inputs = torch.from_numpy(pixels).reshape(-1, 3, 32, 32).float().div_(255)
        names = tuple(str(number) for number in range(10))
        parts.append(
            Examples(inputs, torch.from_numpy(labels.astype(np.int64)), names, f"cifar10 {part}")
        )
    return Dataset(*parts)


def chosen(
    factors: tuple[float, ...],
    median: float,
    labels: np.ndarray,
    solve: Callable[[float], np.ndarray],
) -> tuple[float, dict[str, float]]:
    """The factor over the median distance with the fewest errors on training data held out.

    Where the best one lies at an end of the grid, the grid goes on in that direction.
    """
    errors: dict[float, float] = {}
    waiting = list(factors)
    while waiting:
        for factor in waiting:
            predicted = solve(factor / median).argmax(1)
            errors[factor] = float(100 * (predicted != labels).mean())
        best = min(errors, key=lambda factor: errors[factor])
        beyond = {min(errors): best / _STEP, max(errors): best * _STEP}
        waiting = [beyond[best]] if best in beyond and len(errors) < _MOST else []
    return best, {f"{factor:g}": errors[factor] for factor in sorted(errors)}


def by_points(points: torch.Tensor, labels: np.ndarray, device: str) -> Any:
    """Train on all but the last points, predict those."""
    cut = len(points) - min(HELD_OUT, len(points) // 5)
    values = one_hot(labels[:cut], 10)
    median = median_squared_distance(points)

    def solve(gamma: float) -> np.ndarray:
        function = interpolate(points[:cut], values, kernel=gaussian(gamma), device=device)
        return function.predict(points[cut:])

    return median, labels[cut:], solve


def studied(dataset: Dataset, task: Task, device: str) -> dict[str, Any]:
    clear(device)
    start = time.perf_counter()
    study, _ = run_study(dataset, task, device=device)
    record = study.to_dict()
    record["wall_seconds"] = time.perf_counter() - start
    if device == "cuda":
        record["gpu_peak_bytes"] = torch.cuda.max_memory_allocated()
    return record


def clear(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


ALL = ("true", "partial:0.5", "random")
#: Around 0.01, which the theory notes name for pixels between 0 and 1.
WIDTHS = ("0.005", "0.006", "0.008", "0.01", "0.0125")


def mnist_raw(data: Dataset, device: str) -> dict[str, Any]:
    return studied(data, Task(gamma="0.02", labels=ALL, seed=SEED), device)


def mnist_gabor(data: Dataset, device: str) -> dict[str, Any]:
    features = features_of("gabor", data.train.inputs, device=device)
    median, held, solve = by_points(features.train, data.train.labels.numpy(), device)
    factor, errors = chosen((1.0, 2.0), median, held, solve)
    record = studied(
        data, Task(features="gabor", gamma=f"median:{factor}", labels=ALL, seed=SEED), device
    )
    return record | {"factor": factor, "held_out_errors": errors}


def cifar_raw(data: Dataset, device: str) -> dict[str, Any]:
    flat = data.train.inputs.reshape(len(data.train), -1)
    median, held, solve = by_points(flat, data.train.labels.numpy(), device)
    factor, errors = chosen((2.0, 3.4, 5.0), median, held, solve)
    record = studied(data, Task(gamma=f"median:{factor}", labels=ALL, seed=SEED), device)
    return record | {"factor": factor, "held_out_errors": errors}


def cifar_widths(data: Dataset, device: str) -> dict[str, Any]:
    """The paper does not tell its width: what test errors do as it changes, on true labels."""
    found = [
        studied(data, Task(gamma=gamma, labels=("true",), seed=SEED), device) for gamma in WIDTHS
    ]
    return {
        "examples": len(data.train),
        "widths": [
            {
                "gamma": record["parameters"]["gamma"],
                "norm": record["labelings"][0]["norm"],
                "test_errors": record["labelings"][0]["test_errors"],
                "test_examples": record["test_examples"],
                "residual": record["residual"],
                "wall_seconds": record["wall_seconds"],
            }
            for record in found
        ],
    }


def cifar_patches(data: Dataset, device: str, filters: int) -> dict[str, Any]:
    """As a study does it, with the distances made once for the choice and for the result."""
    clear(device)
    start = time.perf_counter()
    made = _many_patches(data, filters, derived_seed(SEED, "features"), torch.device(device), None)
    assert made.across is not None and data.test is not None
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    labels = data.train.labels.numpy()
    cut = len(labels) - min(HELD_OUT, len(labels) // 5)

    def solve(gamma: float) -> np.ndarray:
        inner = made.among[:cut, :cut].contiguous()
        function = interpolate_distances(inner, one_hot(labels[:cut], 10), kernel=gaussian(gamma))
        return function.predict(made.among[cut:, :cut])

    factor, errors = chosen((0.5, 1.0, 2.0), made.median, labels[cut:], solve)
    drawn = np.random.default_rng(derived_seed(SEED, "random labels")).integers(0, 10, len(labels))
    values = {"true": one_hot(labels, 10), "random": one_hot(drawn, 10)}
    kernel = gaussian(factor / made.median)
    function = interpolate_distances(made.among, values, kernel=kernel)
    wrong = function.errors(made.across, data.test.labels.numpy())
    return {
        "examples": len(labels),
        "test_examples": len(data.test),
        "filters": filters,
        "coordinates": made.features,
        "factor": factor,
        "held_out_errors": errors,
        "parameters": dict(kernel.parameters),
        "residual": function.residual,
        "smallest_pivot": None if function.pivots is None else function.pivots.smallest,
        "feature_seconds": seconds,
        "wall_seconds": time.perf_counter() - start,
        "labelings": [
            {"labels": name, "norm": function.norms[name], "test_errors": wrong[name]}
            for name in values
        ],
        "warnings": list(function.warnings),
        "gpu_peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar-arrays", type=Path, default=None)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--filters", type=int, default=32_000)
    parser.add_argument("--examples", type=int, default=None, help="fewer, for a trial")
    parser.add_argument("--only", nargs="*", default=None, help="some of the parts")
    parser.add_argument("--seconds", type=float, default=190, help="begin no part after these")
    parser.add_argument("--name", default="interpolation-gpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the result file")
    arguments = parser.parse_args()
    device, begun = arguments.device, time.perf_counter()

    @cache
    def mnist() -> Dataset:
        whole = load("mnist")
        if arguments.examples is None:
            return whole
        return Dataset(whole.train.subset(np.arange(arguments.examples)), whole.test)

    @cache
    def colored() -> tuple[Dataset, int]:
        return distinct_examples(cifar(arguments.cifar_arrays, arguments.examples))

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "mnist raw": lambda: mnist_raw(mnist(), device)
    }
    if arguments.cifar_arrays is not None:
        parts["cifar10 raw"] = lambda: cifar_raw(colored()[0], device) | {"dropped": colored()[1]}
        parts["cifar10 widths"] = lambda: cifar_widths(colored()[0], device)
    parts["mnist gabor"] = lambda: mnist_gabor(mnist(), device)
    if arguments.cifar_arrays is not None:
        parts["cifar10 patches"] = lambda: cifar_patches(colored()[0], device, arguments.filters)
    # Libraries start up on their first call; that is not what is measured.
    small = torch.randn(3000, 50, generator=torch.Generator().manual_seed(SEED))
    interpolate(small, one_hot(np.arange(3000) % 10), kernel=gaussian(0.1), device=device)
    record: dict[str, Any] = {"device": device, "published_percent": PUBLISHED, "parts": {}}
    for name, work in parts.items():
        if arguments.only and name not in arguments.only:
            continue
        if time.perf_counter() - begun > arguments.seconds:
            record["parts"][name] = {"left_out": "no time left"}
            continue
        try:
            found = work()
        except Exception:
            found = {"failed": traceback.format_exc()}
        record["parts"][name] = found
        record["all_seconds"] = time.perf_counter() - begun
        write_result(arguments.name, record, seed=SEED, folder=arguments.out)
        print(name, json.dumps(found, indent=1), flush=True)
    write_result(arguments.name, record, seed=SEED, folder=arguments.out)


if __name__ == "__main__":
    main()
