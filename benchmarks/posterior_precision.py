"""Is a posterior as good whose large training steps were computed in bfloat16?

    python benchmarks/posterior_precision.py --device cuda --data mnist

Certificates without a learned prior, trained with and without rounding, on one GPU: what they
promise, with the same seeds.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from provenance import write_result

import nonvacuous as nv
from nonvacuous.training import posterior

NETWORK = "cnn:32,64,128"
METHOD = nv.Posterior(
    prior_fraction=0.0,
    prior_scale=(0.1,),
    twin=False,
    trials=200_000,
    training=nv.PosteriorTraining(
        epochs=60,
        batch_size=256,
        learning_rate=0.002,
        scale_learning_rate=0.02,
        optimizer="adam",
        kl_penalty=0.35,
    ),
)


def certify(data: Any, seed: int, device: str) -> dict[str, float]:
    shape, classes = data.train.example_shape, data.train.classes
    model = nv.models.build(NETWORK, shape, classes, seed=seed).to(device)
    certificate = nv.certify(model, data.train, method=METHOD, seed=seed)
    assert certificate.complexity is not None
    return {
        "risk_upper": certificate.risk_upper,
        "empirical_upper": certificate.empirical.risk_upper,
        "kl_nats": certificate.complexity.kl_nats,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    data = nv.data.load(arguments.data, data_dir=arguments.data_dir)
    for seed in arguments.seeds:
        row: dict[str, Any] = {"seed": seed}
        for name, worth in (("bfloat16", 0), ("float32", 1 << 62)):
            posterior._WORTH_HALVING = worth
            row[name] = certify(data, seed, arguments.device)
        print(json.dumps(row), flush=True)
        result = {"network": NETWORK, "method": METHOD.record(), "seeds": [row]}
        # One file a seed: seeds may be computed side by side.
        write_result(f"posterior-precision-{arguments.data}-{seed}", result, seed=seed)


if __name__ == "__main__":
    main()
