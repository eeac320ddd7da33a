"""Test reports against what one would pick instead: widths, coverage and time.

    python benchmarks/evaluate.py [--worlds 4000] [--rows 10000000] [--seed 0]

Intervals for an error rate at 95 % (two-sided) from few errors: ours, the exact ones of scipy and
statsmodels, the normal approximation, and the bootstrap's percentiles. Coverage is simulated at
risks at which 0 to 5 errors of 50 are common; a method is valid if it covers at every one of them.
Also: the time of a scalar bound, of a report on ``--rows`` rows with 50 groups from parquet (wall
seconds and peak memory of a process of its own), and updates of a monitor per second.
Packages that are not installed are left out of the table, and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent))
from provenance import write_result

import nonvacuous as nv
from nonvacuous import bounds

EXAMPLES, FAILURE = 50, 0.05
RISKS = (0.005, 0.01, 0.02, 0.05, 0.08)
Interval = Callable[[int], tuple[float, float]]


def ours(errors: int) -> tuple[float, float]:
    call = {"errors": errors, "examples": EXAMPLES, "failure": FAILURE / 2}
    return bounds.holdout_lower(**call), bounds.holdout(**call)


def scipy_exact(errors: int) -> tuple[float, float]:
    ends = stats.binomtest(errors, EXAMPLES).proportion_ci(1 - FAILURE, method="exact")
    return float(ends.low), float(ends.high)


def normal(errors: int) -> tuple[float, float]:
    rate = errors / EXAMPLES
    half = 1.96 * np.sqrt(rate * (1 - rate) / EXAMPLES)
    return float(rate - half), float(rate + half)


def bootstrap(errors: int) -> tuple[float, float]:
    generator = np.random.default_rng(errors)
    rates = generator.binomial(EXAMPLES, errors / EXAMPLES, 2000) / EXAMPLES
    low, high = np.quantile(rates, [FAILURE / 2, 1 - FAILURE / 2])
    return float(low), float(high)


def contestants() -> tuple[dict[str, Interval], list[str]]:
    known: dict[str, Interval] = {"nonvacuous": ours, "scipy exact": scipy_exact}
    known |= {"normal": normal, "bootstrap": bootstrap}
    missing = []
    if importlib.util.find_spec("statsmodels"):
        from statsmodels.stats.proportion import proportion_confint

        known["statsmodels beta"] = lambda k: proportion_confint(k, EXAMPLES, FAILURE, "beta")
    else:
        missing.append("statsmodels")
    if importlib.util.find_spec("confidenceinterval"):
        from confidenceinterval import accuracy_score

        def confidenceinterval(errors: int) -> tuple[float, float]:
            truth = np.zeros(EXAMPLES, dtype=int)
            answers = (np.arange(EXAMPLES) < errors).astype(int)
            _, (low, high) = accuracy_score(truth, answers, confidence_level=1 - FAILURE)
            return 1 - high, 1 - low

        known["confidenceinterval"] = confidenceinterval
    else:
        missing.append("confidenceinterval")
    return known, missing


def intervals(worlds: int, seed: int) -> list[dict[str, object]]:
    methods, missing = contestants()
    rows: list[dict[str, object]] = []
    generator = np.random.default_rng(seed)
    draws = {risk: generator.binomial(EXAMPLES, risk, worlds) for risk in RISKS}
    for name, method in methods.items():
        rounds = []
        for _ in range(30):
            start = time.perf_counter()
            for errors in range(6):
                method(errors)
            rounds.append((time.perf_counter() - start) / 6)
        seconds = float(np.median(rounds))
        table = {errors: method(errors) for errors in range(EXAMPLES + 1)}
        coverage = {}
        for risk, counts in draws.items():
            hit = np.array([table[k][0] <= risk <= table[k][1] for k in counts.tolist()])
            coverage[risk] = float(hit.mean())
        least = min(coverage.values())
        slack = 4 * np.sqrt(FAILURE * (1 - FAILURE) / worlds)
        rows.append(
            {
                "method": name,
                "least coverage": round(least, 4),
                "valid": bool(least >= 1 - FAILURE - slack),
                "width at 0 errors": round(table[0][1] - table[0][0], 4),
                "width at 3 errors": round(table[3][1] - table[3][0], 4),
                "microseconds": round(1e6 * seconds, 1),
            }
        )
    if missing:
        print("not installed:", ", ".join(missing))
    return rows


REPORT = """
import json, resource, sys, time
import nonvacuous as nv
start = time.perf_counter()
report = nv.evaluate(data=sys.argv[1], predictions="p", labels="y", groups=["site"], unseen=True)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": time.perf_counter() - start, "megabytes": peak,
                  "groups": len(report.groups["site"])}))
"""


def scale(rows: int, seed: int) -> dict[str, float]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    generator = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path, writer = Path(folder) / "rows.parquet", None
        for start in range(0, rows, 1_000_000):
            size = min(1_000_000, rows - start)
            labels = generator.integers(0, 10, size)
            answers = np.where(generator.random(size) < 0.03, (labels + 1) % 10, labels)
            sites = np.array([f"site {i:02d}" for i in range(50)])[generator.integers(0, 50, size)]
            table = pa.table({"p": answers, "y": labels, "site": sites})
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        done = subprocess.run(
            [sys.executable, "-c", REPORT, str(path)], capture_output=True, text=True, check=True
        )
    return dict(json.loads(done.stdout))


def monitor_speed(seed: int) -> dict[str, float]:
    losses = (np.random.default_rng(seed).random(1_000_000) < 0.04).astype(float)
    start = time.perf_counter()
    nv.monitor(0.05).update(losses)
    batch = len(losses) / (time.perf_counter() - start)
    watch, some = nv.monitor(0.05), losses[:50_000].tolist()
    start = time.perf_counter()
    for loss in some:
        watch.update(loss)
    return {"in batches": batch, "single": len(some) / (time.perf_counter() - start)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=4_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = intervals(options.worlds, options.seed)
    for row in rows:
        print(row)
    speed = monitor_speed(options.seed)
    print("monitor updates per second:", {k: f"{v:,.0f}" for k, v in speed.items()})
    size = scale(options.rows, options.seed)
    print(f"{options.rows:,} rows:", size)
    write_result(
        "evaluate", {"intervals": rows, "monitor": speed, "scale": size}, seed=options.seed
    )


if __name__ == "__main__":
    main()
