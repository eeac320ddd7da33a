"""Our exact solve against scipy and scikit-learn: time, memory, and growth with n, in one run.

NONVACUOUS_DATA=folder python benchmarks/interpolation.py            # n = 10,000 and 20,000

Every measurement runs in a process of its own, so that its peak of memory is its own. The same
points, kernel and right-hand sides for all; times on a shared machine are compared as ratios only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import write_result

SEED = 0
GAMMA = 0.02
#: Whole float64 matrices that a method holds at its worst moment, for not starting it too early.
MATRICES = {"scipy": 2.3, "scikit-learn": 3.2}
METHODS = ("nonvacuous", "nonvacuous float64", "scipy", "scikit-learn")


def problem(n: int) -> tuple[np.ndarray, np.ndarray]:
    from nonvacuous.data import load
    from nonvacuous.interpolation import one_hot

    train = load("mnist").train
    return (
        train.inputs[:n].reshape(n, -1).double().numpy(),
        one_hot(train.labels[:n].numpy(), 10),
    )


def ours(points: np.ndarray, values: np.ndarray, precision: str) -> np.ndarray:
    from nonvacuous.interpolation import gaussian, interpolate

    found = interpolate(points, values, kernel=gaussian(GAMMA), precision=precision)  # type: ignore[arg-type]
    return np.asarray(found.coefficients["values"])


def scipys(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    from scipy.linalg import cho_factor, cho_solve
    from sklearn.metrics.pairwise import rbf_kernel

    kernel = rbf_kernel(points, gamma=GAMMA)
    return cho_solve(cho_factor(kernel, lower=True, overwrite_a=True), values, overwrite_b=False)


def sklearns(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    from sklearn.kernel_ridge import KernelRidge

    model = KernelRidge(alpha=1e-12, kernel="rbf", gamma=GAMMA)
    return np.asarray(model.fit(points, values).dual_coef_)


def wait_for_memory(method: str, n: int, *, seconds: float = 2400) -> None:
    """On a shared machine: wait until the others leave enough memory."""
    from nonvacuous.memory import available_memory

    needed = 1.3 * 8 * n * n * MATRICES.get(method, 0.6)
    start = time.monotonic()
    while available_memory() < needed and time.monotonic() - start < seconds:
        time.sleep(15)


def forget_peak() -> int:
    """Start counting the peak of memory anew (Linux), and say what is in use now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The most bytes in use since the last reset, or since the start where there is no reset."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(method: str, n: int) -> dict[str, Any]:
    """One solve in this process; the residual is computed afterwards, the same way for all."""
    from nonvacuous.interpolation import gaussian
    from nonvacuous.interpolation.kernels import PointGram, product

    # Loading libraries is nobody's solve.
    for library in ("scipy.linalg", "sklearn.kernel_ridge", "sklearn.metrics.pairwise"):
        import_module(library)
    points, values = problem(n)
    before = forget_peak()
    wall, processor = time.perf_counter(), time.process_time()
    if method == "scipy":
        found = scipys(points, values)
    elif method == "scikit-learn":
        found = sklearns(points, values)
    else:
        found = ours(points, values, "float64" if method.endswith("float64") else "float32")
    record = {
        "seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "peak_bytes": peak(),
        "bytes_before": before,
    }
    gram = PointGram(gaussian(GAMMA), torch.from_numpy(points))
    fitted = product(gram, torch.from_numpy(np.ascontiguousarray(found)))
    record["residual"] = float((fitted - torch.from_numpy(values)).abs().max())
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="*", default=[5_000, 10_000, 20_000])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--one", nargs=2, default=None, help="a method and a size, in this process")
    parser.add_argument("--name", default="interpolation")
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]))))
        return
    record: dict[str, Any] = {"gamma": GAMMA, "threads": torch.get_num_threads(), "sizes": {}}
    for n in arguments.points:
        sizes = record["sizes"][str(n)] = {}
        for method in arguments.methods:
            wait_for_memory(method, n)
            done = subprocess.run(
                [sys.executable, __file__, "--one", method, str(n)],
                capture_output=True,
                text=True,
                check=False,
            )
            failed = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            sizes[method] = (
                json.loads(done.stdout) if done.returncode == 0 else {"failed": failed[0]}
            )
            print(n, method, json.dumps(sizes[method]), flush=True)
        write_result(arguments.name, record | {"growth": growth(record["sizes"])}, seed=SEED)


def growth(sizes: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The exponent of n in the processor time, between the smallest and the largest size."""
    ends = sorted(sizes, key=int)
    found = {}
    for method in METHODS:
        pair = [sizes[end].get(method, {}).get("processor_seconds") for end in (ends[0], ends[-1])]
        if len(ends) > 1 and pair[0] and pair[1]:
            ratio = np.log(pair[1] / pair[0]) / np.log(int(ends[-1]) / int(ends[0]))
            found[method] = float(ratio)
    return found


if __name__ == "__main__":
    main()
