"""Progressive certificates and their gate against held-out tests of the same examples.

python benchmarks/progressive.py gate    # chance to certify on power-law learning curves, exact
python benchmarks/progressive.py tests   # both bounds on the same trained checkpoints
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from provenance import write_result
from scipy import stats
from scipy.optimize import brentq

from nonvacuous import bounds
from nonvacuous.certification.measurement import count_errors
from nonvacuous.data import Examples, load, split_examples
from nonvacuous.models import build
from nonvacuous.records import Observation
from nonvacuous.rules.drawing import FIRST_OBSERVED, batches_of, first_part, tilt_of, trained_on
from nonvacuous.training.erm import train
from nonvacuous.training_settings import PlainTraining

FAILURES = (0.05, 0.01, 0.0025, 0.001)
STARTS = tuple(round(0.05 * step, 2) for step in range(4, 18))
BATCHES = 5
DATA_SETS = 2_000


def gate_allowed(trials: int, threshold: float, failure: float, batches: int | None = None) -> int:
    """Most errors at which the gate passes; -1 where it never does."""
    low, high = -1, int(trials * threshold)
    while high - low > 1:
        middle = (low + high) // 2
        call = {"errors": middle, "trials": trials, "threshold": threshold, "batches": batches}
        low, high = (middle, high) if bounds.gate_failure(**call) <= failure else (low, middle)
    return low


def exact_allowed(trials: int, threshold: float, failure: float) -> int:
    return int(stats.binom.ppf(failure, trials, threshold)) - 1


def mixture_law(sizes: list[int], risks: list[float]) -> np.ndarray:
    """The law of the number of errors of several checkpoints, each on its batch."""
    law = np.ones(1)
    for size, risk in zip(sizes, risks, strict=True):
        law = np.convolve(law, stats.binom.pmf(np.arange(size + 1), size, risk))
    return law


class Curve:
    """The risk after training on a examples: floor + level a^(-slope)."""

    def __init__(self, floor: float, slope: float, level: float) -> None:
        self.floor, self.slope, self.level = floor, slope, level

    def __call__(self, examples: float) -> float:
        return float(min(1.0, self.floor + self.level * examples ** (-self.slope)))


def held_out_power(curve: Curve, total: int, threshold: float) -> tuple[float, float]:
    """The best chance over all shares, and the share that trains."""
    powers = []
    for start in STARTS:
        trained = round(start * total)
        allowed = exact_allowed(total - trained, threshold, FAILURES[0])
        powers.append((float(stats.binom.cdf(allowed, total - trained, curve(trained))), start))
    return max(powers)


def gate_plan(
    curve: Curve, total: int, start: float, batches: int = BATCHES
) -> tuple[list[int], list[float]]:
    trained = round(start * total)
    ends = np.linspace(trained, total, batches + 1).round().astype(int)
    return [int(s) for s in np.diff(ends)], [curve(int(a)) for a in ends[:-1]]


def gate_power(
    curve: Curve, total: int, threshold: float, start: float, batches: int = BATCHES
) -> float:
    sizes, risks = gate_plan(curve, total, start, batches)
    allowed = gate_allowed(sum(sizes), threshold, FAILURES[0], batches)
    return float(mixture_law(sizes, risks)[: allowed + 1].sum())


def simulated(curve: Curve, total: int, threshold: float, start: float, seed: int) -> float:
    """The same by drawing data sets."""
    sizes, risks = gate_plan(curve, total, start)
    generator = np.random.default_rng(seed)
    wrong = sum(generator.binomial(n, p, DATA_SETS) for n, p in zip(sizes, risks, strict=True))
    return float(np.mean(wrong <= gate_allowed(sum(sizes), threshold, FAILURES[0])))


def gate(seed: int) -> dict[str, Any]:
    """Curves at whose level the best held-out gate passes in half of all data sets."""
    cases = []
    for total, threshold in ((1_000, 0.05), (3_000, 0.05), (1_000, 0.1), (3_000, 0.1)):
        for floor, slope in ((0.0, 0.25), (0.0, 0.5), (0.0, 1.0), (0.4, 0.5)):

            def excess(log_level: float, shape=(floor * threshold, slope), at=(total, threshold)):
                return held_out_power(Curve(*shape, float(np.exp(log_level))), *at)[0] - 0.5

            level = float(np.exp(brentq(excess, -9.0, 6.0, xtol=1e-4)))
            curve = Curve(floor * threshold, slope, level)
            held_out, share = held_out_power(curve, total, threshold)
            powers = {start: gate_power(curve, total, threshold, start) for start in STARTS}
            best = max(powers, key=lambda start: powers[start])
            two = {start: gate_power(curve, total, threshold, start, 2) for start in STARTS}
            best_of_two = max(two, key=lambda start: two[start])
            cases.append(
                {
                    "examples": total,
                    "threshold": threshold,
                    "curve": {"floor": curve.floor, "slope": slope, "level": level},
                    "held_out": held_out,
                    "held_out_share": share,
                    "gate": powers[best],
                    "gate_start": best,
                    "gate_at_half": powers[0.5],
                    "two": two[best_of_two],
                    "two_start": best_of_two,
                    "two_at_held_out_share": two[share],
                    "simulated": simulated(curve, total, threshold, best, seed),
                }
            )
    return {"failure": FAILURES[0], "batches": BATCHES, "data_sets": DATA_SETS, "cases": cases}


def one_seed(
    examples: Examples, network: str, training: PlainTraining, seed: int
) -> tuple[list[int], list[list[int]], Observation]:
    """Batch sizes; errors of every checkpoint on its own and all later batches; the aside."""
    split = split_examples(examples, prior_fraction=0.5, seed=seed)
    batches = batches_of(examples, split, BATCHES, seed)
    errors = []
    for number, saw in enumerate(trained_on(split, batches, seed, tilted=True)):
        module = train(
            build(network, examples.example_shape, examples.classes, seed=seed),
            examples.subset(saw),
            training,
            seed=seed,
        ).module
        if number == 0:
            _, chosen = first_part(split, seed, tilted=True)
            part = examples.subset(chosen)
            wrong = count_errors(module, part)
            aside = Observation(name=FIRST_OBSERVED, errors=wrong, trials=len(part))
        errors.append([count_errors(module, examples.subset(b)) for b in batches[number:]])
    return [len(batch) for batch in batches], errors, aside


def both(sizes: list[int], errors: list[list[int]], aside: Observation, failure: float) -> Any:
    """The progressive bound, and the plain test of every checkpoint on all that come after it."""
    tests = sum(sizes)
    progressive = bounds.progressive(
        errors=sum(row[0] for row in errors),
        trials=tests,
        tilt=tilt_of(aside, examples=tests, failure=failure),
        failure=failure,
    )
    held_out = [
        bounds.holdout(errors=sum(row), examples=sum(sizes[number:]), failure=failure)
        for number, row in enumerate(errors)
    ]
    return progressive, held_out


def against_tests(seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, total, network, epochs in (
        ("digits", None, "mlp:64", 20),
        ("mnist", 3_000, "mlp:128", 12),
        ("mnist", 6_000, "mlp:128", 12),
        ("fashion-mnist", 6_000, "mlp:128", 12),
    ):
        whole, began = load(name).train, time.process_time()
        rows: dict[float, list[Any]] = {failure: [] for failure in FAILURES}
        for seed in range(seeds):
            chosen = np.random.default_rng(seed).permutation(len(whole))[:total]
            examples = whole if total is None else whole.subset(np.sort(chosen))
            training = PlainTraining(epochs=epochs, learning_rate=0.1)
            counts = one_seed(examples, network, training, seed)
            for failure in FAILURES:
                rows[failure].append(both(*counts, failure))
        cases = {}
        for failure, pairs in rows.items():
            progressive = np.array([pair[0] for pair in pairs])
            held_out = np.array([pair[1] for pair in pairs])
            best = held_out[:, held_out.mean(axis=0).argmin()]
            difference = progressive - best
            cases[str(failure)] = {
                "progressive": float(progressive.mean()),
                "held_out": float(best.mean()),
                "held_out_number": int(held_out.mean(axis=0).argmin()) + 1,
                "held_out_best_of_each_seed": float(held_out.min(axis=1).mean()),
                "difference": float(difference.mean()),
                "standard_error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
            }
        found[f"{name} {total or len(whole)}"] = {
            "network": network,
            "epochs": epochs,
            "seeds": seeds,
            "seconds": time.process_time() - began,
            "failures": cases,
        }
    return {"batches": BATCHES, "start": 0.5, "cases": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("gate", "tests"))
    parser.add_argument("--seeds", type=int, default=6)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    result = gate(0) if chosen.part == "gate" else against_tests(chosen.seeds)
    print(write_result(f"progressive-{chosen.part}", result, seed=0))


if __name__ == "__main__":
    main()
