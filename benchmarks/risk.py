"""How fast is the risk of a random predictor measured, and against what?

On a processor: seconds of independent pairs against the scheme of the published reference code
(every weight draw passed over the whole bound set, slack by the inverse kl), at equal slack. The
reference would take days to years, so one pass is measured and multiplied by the passes needed.

    python benchmarks/risk.py                 # two cores: results/risk-cpu.json
    python benchmarks/risk.py --device cuda   # one GPU: results/risk-cuda.json
    python benchmarks/risk.py --convolutions  # results/risk-convolutions.json
    python benchmarks/risk.py --convolutions --device cuda  # results/risk-convolutions-cuda.json

With --convolutions: time of a pair against one draw of all weights and one call of the network for
each pair, and against many such pairs drawn and computed at once; on a processor its own time, and
the floor: the normal numbers and the operations of a pair, counted, at the rates of torch's own
generator and of a large matrix product.
PYTHONPATH=other/src measures another version of the library the same way.

On a GPU: pairs a minute, and which part of the time is unavoidable for this arithmetic, from
operations and bytes counted against a measured matrix product and a measured copy.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import time
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, write_result
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.copying import last_layer, with_fixed
from nonvacuous.models import build
from nonvacuous.risk.pairs import estimate_risk

WIDTHS = (784, 600, 600, 600, 10)
SAMPLING_FAILURE = 0.01
#: Which weights of a convolutional network are random, and with which scales.
KINDS = (
    "one scale for each tensor",
    "one, then rescaled",
    "one for each weight",
    "the last layer alone",
)


def mlp() -> nn.Module:
    """784-600-600-600-10 with ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def cnn() -> nn.Module:
    """Convolutions of 16 and 32 channels, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    ).eval()  # fmt: skip


def problem(
    network: nn.Module, examples: int, seed: int, device: str, *, equal_scales: bool
) -> tuple[nn.Module, DiagonalGaussian, tuple[Tensor, Tensor]]:
    """Images, labels that the network gets right on 99 in 100, and a posterior around it."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(examples, 1, 28, 28, generator=generator)
    with torch.no_grad():
        parts = [network(part) for part in inputs.split(4096)]
    labels = torch.cat(parts).argmax(1)
    flipped = torch.rand(examples, generator=generator) < 0.01
    labels = torch.where(flipped, (labels + 1) % 10, labels)
    network = network.to(device)
    scales: dict[str, Any] = {}
    for name, parameter in network.named_parameters():
        spread = 1.0 if equal_scales else 0.5 + torch.rand(parameter.shape, generator=generator)
        scales[name] = torch.as_tensor(1e-4 * spread).to(device).expand_as(parameter).clone()
    return (
        network,
        DiagonalGaussian.around(network, scale=scales),
        (
            inputs.to(device),
            labels.to(device),
        ),
    )


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_pairs(network, posterior, examples, *, trials: int, seed: int, device: str, local=True):
    """Seconds of one whole call, everything included, after a small one to warm up."""
    source = torch.Generator(device).manual_seed(seed)
    options: dict[str, Any] = {"generator": source, "local": local}
    estimate_risk(network, posterior, examples, trials=min(trials, 20_000), **options)
    synchronize(device)
    start, busy = time.perf_counter(), time.process_time()
    result = estimate_risk(network, posterior, examples, trials=trials, **options)
    synchronize(device)
    return result, time.perf_counter() - start, time.process_time() - busy


@torch.no_grad()
def shared_draw(network, posterior, examples, generator, chunk: int) -> int:
    """Errors of one draw of the weights on all examples, as most published code counts them."""
    weights = posterior.sample(generator=generator)
    parts = zip(examples[0].split(chunk), examples[1].split(chunk), strict=True)
    return sum(
        int((functional_call(network, weights, (inputs,)).argmax(1) != labels).sum())
        for inputs, labels in parts
    )


def time_pass(network, posterior, examples, *, draws: int, seed: int, device: str) -> float:
    """Seconds of one weight draw and one pass over all examples: the best of several."""
    best = math.inf
    for chunk in (1024, 4096, 16384):
        generator = torch.Generator(device).manual_seed(seed)
        shared_draw(network, posterior, examples, generator, chunk)
        for _ in range(draws):
            synchronize(device)
            start = time.perf_counter()
            shared_draw(network, posterior, examples, generator, chunk)
            synchronize(device)
            best = min(best, time.perf_counter() - start)
    return best


def passes_for_slack(risk: float, slack: float) -> int:
    """The fewest draws whose inverse-kl bound lies no further above the risk than ``slack``."""
    from nonvacuous.bounds import kl_inverse_upper

    def enough(draws: int) -> bool:
        allowance = math.log(1 / SAMPLING_FAILURE) / draws
        return float(kl_inverse_upper(risk, allowance)) - risk <= slack

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def against_shared_draws(
    network: nn.Module,
    *,
    trials: int,
    examples: int,
    draws: int,
    seed: int,
    device: str,
    equal_scales: bool,
) -> dict[str, Any]:
    """Seconds of both schemes for the same distance between measured and certified risk."""
    from nonvacuous.bounds import sampling

    network, posterior, data = problem(network, examples, seed, device, equal_scales=equal_scales)
    result, seconds, busy = time_pairs(
        network, posterior, data, trials=trials, seed=seed, device=device
    )
    upper = sampling(errors=result.errors, trials=trials, failure=SAMPLING_FAILURE)
    slack = upper - result.risk
    passes = passes_for_slack(result.risk, slack)
    one_pass = time_pass(network, posterior, data, draws=draws, seed=seed, device=device)
    return {
        "examples": examples,
        "method": result.method,
        "trials": trials,
        "risk": result.risk,
        "slack": slack,
        "seconds": seconds,
        "processor_seconds": busy,
        "pairs_per_minute": 60 * trials / seconds,
        "shared_passes_for_equal_slack": passes,
        "shared_seconds_per_pass_measured": one_pass,
        "shared_seconds_extrapolated": passes * one_pass,
        "times_fewer_seconds": passes * one_pass / seconds,
    }


class NormalNumbers(TorchDispatchMode):
    """How many normal numbers are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.randn, torch.ops.aten.normal_):
            self.count += result.numel()
        return result


def work_of_a_pair(network, posterior, examples, *, trials: int, seed: int) -> dict[str, float]:
    """Normal numbers drawn and operations of matrix products, counted in some trials."""
    generator = torch.Generator().manual_seed(seed)
    with FlopCounterMode(display=False) as products, NormalNumbers() as normals:
        estimate_risk(network, posterior, examples, trials=trials, generator=generator)
    return {
        "normal_numbers": normals.count / trials,
        "operations": products.get_total_flops() / trials,
    }


def least_seconds(function, repeats: int, device: str = "cpu") -> float:
    """For one call, the least of several: of the processor, or until the GPU is done."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = []
    for _ in range(repeats):
        synchronize(device)
        start = clock()
        function()
        synchronize(device)
        times.append(clock() - start)
    return min(times)


def floor_of_a_pair(work: dict[str, float], rounds: int) -> float:
    """Seconds of its normal numbers and operations at the processor's best rates."""
    matrix, normals = torch.rand(1024, 1024), torch.empty(1 << 16)
    drawing = least_seconds(normals.normal_, rounds) / normals.numel()
    operation = least_seconds(lambda: matrix @ matrix, rounds) / (2 * 1024**3)
    return work["normal_numbers"] * drawing + work["operations"] * operation


def against_drawn_weights(repeats: int, seed: int, device: str) -> dict[str, Any]:
    """Microseconds for a pair of a convolutional network, and for a naive one.

    Pairs as a certificate draws them: 100,000 on about 1,000 digits, fewer than two on an example
    of MNIST. Both ways take turns, and the least time of each counts.
    """
    figures: dict[str, Any] = {}
    rounds = max(3, repeats // 10)
    for name, shape, examples, trials in (
        ("cnn:32,64", (1, 8, 8), 900, 60 * repeats),
        ("cnn:32,64,128", (1, 8, 8), 900, 60 * repeats),
        ("cnn:16,32", (1, 28, 28), 20 * repeats, 30 * repeats),
    ):
        if device == "cuda":
            trials *= 10
        whole = build(name, shape, 10, seed=seed).eval()
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.rand(examples, *shape, generator=generator)
        labels = torch.randint(10, (examples,), generator=generator)
        for kind in KINDS:
            network, scales = whole, {}
            if kind == "the last layer alone":  # as the recipes do it
                network = with_fixed(whole, last_layer(whole, inputs[:2]))
            for parameter, p in network.named_parameters():
                spread = torch.ones_like(p)
                if kind == "one, then rescaled":  # by a factor for each channel in and out
                    for axis in range(min(2, p.ndim)):
                        sizes = [size if i == axis else 1 for i, size in enumerate(p.shape)]
                        spread = spread * (0.5 + torch.rand(sizes, generator=generator))
                elif kind != KINDS[0]:
                    spread = 0.5 + torch.rand(p.shape, generator=generator)
                scales[parameter] = (0.01 * spread).to(device)
            network = copy.deepcopy(network).to(device)
            posterior = DiagonalGaussian.around(network, scale=scales)
            data = inputs.to(device), labels.to(device)
            source = torch.Generator(device).manual_seed(seed)
            quick, naive, together, floor = [], [], [], []
            work = work_of_a_pair(network, posterior, data, trials=trials, seed=seed)

            @torch.no_grad()
            def draw_all_weights(network=network, posterior=posterior, data=data, source=source):
                for trial in range(repeats):
                    drawn = posterior.sample(generator=source)
                    functional_call(network, drawn, (data[0][trial % len(data[0])].unsqueeze(0),))

            for _ in range(3):
                if device == "cpu":
                    floor.append(floor_of_a_pair(work, rounds))
                _, wall, busy = time_pairs(
                    network, posterior, data, trials=trials, seed=seed, device=device
                )
                quick.append((busy if device == "cpu" else wall) / trials)
                few = trials // 10
                _, wall, busy = time_pairs(
                    network, posterior, data, trials=few, seed=seed, device=device, local=False
                )
                together.append((busy if device == "cpu" else wall) / few)
                naive.append(least_seconds(draw_all_weights, 1, device) / repeats)
            figures[f"{name} on {shape[1]} x {shape[2]}, {kind}"] = {
                "microseconds": 1e6 * min(quick),
                "naive_microseconds": 1e6 * min(naive),
                "naive_together_microseconds": 1e6 * min(together),
                "times_faster": min(naive) / min(quick),
                "times_faster_than_together": min(together) / min(quick),
                **work,
            }
            if floor:
                figures[f"{name} on {shape[1]} x {shape[2]}, {kind}"] |= {
                    "floor_microseconds": 1e6 * min(floor),
                    "part_of_floor": min(floor) / min(quick),
                }
    return figures


def ceilings() -> dict[str, float]:
    """Measured float32 matrix rate (no TF32) and copy bandwidth, bytes read plus written."""
    a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)

    def seconds(function, repeats: int) -> float:
        for _ in range(3):
            function()
        times = []
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        return sorted(times)[len(times) // 2]

    product = seconds(lambda: torch.mm(a, b), 10)
    copy = seconds(lambda: target.copy_(source), 10)
    noise = seconds(lambda: target.normal_(), 5)
    return {
        "float32_flops_per_second": 2 * 8192**3 / product,
        "copy_bytes_per_second": 2 * source.numel() * 4 / copy,
        "normals_per_second": target.numel() / noise,
    }


def mlp_floor(
    trials: int, distinct: int, limits: dict[str, float], *, equal_scales: bool
) -> dict[str, float]:
    """The least time for this arithmetic: products at full rate, or each activation moved once.

    The first layer sees each distinct example of a chunk once; equal scales need no second
    product. Bytes: every layer's inputs read once and its outputs written once, in float32.
    """
    products = 1 if equal_scales else 2
    operations = moved = 0.0
    for index, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS)):
        rows = distinct if index == 0 else trials
        operations += products * 2.0 * rows * inputs * outputs
        moved += 4.0 * (rows * inputs + trials * outputs)
    compute = operations / limits["float32_flops_per_second"]
    memory = moved / limits["copy_bytes_per_second"]
    return {
        "flops": operations,
        "bytes": moved,
        "compute_floor_seconds": compute,
        "memory_floor_seconds": memory,
        "noise_seconds_at_measured_rate": trials * sum(WIDTHS[1:]) / limits["normals_per_second"],
    }


def on_gpu(*, trials: int, examples: int, seed: int) -> dict[str, Any]:
    """Pairs a minute for both networks, and for the MLP the part of the floor."""
    limits = ceilings()
    figures: dict[str, Any] = {"ceilings": limits}
    for name, network_of, count, equal in (
        ("mlp", mlp, trials, False),
        ("mlp with equal scales", mlp, trials, True),
        ("cnn", cnn, max(1000, trials // 100), False),
    ):
        torch.manual_seed(seed)
        network, posterior, data = problem(network_of(), examples, seed, "cuda", equal_scales=equal)
        result, seconds, _ = time_pairs(
            network, posterior, data, trials=count, seed=seed, device="cuda"
        )
        figures[name] = {
            "method": result.method,
            "trials": count,
            "risk": result.risk,
            "seconds": seconds,
            "pairs_per_minute": 60 * count / seconds,
        }
        if network_of is mlp:
            # Sorted trials: an example is computed once for each chunk that it appears in.
            floor = mlp_floor(count, min(examples, count), limits, equal_scales=equal)
            least = max(floor["compute_floor_seconds"], floor["memory_floor_seconds"])
            figures[name] |= floor | {"part_of_floor": least / seconds}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="processor threads for torch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: checks that it runs")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--convolutions", action="store_true", help="against naive draws")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    seed, quick = arguments.seed, arguments.quick
    if arguments.convolutions:
        figures = against_drawn_weights(10 if quick else 200, seed, arguments.device)
        name = "risk-convolutions" + ("-cuda" if arguments.device == "cuda" else "")
        path = write_result(name, figures, seed=seed, folder=arguments.folder)
        print(path.read_text(encoding="utf-8"))
        return
    if arguments.device == "cuda":
        trials, examples = (20_000, 2_000) if quick else (200_000_000, 60_000)
        figures = on_gpu(trials=trials, examples=examples, seed=seed)
    else:
        figures = {"sampling_failure": SAMPLING_FAILURE, "baseline": "measured pass, extrapolated"}
        for name, network_of, trials, equal in (
            ("mlp", mlp, 1_000_000, False),
            ("mlp with equal scales", mlp, 1_000_000, True),
            ("cnn", cnn, 100_000, False),
        ):
            torch.manual_seed(seed)
            figures[name] = against_shared_draws(
                network_of(),
                trials=2_000 if quick else trials,
                examples=1_000 if quick else 60_000,
                draws=1 if quick else 3,
                seed=seed,
                device="cpu",
                equal_scales=equal,
            )
            print(name, figures[name])
    path = write_result(f"risk-{arguments.device}", figures, seed=seed, folder=arguments.folder)
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
