"""The certificates of the sparsity study on MNIST, as a result with provenance.

python benchmarks/sparsity_mnist.py                          # everything, about an hour
python benchmarks/sparsity_mnist.py --only goals depth       # some parts; the rest is kept
python benchmarks/sparsity_mnist.py --device cuda            # everything, some minutes
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from provenance import write_result

from nonvacuous.experiments.sparsity_mnist import run
from nonvacuous.experiments.sparsity_pages import write_pages
from nonvacuous.experiments.sparsity_settings import SparsitySettings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/sparsity-mnist"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = SparsitySettings()

    def tell(phase: str, done: int, total: int, message: str) -> None:
        if phase == "networks":
            print(f"{done}/{total} {message}", file=sys.stderr, flush=True)

    result = run(
        settings,
        arguments.folder,
        only=arguments.only,
        resume=True,
        device=arguments.device,
        progress=tell,
    )
    write_pages(result, arguments.folder, command="nonvacuous reproduce sparsity-mnist")
    record = result.to_dict() | {"device": arguments.device}
    for entry in record["cases"]:
        # Times of a shared machine say nothing; benchmarks/sparsity.py measures them.
        del entry["training_seconds"], entry["certificate_seconds"]
    write_result("sparsity-mnist", record, seed=settings.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
