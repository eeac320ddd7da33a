"""The convolutional network of figure 1 of "Can Rescaling Invariances Help?", on CIFAR-10.

    python benchmarks/rescaling_cifar.py --device cuda                   # NONVACUOUS_DATA/cifar10
    python benchmarks/rescaling_cifar.py --device cuda --arrays FOLDER   # decoded arrays

FOLDER holds train-inputs.npy (examples, 3, 32, 32) in 8 bits, train-labels.npy, test-inputs.npy and
test-labels.npy. The same code as `nonvacuous reproduce rescaling-figure-1 --cifar`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from provenance import RESULTS, write_result

from nonvacuous.experiments.rescaling_cifar import (
    CnnSettings,
    cnn_table,
    inferred_weights,
    run_cnn,
)

NAME = "rescaling-cifar"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arrays", default=None, help="folder of decoded arrays")
    parser.add_argument("--data-dir", default=None, help="else the variable NONVACUOUS_DATA")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=CnnSettings.epochs)
    parser.add_argument("--batch-size", type=int, default=CnnSettings.batch_size)
    parser.add_argument("--learning-rate", type=float, default=CnnSettings.learning_rate)
    parser.add_argument("--weight-decay", type=float, default=CnnSettings.weight_decay)
    parser.add_argument("--trials", type=int, default=CnnSettings.trials)
    parser.add_argument("--examples", type=int, default=None, help="fewer, to try it out")
    parser.add_argument("--architecture", default=CnnSettings.architecture)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    settings = CnnSettings(
        data=arguments.arrays or "cifar10",
        architecture=arguments.architecture,
        epochs=arguments.epochs,
        learning_rate=arguments.learning_rate,
        batch_size=arguments.batch_size,
        weight_decay=arguments.weight_decay,
        examples=arguments.examples,
        trials=arguments.trials,
        seed=arguments.seed,
    )
    started = time.perf_counter()

    def progress(phase: str, done: int, total: int, message: str) -> None:
        if phase == "noise levels" or "loss" in message:
            print(f"{time.perf_counter() - started:6.1f} s  {phase}: {message}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        found = run_cnn(
            settings,
            folder,
            data_dir=arguments.data_dir,
            device=arguments.device,
            progress=progress,
        )
    if arguments.device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    # Where the arrays lay is nobody's business; what they are is.
    found = replace(found, settings=replace(settings, data="cifar10"))
    weights, squares = inferred_weights()
    record = {
        **asdict(found),
        "kl_ratios": [point.kl_ratio for point in found.points],
        "inferred_weights": weights,
        "inferred_weights_squared": squares,
        "seconds": seconds,
    }
    print(cnn_table(found))
    print(write_result(NAME, record, seed=settings.seed, folder=arguments.folder))


if __name__ == "__main__":
    main()
