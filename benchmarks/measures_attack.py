"""The rescaling attack on a trained MNIST perceptron and convolutional network.

python benchmarks/measures_attack.py                  # less than five minutes of one thread

Each network is trained on the first examples of MNIST until it has fitted them, and every measure
is taken in 20 random gauges of the same function.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from provenance import write_result

from nonvacuous.studies.measures import STUDY, MeasuresSettings
from nonvacuous.study.running import Surroundings, run_study

NETWORKS = ("mlp:256,256", "cnn:6,12")


def main() -> None:
    """Attack both networks and write the spreads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--gauges", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir", type=Path, default=None)
    flags = parser.parse_args()
    networks = []
    for model in NETWORKS:
        start = time.process_time()
        settings = MeasuresSettings(
            data=flags.data, model=model, examples=flags.examples, attack=True,
            gauges=flags.gauges, seed=flags.seed,
        )  # fmt: skip
        with TemporaryDirectory() as folder:
            around = Surroundings(data_dir=flags.data_dir)
            record = run_study(STUDY, settings, folder, surroundings=around).record
        seconds = time.process_time() - start
        networks.append(
            {
                "model": model,
                "trained": record["trained"],
                "seconds_per_gauge": seconds / (flags.gauges + 1),
                "attack": record["attack"],
            }
        )
    write_result(
        "measures-attack",
        {"data": flags.data, "examples": flags.examples, "networks": networks},
        seed=flags.seed,
    )


if __name__ == "__main__":
    main()
