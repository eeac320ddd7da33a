"""Test reports against what one would pick instead: widths, coverage and time, in one run.

    python benchmarks/evaluate.py [--worlds 10000] [--rows 10000000] [--seed 0]

Right or wrong: 95 % intervals (two-sided) of an error rate from 50 examples: ours, the exact ones
of scipy and statsmodels, `confidenceinterval`, the normal approximation and bootstraps. Coverage is
simulated at risks at which 0 to 5 errors of 50 are common; a method is valid if it covers at every
one of them. One-sided, MAPIE's risk control: the largest risk that its test does not rule out.

Losses between 0 and 1: 95 % upper ends from 400 losses, ours and those of MAPIE's risk-controlling
prediction sets, for three kinds of losses.

Also: reports on ``--rows`` rows from parquet (wall seconds and peak memory, each in a process of
its own), and labels that a monitor takes per second of processor time. Packages that are not
installed are named.
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
import warnings
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
Upper = Callable[..., float]


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


def bias_corrected(errors: int) -> tuple[float, float]:
    sample = (np.arange(EXAMPLES) < errors).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = stats.bootstrap((sample,), np.mean, n_resamples=1000, rng=errors)
    low, high = ends.confidence_interval
    return (float(low), float(high)) if low == low else (errors / EXAMPLES, errors / EXAMPLES)


def statsmodels_beta(errors: int) -> tuple[float, float]:
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(errors, EXAMPLES, FAILURE, "beta")
    return float(low), float(high)


def confidenceinterval_accuracy(errors: int) -> tuple[float, float]:
    from confidenceinterval import accuracy_score

    truth = np.zeros(EXAMPLES, dtype=int)
    answers = (np.arange(EXAMPLES) < errors).astype(int)
    _, (low, high) = accuracy_score(truth, answers, confidence_level=1 - FAILURE)
    return 1 - high, 1 - low


def one_sided(errors: int) -> tuple[float, float]:
    return 0.0, bounds.holdout(errors=errors, examples=EXAMPLES, failure=FAILURE)


def mapie_test(errors: int) -> tuple[float, float]:
    """The largest risk that MAPIE's p-value (Hoeffding and Bentkus, for 0/1 losses) allows."""
    from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

    def p_value(risk: float) -> float:
        rate = np.array([errors / EXAMPLES])
        found = compute_hoeffding_bentkus_p_value(rate, EXAMPLES, np.array([risk]), binary=True)
        return float(found[0, 0])

    low, high = errors / EXAMPLES + 1e-9, 1.0 - 1e-9
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if p_value(middle) > FAILURE else (low, middle)
    return 0.0, high


CONTESTANTS: dict[str, tuple[str | None, Interval]] = {
    "nonvacuous": (None, ours),
    "scipy exact": (None, scipy_exact),
    "statsmodels beta": ("statsmodels", statsmodels_beta),
    "confidenceinterval": ("confidenceinterval", confidenceinterval_accuracy),
    "bootstrap, percentiles": (None, bootstrap),
    "scipy bootstrap, BCa": (None, bias_corrected),
    "normal": (None, normal),
    "nonvacuous, one-sided": (None, one_sided),
    "MAPIE, one-sided": ("mapie", mapie_test),
}


def present(package: str | None) -> bool:
    return package is None or importlib.util.find_spec(package) is not None


def intervals(worlds: int, seed: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    generator = np.random.default_rng(seed)
    draws = {risk: generator.binomial(EXAMPLES, risk, worlds) for risk in RISKS}
    for name, (package, method) in CONTESTANTS.items():
        if not present(package):
            continue
        rounds = []
        for _ in range(20):
            start = time.perf_counter()
            for errors in range(6):
                method(errors)
            rounds.append((time.perf_counter() - start) / 6)
        most = 1 + max(int(counts.max()) for counts in draws.values())
        table = np.array([method(errors) for errors in range(max(6, most))])
        coverage = [
            float(((table[k, 0] <= risk) & (risk <= table[k, 1])).mean())
            for risk, k in draws.items()
        ]
        slack = 4 * np.sqrt(FAILURE * (1 - FAILURE) / worlds)
        rows.append(
            {
                "method": name,
                "least coverage": round(min(coverage), 4),
                "valid": bool(min(coverage) >= 1 - FAILURE - slack),
                "widths at 0 to 5 errors": [round(float(h - w), 5) for w, h in table[:6]],
                "microseconds": round(1e6 * float(np.median(rounds)), 1),
            }
        )
    return rows


def mapie_upper(bound: str) -> Upper:
    """MAPIE's end; with ``mean``, whether it is below it, which a grid of one point decides."""

    def upper(losses: np.ndarray, mean: float | None = None) -> float:
        from mapie.risk_control.methods import get_r_hat_plus

        # One predictor: its losses stand in every column; candidates for the mean are a grid.
        grid = np.linspace(0.005, 0.25, 50)
        if mean is not None:
            grid = np.array([mean * (1 - 1e-9), 1.0])
        risks = np.repeat(losses[:, None], len(grid), axis=1)
        return float(get_r_hat_plus(risks, grid, "rcps", bound, FAILURE, 0.25)[1][0])

    return upper


LOSS_BOUNDS: dict[str, Upper] = {
    "nonvacuous, betting": lambda x, _=None: bounds.betting(x, failure=FAILURE),
    "nonvacuous, empirical Bernstein": lambda x, _=None: bounds.bernstein(
        empirical_risk=float(x.mean()),
        variance=float(x.var(ddof=1)),
        examples=len(x),
        failure=FAILURE,
    ),
    "nonvacuous, kl": lambda x, _=None: bounds.sampling_bounded(
        total=float(x.sum()), trials=len(x), failure=FAILURE
    ),
    "MAPIE, wsr": mapie_upper("wsr"),
    "MAPIE, bernstein": mapie_upper("bernstein"),
    "MAPIE, hoeffding": mapie_upper("hoeffding"),
}


def loss_bounds(worlds: int, seed: int, examples: int = 400) -> list[dict[str, object]]:
    """Upper ends of the mean of losses: coverage in all worlds, widths and time in some."""
    generator = np.random.default_rng(seed)
    shape, few = (worlds, examples), max(1, worlds // 40)
    kinds = {
        "skewed": (generator.beta(0.5, 4.0, shape), 0.5 / 4.5),
        "thirds": (generator.binomial(3, 0.1, shape) / 3.0, 0.1),
        "rare": ((generator.random(shape) < 0.05) * 0.9, 0.045),
    }
    rows: list[dict[str, object]] = []
    for name, method in LOSS_BOUNDS.items():
        if name.startswith("MAPIE") and not present("mapie"):
            continue
        seconds, least, excess = 0.0, 1.0, {}
        for kind, (losses, mean) in kinds.items():
            covered = [method(sample, mean) >= mean * (1 - 1e-12) for sample in losses]
            least = min(least, float(np.mean(covered)))
            start = time.perf_counter()
            ends = np.array([method(sample) for sample in losses[:few]])
            seconds += (time.perf_counter() - start) / (len(kinds) * few)
            excess[kind] = round(float((ends - losses[:few].mean(axis=1)).mean()), 4)
        slack = 4 * np.sqrt(FAILURE * (1 - FAILURE) / worlds)
        rows.append(
            {
                "method": name,
                "least coverage": round(least, 4),
                "valid": bool(least >= 1 - FAILURE - slack),
                "mean excess": excess,
                "microseconds": round(1e6 * seconds, 1),
            }
        )
    return rows


REPORT = """
import json, re, sys, time
import nonvacuous as nv
start = time.perf_counter()
report = nv.evaluate(data=sys.argv[1], unseen=True, **json.loads(sys.argv[2]))
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps({"seconds": time.perf_counter() - start, "megabytes": peak,
                  "risk_upper": report.risk_upper}))
"""
ANSWERS = {"predictions": "p", "labels": "y"}
REPORTS = {
    "errors, 50 groups": {**ANSWERS, "groups": ["site"]},
    "losses, 50 groups": {"losses": "loss", "groups": ["site"], "settings": {"metric": "loss"}},
    "errors, 100,000 clusters": {**ANSWERS, "clusters": "patient"},
    "errors, ids": {**ANSWERS, "ids": "id"},
}


def scale(rows: int, seed: int) -> dict[str, dict[str, float]]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    generator = np.random.default_rng(seed)
    names = np.array([f"site {i:02d}" for i in range(50)])
    with tempfile.TemporaryDirectory() as folder:
        path, writer = Path(folder) / "rows.parquet", None
        for start in range(0, rows, 1_000_000):
            size = min(1_000_000, rows - start)
            labels = generator.integers(0, 10, size)
            wrong = generator.random(size) < 0.03
            columns = {
                "p": np.where(wrong, (labels + 1) % 10, labels),
                "y": labels,
                "site": names[generator.integers(0, 50, size)],
                "loss": generator.beta(0.5, 4.0, size),
                "patient": generator.integers(0, 100_000, size),
                "id": np.arange(start, start + size),
            }
            table = pa.table(columns)
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        results = {}
        for name, call in REPORTS.items():
            command = [sys.executable, "-c", REPORT, str(path), json.dumps(call)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results[name] = {"rows": rows, **json.loads(done.stdout)}
            print(name, results[name])
    return results


def monitor_speed(seed: int) -> dict[str, float]:
    """Labels per second of processor time: medians of five rounds."""
    losses = (np.random.default_rng(seed).random(1_000_000) < 0.04).astype(float)
    some = losses[:100_000].tolist()
    nv.monitor(0.05).update(losses[:1000])
    batches, singles = [], []
    for _ in range(5):
        start = time.process_time()
        nv.monitor(0.05).update(losses)
        batches.append(len(losses) / (time.process_time() - start))
        watch = nv.monitor(0.05)
        start = time.process_time()
        for loss in some:
            watch.update(loss)
        singles.append(len(some) / (time.process_time() - start))
    return {"in batches": float(np.median(batches)), "single": float(np.median(singles))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=10_000)
    parser.add_argument("--loss-worlds", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    missing = sorted({p for p, _ in CONTESTANTS.values() if not present(p)} - {None})
    if missing:
        print("not installed:", ", ".join(map(str, missing)))
    result: dict[str, object] = {"worlds": options.worlds, "loss_worlds": options.loss_worlds}
    result["missing"] = missing
    result["intervals"] = intervals(options.worlds, options.seed)
    result["losses"] = loss_bounds(options.loss_worlds, options.seed)
    for row in (*result["intervals"], *result["losses"]):  # type: ignore[misc]
        print(row)
    result["monitor"] = monitor_speed(options.seed)
    print("labels per second:", result["monitor"])
    result["scale"] = scale(options.rows, options.seed)
    write_result("evaluate", result, seed=options.seed)


if __name__ == "__main__":
    main()
