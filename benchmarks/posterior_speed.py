"""Seconds a step of posterior training, as certify trains: this version against another one.

    python benchmarks/posterior_speed.py --device cuda --baseline OTHER/src

Both train the same networks on random images in one run, in processes of their own that take turns;
the least time of all rounds counts. On a processor that is the time of the processor, of all its
threads together, so that other work on the machine counts little. The floor is what the matrix
products of this version's step would take at the rate that this device reaches for large ones in
float32 (on a GPU: TF32).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NETWORKS = ("cnn:32,64,128", "cnn:8,16,32", "mlp:600,600")
BATCH = 256
#: Steps of an epoch.
STEPS = {"cuda": 50, "cpu": 8}


def train(network: str, device: str, *, epochs: int, steps: int, **rest: Any) -> None:
    import torch

    from nonvacuous.data.examples import Examples
    from nonvacuous.distributions import DiagonalGaussian
    from nonvacuous.models import build
    from nonvacuous.training import posterior as training

    count = BATCH * steps
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (count,), generator=generator)
    inputs = torch.rand(count, 1, 28, 28, generator=generator)
    examples = Examples(inputs, labels, tuple("abcdefghij"), "noise")
    model = build(network, (1, 28, 28), 10, seed=0).to(device)
    prior = DiagonalGaussian.around(model, scale=0.1)
    options = {
        "epochs": epochs,
        "batch_size": BATCH,
        "learning_rate": 0.002,
        "scale_learning_rate": 0.02,
        "optimizer": "adam",
        "kl_penalty": 0.35,
        "minimum_probability": 1e-4,
    }
    # Baselines from before there were settings take them one by one.
    settings = getattr(training, "PosteriorSettings", None)
    given = options if settings is None else {"settings": settings(**options)}
    training.train_posterior(model, prior, examples, **given, device=device, **rest)
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_a_step(network: str, device: str, epochs: int) -> float:
    clock = time.perf_counter if device == "cuda" else time.process_time
    times = {}
    # Once to warm up; the difference of the others leaves out what is paid once.
    for repeats in (1, 1, 1 + epochs):
        started = clock()
        train(network, device, epochs=repeats, steps=STEPS[device])
        times[repeats] = clock() - started
    return (times[1 + epochs] - times[1]) / (epochs * STEPS[device])


def in_process(source: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", "--device", arguments.device]
    command += ["--epochs", str(arguments.epochs)]
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    output = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    times: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return times


def floor(network: str, device: str) -> float:
    """Seconds for the products of one step."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    operations = []
    for epochs in (1, 2):
        with FlopCounterMode(display=False) as counter:
            train(network, device, epochs=epochs, steps=1, record=False)
        operations.append(counter.get_total_flops())
    size = 4096 if device == "cuda" else 1024
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    square = torch.rand(size, size, device=device)
    square @ square
    if device == "cuda":
        torch.cuda.synchronize()
    clock = time.perf_counter if device == "cuda" else time.process_time
    started, times = clock(), 10
    for _ in range(times):
        square @ square
    if device == "cuda":
        torch.cuda.synchronize()
    rate = times * 2.0 * size**3 / (clock() - started)
    return (operations[1] - operations[0]) / rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--baseline", help="the src folder of another version")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="processes of each version")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        times = {n: seconds_a_step(n, arguments.device, arguments.epochs) for n in NETWORKS}
        print(json.dumps(times))
        return
    from provenance import write_result

    own = str(Path(__file__).resolve().parents[1] / "src")
    sys.path.insert(0, own)
    now: dict[str, float] = {}
    before: dict[str, float] = {}
    for _ in range(arguments.rounds):
        for least, source in ((now, own), (before, arguments.baseline)):
            for name, seconds in in_process(source, arguments).items():
                least[name] = min(seconds, least.get(name, seconds))
    rows = {
        name: {
            "times_faster": before[name] / now[name],
            "share_of_floor": floor(name, arguments.device) / now[name],
            "milliseconds": 1e3 * now[name],
            "baseline_milliseconds": 1e3 * before[name],
        }
        for name in NETWORKS
    }
    print(json.dumps(rows, indent=2))
    write_result(f"posterior-speed-{arguments.device}", {"networks": rows}, seed=0)


if __name__ == "__main__":
    main()
