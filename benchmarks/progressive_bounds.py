"""Bounds and gates out of the counts of progressive_subsets.py: both kinds at their best share.

python benchmarks/progressive_bounds.py
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from progressive import FAILURES, exact_allowed, gate_allowed
from progressive_subsets import CASES
from provenance import RESULTS, write_result

from nonvacuous import bounds
from nonvacuous.records import Observation
from nonvacuous.rules.drawing import FIRST_OBSERVED, tilt_of

#: Parts before the first test whose errors choose the tilt.
ASIDE = 2
#: A share for the first part that nobody chose in hindsight.
FIXED = 0.6
#: Chances of the held-out gate at which the gate is compared.
CHANCES = (0.25, 0.5, 0.75)

held_out_bound, progressive_bound = cache(bounds.holdout), cache(bounds.progressive)


@cache
def tilt(errors: int, trials: int, examples: int, failure: float) -> float:
    aside = Observation(name=FIRST_OBSERVED, errors=errors, trials=trials)
    return tilt_of(aside, examples=examples, failure=failure)


def files_of(name: str) -> list[Path]:
    """The counts of a case, of which others may have added subsets (name-100 from the 100th on)."""
    own = RESULTS / f"progressive-counts-{name}.json"
    more = sorted(RESULTS.glob(f"progressive-counts-{name}-[0-9]*.json"))
    return [file for file in (own, *more) if file.exists()]


class Counts:
    """What the networks of one case got wrong: arrays of (subsets, checkpoints)."""

    def __init__(self, name: str) -> None:
        found = [json.loads(f.read_text(encoding="utf-8"))["result"] for f in files_of(name)]
        self.case = {key: found[0][key] for key in ("data", "examples", "network", "steps", "rate")}
        total, parts, first = (found[0][key] for key in ("examples", "parts", "first"))
        self.ends = np.linspace(0, total, parts + 1).round().astype(int)[first:].tolist()
        self.next = _table([line for one in found for line in one["next"]])
        self.rest = _table([line for one in found for line in one["rest"]])
        self.subsets = len(self.rest)
        self.checkpoints = range(len(self.ends) - 1)
        #: Before the first test of a progressive bound, some parts choose its tilt.
        self.starts = range(ASIDE, len(self.ends) - 2)

    def share(self, number: int) -> float:
        return float(round(self.ends[number] / self.ends[-1], 3))

    def tests(self, number: int) -> int:
        """Examples after this checkpoint."""
        return int(self.ends[-1] - self.ends[number])

    def errors(self, start: int) -> np.ndarray:
        """Errors of all checkpoints from one on, each on the next part."""
        chosen: np.ndarray = self.next[:, start:].sum(axis=1)
        return chosen

    def in_two(self, start: int) -> np.ndarray:
        """Errors of two batches: a checkpoint on the next part, the one after it on all others."""
        return self.next[:, start] + self.rest[:, start + 1]

    def held_out(self, number: int, failure: float) -> np.ndarray:
        call = {"examples": self.tests(number), "failure": failure}
        return np.array([held_out_bound(errors=int(e), **call) for e in self.rest[:, number]])

    def progressive(self, start: int, failure: float) -> np.ndarray:
        tests, aside = self.tests(start), int(self.ends[start] - self.ends[start - ASIDE])
        before = self.next[:, start - ASIDE : start].sum(axis=1)
        return np.array(
            [
                progressive_bound(
                    errors=int(wrong),
                    trials=tests,
                    tilt=tilt(int(guess), aside, tests, failure),
                    failure=failure,
                )
                for wrong, guess in zip(self.errors(start), before, strict=True)
            ]
        )


def _table(lines: list[str]) -> np.ndarray:
    return np.array([[int(word) for word in line.split()] for line in lines])


def _difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    change = ours - theirs
    error = change.std(ddof=1) / np.sqrt(len(change))
    return {"difference": float(change.mean()), "standard_error": float(error)}


def tests(counts: Counts) -> dict[str, Any]:
    """Both bounds at the shares that are best on average, and the progressive one at one share."""
    rows = {}
    for failure in FAILURES:
        plain = {n: counts.held_out(n, failure) for n in counts.checkpoints}
        ours = {n: counts.progressive(n, failure) for n in counts.starts}
        share = min(plain, key=lambda n: plain[n].mean())
        best = min(ours, key=lambda n: ours[n].mean())
        fixed = min(ours, key=lambda n: abs(counts.share(n) - FIXED))
        rows[str(failure)] = {
            "held_out": float(plain[share].mean()),
            "held_out_share": counts.share(share),
            **{
                kind: {
                    "start": counts.share(n),
                    "mean": float(ours[n].mean()),
                    **_difference(ours[n], plain[share]),
                }
                for kind, n in (("progressive", best), ("fixed", fixed))
            },
        }
    return rows


def gates(counts: Counts) -> list[dict[str, Any]]:
    """The chance to certify, at thresholds where the best held-out gate passes now and then."""
    failure = FAILURES[0]
    risk = counts.rest[:, 0].mean() / counts.tests(0)
    rows = []
    for threshold in np.round(np.linspace(0.3, 1.6, 66) * risk, 4).tolist():
        plain = {
            n: counts.rest[:, n] <= exact_allowed(counts.tests(n), threshold, failure)
            for n in counts.checkpoints
        }
        many = {
            n: counts.errors(n) <= gate_allowed(counts.tests(n), threshold, failure)
            for n in counts.starts
        }
        two = {
            n: counts.in_two(n) <= gate_allowed(counts.tests(n), threshold, failure, 2)
            for n in counts.checkpoints[:-1]
        }
        theirs = max(plain, key=lambda n: plain[n].mean())
        rows.append(
            {
                "threshold": threshold,
                "held_out": float(plain[theirs].mean()),
                "held_out_share": counts.share(theirs),
                **{
                    kind: _gate(ours, plain[theirs], counts)
                    for kind, ours in (("many", many), ("two", two))
                },
            }
        )
    chosen = [min(rows, key=lambda row: abs(row["held_out"] - chance)) for chance in CHANCES]
    return [row for n, row in enumerate(chosen) if row not in chosen[:n]]


def _gate(ours: dict[int, np.ndarray], theirs: np.ndarray, counts: Counts) -> dict[str, Any]:
    best = max(ours, key=lambda n: ours[n].mean())
    return {
        "passes": float(ours[best].mean()),
        "start": counts.share(best),
        **_difference(ours[best].astype(float), theirs.astype(float)),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {}
    for name in CASES:
        if files_of(name):
            counts = Counts(name)
            found[name] = {**counts.case, "subsets": counts.subsets, "tests": tests(counts)}
            if counts.subsets >= 100:
                found[name]["gates"] = gates(counts)
    print(write_result("progressive-subsets", {"failure": FAILURES[0], "cases": found}, seed=0))


if __name__ == "__main__":
    main()
