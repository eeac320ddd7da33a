"""All 60,000 points of MNIST, exactly interpolated on a processor: error, norms, memory, time.

NONVACUOUS_DATA=folder python benchmarks/interpolation_mnist.py --folder scratch

The folder keeps the factor as it grows: started again with the same folder, it goes on.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from provenance import write_result

from nonvacuous.data import Dataset, load
from nonvacuous.interpolation import gaussian, interpolate, one_hot
from nonvacuous.randomization.corruptions import corrupt

SEED = 0
GAMMA = 0.02
#: True labels, half of them redrawn, all of them redrawn.
NAMES = {"true": "true", "partial:0.5": "half", "random-labels": "random"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--name", default="interpolation-mnist")
    arguments = parser.parse_args()
    data = load("mnist")
    assert data.test is not None
    data = Dataset(data.train.subset(np.arange(arguments.points)), data.test)
    points = data.train.inputs
    # The labels of the same study on a GPU, so that the two can be compared.
    drawn = {name: corrupt(data, name, seed=SEED).train.labels.numpy() for name in NAMES}
    resumed = arguments.folder is not None and (arguments.folder / "factor.json").is_file()
    told = time.monotonic()

    def progress(phase: str, done: int, total: int, message: str) -> None:
        nonlocal told
        if time.monotonic() - told > 30 or done == total:
            told = time.monotonic()
            print(f"{phase}: {done} of {total}, {message}", file=sys.stderr, flush=True)

    wall, processor = time.perf_counter(), time.process_time()
    function = interpolate(
        points,
        {NAMES[name]: one_hot(entry, 10) for name, entry in drawn.items()},
        kernel=gaussian(GAMMA),
        folder=arguments.folder,
        progress=progress,
    )
    solved = time.perf_counter() - wall
    errors = function.errors(data.test.inputs, data.test.labels, progress=progress)
    record = {
        "points": len(points),
        "gamma": GAMMA,
        "threads": torch.get_num_threads(),
        "precision": function.plan.precision,
        "place": function.plan.place,
        "factor_bytes": function.plan.factor_bytes,
        "planned_peak_bytes": function.plan.peak_bytes,
        # Kilobytes on Linux. Everything the process ever held, the data included.
        "measured_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        # Times of a run that went on with an earlier one's columns are those of the rest.
        "resumed": resumed,
        "solve_seconds": solved,
        "all_seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "norms": dict(function.norms),
        "test_errors": errors,
        "test_examples": len(data.test),
        "refinements": list(function.refinements),
        "residual": function.residual,
        "smallest_pivot": None if function.pivots is None else function.pivots.smallest,
        "warnings": list(function.warnings),
    }
    path = write_result(arguments.name, record, seed=SEED)
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
