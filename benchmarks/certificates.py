"""Certificates on MNIST and Fashion-MNIST, each beside its held-out twin.

    python benchmarks/certificates.py --device cuda --data-dir DATA --only mnist-free-cnn ...

Every entry of CASES was written down before its certificate was computed, and shares the
confidence with ATTEMPTS certificates on the same bound examples: trying a handful of settings and
quoting the best of them is then honest.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from provenance import write_result

from nonvacuous.certify import certify
from nonvacuous.data import load
from nonvacuous.methods import Posterior
from nonvacuous.models import build
from nonvacuous.settings import Run
from nonvacuous.training_settings import PlainTraining, PosteriorTraining

ATTEMPTS = 20


@dataclass(frozen=True)
class Case:
    data: str
    architecture: str
    prior_fraction: float
    prior_scale: float
    plain: PlainTraining = field(default_factory=PlainTraining)
    posterior: PosteriorTraining = field(default_factory=PosteriorTraining)
    published: float | None = None
    goal: float | None = None


_PLAIN = PlainTraining(epochs=30, batch_size=128, learning_rate=0.05, weight_decay=5e-4)


def _free(kl_penalty: float) -> PosteriorTraining:
    return PosteriorTraining(
        objective="quadratic",
        epochs=80,
        batch_size=256,
        learning_rate=0.002,
        scale_learning_rate=0.02,
        optimizer="adam",
        kl_penalty=kl_penalty,
        minimum_probability=1e-4,
    )


_LEARNED = PosteriorTraining(
    objective="quadratic", epochs=10, batch_size=256, learning_rate=0.001, minimum_probability=1e-4
)

CASES = {
    "mnist-learned-mlp": Case(
        "mnist", "mlp:600,600,600", 0.5, 0.01, _PLAIN, _LEARNED, published=0.0279, goal=0.030
    ),
    "mnist-learned-cnn": Case(
        "mnist", "cnn:32,64,128/256", 0.5, 0.01, _PLAIN, _LEARNED, published=0.0155, goal=0.016
    ),
    "mnist-free-cnn": Case(
        "mnist", "cnn:32,64,128", 0.0, 0.1, _PLAIN, _free(0.35), published=0.3155, goal=0.15
    ),
    "fashion-free-cnn": Case(
        "fashion-mnist", "cnn:32,64,128", 0.0, 0.1, _PLAIN, _free(0.35), published=0.448, goal=0.31
    ),
    "fashion-free-cnn-heavy": Case(
        "fashion-mnist", "cnn:32,64,128", 0.0, 0.1, _PLAIN, _free(0.7), published=0.448, goal=0.31
    ),
    "fashion-learned-cnn": Case("fashion-mnist", "cnn:32,64,128/256", 0.5, 0.01, _PLAIN, _LEARNED),
}


def run(name: str, case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    data = load(case.data, data_dir=arguments.data_dir)
    model = build(case.architecture, data.train.example_shape, data.train.classes, seed=1)
    started = time.perf_counter()
    certificate = certify(
        model.to(arguments.device),
        data.train,
        method=Posterior(
            trials=arguments.trials,
            prior_fraction=case.prior_fraction,
            prior_scale=(case.prior_scale,),
            plain_training=case.plain,
            training=case.posterior,
        ),
        test=data.test,
        confidence=0.95,
        seed=arguments.seed,
        attempts=ATTEMPTS,
        folder=Run(
            folder=None if arguments.runs is None else Path(arguments.runs) / name,
            architecture=case.architecture,
            source=case.data,
        ),
        force=True,
    )
    seconds = time.perf_counter() - started
    print(f"{name} ({seconds:.0f} s)\n{certificate}\n", flush=True)
    twin = certificate.held_out_twin
    return {
        "case": {
            **case.__dict__,
            "plain": case.plain.record(),
            "posterior": case.posterior.record(),
        },
        "risk_upper": certificate.risk_upper,
        "status": certificate.status,
        "held_out_twin": None if twin is None else twin.risk_upper,
        "examples": certificate.data.bound.examples,
        "kl_nats": certificate.complexity.kl_nats if certificate.complexity else None,
        "empirical_upper": certificate.empirical.risk_upper,
        "observed": {o.name: o.errors / o.trials for o in certificate.observed},
        "attempts_paid": ATTEMPTS,
        "meets_goal": None if case.goal is None else certificate.risk_upper <= case.goal,
        "seconds": seconds if arguments.device == "cuda" else None,
        "certificate": json.loads(certificate.model_dump_json()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--runs", default=None, help="keep run folders here")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--name", default="certificates")
    arguments = parser.parse_args()
    results = {name: run(name, CASES[name], arguments) for name in arguments.only}
    write_result(arguments.name, {"cases": results}, seed=arguments.seed)


if __name__ == "__main__":
    main()
