"""How fast is the best point of an orbit found, and against what?

On a processor: the two-level solver against the published way, one neuron at a time, on
784-600-600-10 and on a network of the shape of ResNet-18; then networks of the shape of ResNet-50
in three sizes, to see how the time grows with the number of weights.

    python benchmarks/rescaling.py                 # one thread: results/rescaling-cpu.json
    python benchmarks/rescaling.py --device cuda   # one GPU: results/rescaling-cuda.json

One neuron at a time: for each neuron, in the order of the layers, gather its row and its column,
put their sums into the closed form, go on. There are two of it, which make the same moves. One
reads means and scales for every neuron, as published and as one would write it down; it is what
the whole call is compared with, since both start from the posterior. The other one finds all
squares computed beforehand, in its favor; it is what the descent alone is compared with.

The second runs until the gap is closed, and neither side pays for finding out when to stop. All
sweeps do the same work, so the time of either is that of its quickest sweep times their number; of
the first, only a few sweeps are run. Seconds on a processor are those in which this program, on one
thread, was at work: other programs slow neither side. On a GPU they are seconds on the clock.

The gap of a point is (its KL - least KL) / least KL; the least KL comes from a descent to
rounding error. Both sides start from the same posterior: Gaussian weights as initialized, or the
same with channels scaled unevenly, as batch normalization leaves them when it is folded.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import RESULTS, write_result
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.descending import Limits, best_descent
from nonvacuous.rescaling.reading import Reading
from nonvacuous.rescaling.solver import kl_along_orbit, rescale
from nonvacuous.rescaling.sweeps import Descent
from nonvacuous.rescaling.terms import Terms

GAP = 1e-9
UNEVENNESS = 0.5  # spread of the logarithms of the channels' scales
PINNED = -1


@dataclass(frozen=True)
class Run:
    start: int
    size: int


@dataclass
class Shape:
    """Scale groups of a network that exists only as a list of layers."""

    groups: list[Run] = field(default_factory=list)
    exponents: dict[str, tuple[AxisScale, ...]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    size: int = 0
    checked = ScaleGroups.checked

    def channels(self, count: int) -> np.ndarray:
        self.groups.append(Run(self.size, count))
        self.size += count
        return np.arange(self.size - count, self.size)

    def layer(self, inputs: np.ndarray, outputs: np.ndarray, kernel: tuple[int, ...] = ()) -> None:
        """A convolution (or linear layer) with a bias."""
        name = f"layer{len(self.shapes) // 2}"
        writes = AxisScale((0,), outputs, 1.0)
        self.shapes[f"{name}.weight"] = (len(outputs), len(inputs), *kernel)
        self.exponents[f"{name}.weight"] = (writes, AxisScale((1,), inputs, -1.0))
        self.shapes[f"{name}.bias"] = (len(outputs),)
        self.exponents[f"{name}.bias"] = (writes,)


def fixed(count: int) -> np.ndarray:
    return np.full(count, PINNED)


def mlp(*widths: int) -> Shape:
    shape = Shape()
    here = fixed(widths[0])
    for width in widths[1:-1]:
        there = shape.channels(width)
        shape.layer(here, there)
        here = there
    shape.layer(here, fixed(widths[-1]))
    return shape


def resnet(blocks: tuple[int, ...], *, width: int, bottleneck: bool, classes: int = 1000) -> Shape:
    """A residual network whose batch normalization has been folded into the convolutions."""
    shape = Shape()
    stream = shape.channels(width)
    shape.layer(fixed(3), stream, (7, 7))
    for stage, count in enumerate(blocks):
        inside = width * 2**stage
        outside = 4 * inside if bottleneck else inside
        for block in range(count):
            after = stream
            if block == 0 and (stage > 0 or bottleneck):
                after = shape.channels(outside)
                shape.layer(stream, after, (1, 1))
            first = shape.channels(inside)
            if bottleneck:
                second = shape.channels(inside)
                shape.layer(stream, first, (1, 1))
                shape.layer(first, second, (3, 3))
                shape.layer(second, after, (1, 1))
            else:
                shape.layer(stream, first, (3, 3))
                shape.layer(first, after, (3, 3))
            stream = after
    shape.layer(stream, fixed(classes))
    return shape


def resnet18() -> Shape:
    return resnet((2, 2, 2, 2), width=64, bottleneck=False)


def resnet50(width: int = 64) -> Shape:
    return resnet((3, 4, 6, 3), width=width, bottleneck=True)


def problem(
    shape: Shape, *, seed: int, device: str, unevenness: float = UNEVENNESS
) -> tuple[DiagonalGaussian, DiagonalGaussian]:
    """The published setting: isotropic posterior of scale 0.03, zero-mean prior of scale 1."""
    generator = torch.Generator().manual_seed(seed)
    uneven = unevenness * torch.randn(shape.size, generator=generator)
    logs = torch.cat([uneven, torch.zeros(1)])
    means: dict[str, Tensor] = {}
    for name, size in shape.shapes.items():
        spread = math.sqrt(2 / math.prod(size[1:])) if len(size) > 1 else 0.1
        weight = spread * torch.randn(size, generator=generator)
        for scale in shape.exponents[name]:
            where = [1] * len(size)
            where[scale.axes[0]] = -1
            factor = torch.exp(scale.power * logs[torch.from_numpy(scale.index.copy())])
            weight = weight * factor.view(where)
        means[name] = weight.to(device)
    zeros = {name: torch.zeros_like(mean) for name, mean in means.items()}
    return DiagonalGaussian.from_means(means, 0.03), DiagonalGaussian.from_means(zeros, 1.0)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def best_seconds(function: Callable[[], Any], *, repeats: int, device: str) -> float:
    """The least time of at least ``repeats`` calls, and of more where they are short.

    The least and not the mean: what the machine can do while nobody else uses it.
    """
    clock = time.perf_counter if device == "cuda" else time.process_time
    best, total, done = math.inf, 0.0, 0
    while done < repeats or (total < 1.0 and done < 20 * repeats):
        synchronize(device)
        start = clock()
        function()
        synchronize(device)
        seconds = clock() - start
        best, total, done = min(best, seconds), total + seconds, done + 1
    return best


def launches(function: Callable[[], Any]) -> int:
    """How many kernels a call starts on the GPU."""
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as seen:
        function()
        torch.cuda.synchronize()
    return sum(row.count for row in seen.key_averages() if row.key.startswith("cudaLaunchKernel"))


# -- one neuron at a time -------------------------------------------------------------------------


class OneNeuronAtATime:
    """Block coordinate descent as published: row and column of each neuron, closed form, next."""

    def __init__(
        self, Q: DiagonalGaussian, P: DiagonalGaussian, shape: Shape, *, beforehand: bool
    ) -> None:
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: dict[str, np.ndarray] = {}
        self._written: list[list[tuple[str, int]]] = [[] for _ in range(shape.size)]
        self._read: list[list[tuple[str, int]]] = [[] for _ in range(shape.size)]
        for name, scales in shape.exponents.items():
            for scale in scales:
                target = self._written if scale.power > 0 else self._read
                (self._outputs if scale.power > 0 else self._inputs)[name] = scale.index
                for place, channel in enumerate(scale.index):
                    if channel != PINNED:
                        target[channel].append((name, place))
        self._means, self._scales, self._prior_scales = (
            {name: tensor.numpy() for name, tensor in source.items()}
            for source in (Q.means, Q.scales, P.scales)
        )
        self._squares = {name: self._square(name, ...) for name in Q.names} if beforehand else None
        self.squared_scales = np.ones(shape.size + 1)  # the last entry is that of pinned channels

    def _square(self, name: str, where: Any) -> np.ndarray:
        mean, scale, prior = (
            source[name][where].astype(np.float64)
            for source in (self._means, self._scales, self._prior_scales)
        )
        return (mean**2 + scale**2) / prior**2

    def _gather(self, name: str, where: Any) -> np.ndarray:
        if self._squares is not None:
            return self._squares[name][where]
        return self._square(name, where)

    def sweep(self) -> None:
        for neuron in range(len(self._written)):
            self._update(neuron)

    def _update(self, neuron: int) -> None:
        incoming = outgoing = 0.0
        count = 0
        for name, place in self._written[neuron]:
            row = self._gather(name, place)
            count += row.size
            if row.ndim == 0:
                incoming += float(row)
            else:
                factors = 1 / self.squared_scales[self._inputs[name]]
                incoming += float((factors @ row.reshape(len(factors), -1)).sum())
        for name, place in self._read[neuron]:
            column = self._gather(name, (slice(None), place))
            count -= column.size
            factors = self.squared_scales[self._outputs[name]]
            outgoing += float((factors @ column.reshape(len(factors), -1)).sum())
        width = math.hypot(count, 2 * math.sqrt(incoming) * math.sqrt(outgoing))
        root = (count + width) / (2 * incoming) if count >= 0 else 2 * outgoing / (width - count)
        self.squared_scales[neuron] = root


def run_neurons(
    loop: OneNeuronAtATime, terms: Terms, least: float, *, limit: int = 5000
) -> tuple[int, float, float]:
    """Sweeps until the gap is closed; seconds of the quickest one and of all of them."""
    quickest, total = math.inf, 0.0
    for sweep in range(1, limit + 1):
        start = time.process_time()
        loop.sweep()
        seconds = time.process_time() - start
        quickest, total = min(quickest, seconds), total + seconds
        here = Descent(terms, torch.from_numpy(np.log(loop.squared_scales[:-1]) / 2))
        if here.nats(here.totals()) <= least * (1 + GAP):
            return sweep, quickest, total
    raise SystemExit(f"one neuron at a time has not closed the gap after {limit} sweeps")


def against_one_neuron_at_a_time(
    shape: Shape, *, seed: int, repeats: int, unevenness: float
) -> dict[str, Any]:
    """Seconds of both ways to the same gap."""
    Q, P = problem(shape, seed=seed, device="cpu", unevenness=unevenness)
    terms = collapse(Reading.of(Q, P), shape)
    least = best_descent(terms, Limits(1e-15, 1000)).nats
    limits = Limits(GAP, 1000)
    found = best_descent(terms, limits)
    options: dict[str, Any] = {"repeats": repeats, "device": "cpu"}
    solving = best_seconds(lambda: best_descent(terms, limits), **options)
    enough = next(
        sweeps
        for sweeps in range(1, found.sweeps + 1)
        if best_descent(terms, Limits(1e-15, sweeps)).nats <= least * (1 + GAP)
    )
    closing = best_seconds(lambda: best_descent(terms, Limits(1e-15, enough)), **options)
    collapsing = best_seconds(lambda: collapse(Reading.of(Q, P), shape), **options)
    whole = best_seconds(lambda: rescale(Q, P, shape, tolerance=GAP), **options)
    favored = OneNeuronAtATime(Q, P, shape, beforehand=True)
    sweeps, quickest, total = run_neurons(favored, terms, least)
    seconds = sweeps * quickest
    published = OneNeuronAtATime(Q, P, shape, beforehand=False)
    published_seconds = sweeps * best_seconds(published.sweep, **options)
    return {
        "weights": Q.weights,
        "channels": shape.size,
        "groups": len(shape.groups),
        "gap": (found.nats - least) / least,
        "sweeps": found.sweeps,
        "sweeps_to_the_gap": enough,
        "seconds_to_the_gap": closing,
        "seconds_solving": solving,
        "seconds_collapsing": collapsing,
        "seconds_whole_call": whole,
        "neuron_sweeps": sweeps,
        "neuron_seconds_squares_beforehand": seconds,
        "neuron_seconds_squares_beforehand_all_sweeps": total,
        "neuron_seconds_means_and_scales_extrapolated": published_seconds,
        "times_faster_to_the_gap": seconds / closing,
        "times_faster_from_means_and_scales": published_seconds / (collapsing + solving),
        "times_faster_whole_call": published_seconds / whole,
        "times_faster_whole_call_against_squares_beforehand": seconds / whole,
    }


def whole_call(shape: Shape, *, seed: int, repeats: int, device: str) -> dict[str, Any]:
    """Seconds of one call, all included, and of its parts."""
    Q, P = problem(shape, seed=seed, device=device)
    terms = collapse(Reading.of(Q, P), shape)
    least = best_descent(terms, Limits(1e-15, 1000)).nats
    limits = Limits(GAP, 1000)
    found = rescale(Q, P, shape, tolerance=GAP)
    options: dict[str, Any] = {"repeats": repeats, "device": device}

    def call() -> None:
        rescale(Q, P, shape, tolerance=GAP)

    def both_ends() -> None:
        for point in (np.zeros(shape.size), found.log_scales):
            kl_along_orbit(Q, P, shape, point)

    def full_tensors() -> None:
        kl_along_orbit(Q, P, shape, found.log_scales)

    figures = {
        "weights": Q.weights,
        "channels": shape.size,
        "groups": len(shape.groups),
        "kl_before": found.kl_before,
        "kl_after": found.kl_after,
        "gap": (found.kl_after - least) / least,
        "balance_residual": found.balance_residual,
        "sweeps": found.sweeps,
        "seconds": best_seconds(call, **options),
        "seconds_collapsing": best_seconds(lambda: collapse(Reading.of(Q, P), shape), **options),
        "seconds_solving": best_seconds(lambda: best_descent(terms, limits), **options),
        "seconds_kl_before_and_after": best_seconds(both_ends, **options),
        "seconds_kl_from_the_full_tensors": best_seconds(full_tensors, **options),
    }
    return figures | ({"launches": launches(call)} if device == "cuda" else {})


def on_processor(*, seed: int, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "gap_goal": GAP,
        "baseline": "one neuron at a time, quickest sweep times the number of sweeps",
        "clock": "processor seconds of one thread",
    }
    comparisons = [("784-600-600-10", mlp(784, 600, 600, 10)), ("resnet18 shape", resnet18())]
    sizes = (32, 45, 64)
    if quick:
        small = resnet((1, 1), width=8, bottleneck=False, classes=10)
        comparisons, sizes = [("20-30-30-10", mlp(20, 30, 30, 10)), ("resnet shape", small)], (4, 8)
    repeats = 2 if quick else 7
    for shape_name, shape in comparisons:
        for case, unevenness in (("as initialized", 0.0), ("channels uneven", UNEVENNESS)):
            name = f"{shape_name}, {case}"
            figures[name] = against_one_neuron_at_a_time(
                shape, seed=seed, repeats=repeats, unevenness=unevenness
            )
            print(name, figures[name])
    for width in sizes:
        name = f"resnet50 shape, width {width}"
        figures[name] = whole_call(resnet50(width), seed=seed, repeats=repeats, device="cpu")
        print(name, figures[name])
    largest, smallest = (figures[f"resnet50 shape, width {w}"] for w in (sizes[-1], sizes[0]))
    weights = math.log(largest["weights"] / smallest["weights"])
    figures["seconds_grow_as_weights_to_the_power"] = (
        math.log(largest["seconds"] / smallest["seconds"]) / weights
    )
    return figures


def on_gpu(*, seed: int, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {"gap_goal": GAP}
    shapes = {"resnet18 shape": resnet18, "resnet50 shape, width 64": resnet50}
    if quick:
        shapes = {"resnet50 shape, width 4": lambda: resnet50(4)}
    for name, build in shapes.items():
        figures[name] = whole_call(build(), seed=seed, repeats=3 if quick else 10, device="cuda")
        print(name, figures[name])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="processor threads for torch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: checks that it runs")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    measure = on_gpu if arguments.device == "cuda" else on_processor
    figures = measure(seed=arguments.seed, quick=arguments.quick)
    name = f"rescaling-{arguments.device}"
    path = write_result(name, figures, seed=arguments.seed, folder=arguments.folder)
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
