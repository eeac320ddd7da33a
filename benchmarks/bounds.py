"""How many binary-kl inversions per second, against the usual loop over a scalar root finder.

    python benchmarks/bounds.py [--size 1000000] [--loop 2000] [--repeats 9] [--seed 0]

Ours: one call of ``kl_inverse_upper`` on arrays of ``--size`` pairs (q, c). The loop:
``scipy.optimize.brentq`` on the binary kl written with ``math.log``, bracketed by [q, 1), xtol
1e-15 and rtol 4 eps (its smallest), one call for each of the first ``--loop`` of the same pairs.
Medians of ``--repeats`` rounds in which the contestants take turns, in this process, on one thread:
numpy's elementwise functions use no others. q is uniform on (0, 1), c log-uniform on [1e-4, 1].
The two are compared value by value, so that a fast wrong answer would show.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from provenance import write_result

from nonvacuous import bounds

GOAL = 100.0


def scalar_kl(q: float, p: float) -> float:
    return q * math.log(q / p) + (1.0 - q) * math.log((1.0 - q) / (1.0 - p))


def invert_with_brentq(q: float, c: float) -> float:
    most = 1.0 - 2.0**-53
    if scalar_kl(q, most) <= c:
        return 1.0
    tightest = 4.0 * np.finfo(float).eps
    return brentq(lambda p: scalar_kl(q, p) - c, q, most, xtol=1e-15, rtol=tightest)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--loop", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()

    random = np.random.default_rng(settings.seed)
    q = random.uniform(size=settings.size)
    c = 10.0 ** random.uniform(-4.0, 0.0, size=settings.size)
    pairs = list(zip(q[: settings.loop].tolist(), c[: settings.loop].tolist(), strict=True))

    call = {"empirical_risk": 0.02, "kl_nats": 5000.0, "examples": 60_000, "failure": 0.05}
    contestants: dict[str, tuple[int, Callable[[], object]]] = {
        "ours": (settings.size, lambda: bounds.kl_inverse_upper(q, c)),
        "brentq": (len(pairs), lambda: [invert_with_brentq(*pair) for pair in pairs]),
        "scalar": (500, lambda: [bounds.kl_inverse_upper(*pair) for pair in pairs[:500]]),
        "seeger": (500, lambda: [bounds.seeger(**call) for _ in range(500)]),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(settings.repeats + 1):
        for name, (number, work) in contestants.items():
            times[name].append(seconds(work) / number)
    # The first round warms up caches and is not counted.
    each = {name: statistics.median(values[1:]) for name, values in times.items()}
    ours, loop = each["ours"], each["brentq"]

    expected = np.array([invert_with_brentq(*pair) for pair in pairs])
    difference = bounds.kl_inverse_upper(q[: settings.loop], c[: settings.loop]) - expected
    payload = {
        "claim": f"array inversions at least {GOAL:g} times as fast as a loop of brentq",
        "settings": vars(settings),
        "method": " ".join((__doc__ or "").split("\n\n")[2].split()),
        "inversions_per_second": 1.0 / ours,
        "brentq_inversions_per_second": 1.0 / loop,
        "ratio": loop / ours,
        "goal": GOAL,
        "goal_met": loop / ours >= GOAL,
        "microseconds_per_scalar_inversion": 1e6 * each["scalar"],
        "microseconds_per_seeger": 1e6 * each["seeger"],
        "largest_relative_difference": float(np.abs(difference / expected).max()),
    }
    path = write_result("bounds", payload, seed=settings.seed)
    print(
        f"ours {1 / ours:,.0f} inversions/s, brentq loop {1 / loop:,.0f}/s: {loop / ours:.0f} "
        f"times as fast (goal {GOAL:g}); one seeger {1e6 * each['seeger']:.0f} µs; "
        f"values differ by at most {payload['largest_relative_difference']:.1e} relative"
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
