"""Cost of sparsity certificates against width, depth and number of examples.

python benchmarks/sparsity.py                    # about ten minutes of one thread
python benchmarks/sparsity.py --only case --threads 2 --name sparsity-two-cores    # its goal
python benchmarks/sparsity.py --device cuda --name sparsity-cuda

The networks are random ones near a random prior: the cost depends on shapes, not on what a network
has learned. Every case is the full search on a subset, then the certificate on all n examples, in
processor seconds of one thread; two cores are not slower. On a GPU seconds of the clock count, with
moving the examples there, and the same networks are certified on that machine's processor for a
ratio. Widths and depths are compared at fewer examples, as ratios against the same network of width
100 with two hidden layers.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from provenance import write_result

from nonvacuous.data import Examples
from nonvacuous.sparsity import SparseSettings, certify_sparse
from nonvacuous.sparsity.training import initial_chain, unit_norm
from nonvacuous.sparsity.weights import Layers

#: Three layers, width 100, n = 57,000: the case that must take at most GOAL seconds on two cores.
REFERENCE = {"hidden": 2, "width": 100, "examples": 57_000, "subset": 3_000, "passes": 4}
SMALLER = {"hidden": 2, "width": 100, "examples": 6_000, "subset": 600, "passes": 1}
GOAL = 10.0
WIDTHS = (100, 200, 500, 1000, 2000)
DEPTHS = (1, 2, 4, 9, 19)
#: What a GPU is compared with the processor beside it on.
BESIDE = (REFERENCE, REFERENCE | {"width": 1000, "subset": 1_000, "passes": 1})
PARTS = ("case", "theorems", "width", "depth", "size", "beside")
SIZES = (1_000, 3_000, 10_000, 30_000, 57_000)


def problem(
    hidden: int, width: int, examples: int, *, seed: int
) -> tuple[Layers, Layers, Examples]:
    """A prior, a network a short way from it, and points labeled mostly as the prior says."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (784, *[width] * hidden, 10)
    prior = initial_chain(sizes, seed=seed, start="identity", spread=0.05)
    network = [
        matrix + 1e-4 * torch.randn(matrix.shape, generator=generator) * matrix.std()
        for matrix in prior
    ]
    inputs = torch.rand(examples, 784, generator=generator)
    # A coarse pattern for every class, so that the random network has margins to speak of.
    labels = torch.randint(10, (examples,), generator=generator)
    patterns = torch.rand(10, 784, generator=generator) * 3.0
    points = unit_norm(
        Examples(
            inputs + patterns[labels],
            labels,
            tuple(str(digit) for digit in range(10)),
            "patterns",
        )
    )
    hidden_values = points.inputs
    for matrix in prior[:-1]:
        hidden_values = torch.relu(hidden_values @ matrix.T)
    labels = (hidden_values @ prior[-1].T).argmax(1)
    labeled = Examples(points.inputs, labels, points.class_names, points.name)
    return Layers.of(network), Layers.of(prior), labeled


def measure(
    hidden: int,
    width: int,
    examples: int,
    subset: int,
    passes: int,
    *,
    theorem: str,
    variant: str,
    seed: int,
    device: str,
) -> dict[str, Any]:
    layers, prior, points = problem(hidden, width, examples, seed=seed)
    wall, cpu = time.perf_counter(), time.process_time()
    certificate = certify_sparse(
        layers,
        prior,
        points,
        SparseSettings(theorem=theorem, variant=variant, subset=subset, passes=passes),
        seed=seed,
        device=device,
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {
        "hidden": hidden,
        "width": width,
        "examples": examples,
        "subset": subset,
        "passes": passes,
        "theorem": theorem,
        "variant": variant,
        "device": device,
        "seconds": wall,
        "processor_seconds": cpu,
        "risk_upper": certificate.risk_upper,
    }
    print(found, file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--theorem", default="E")
    parser.add_argument("--variant", default="sparse")
    parser.add_argument("--only", nargs="*", default=PARTS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--name", default="sparsity", help="of the result's file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    common = {
        "theorem": arguments.theorem,
        "variant": arguments.variant,
        "seed": arguments.seed,
        "device": arguments.device,
    }
    unit = "processor_seconds" if arguments.device == "cpu" else "seconds"
    measure(
        1, 20, 1_000, 500, 1, **common
    )  # whatever is loaded on first use is not part of any time
    grids: dict[str, list[dict[str, int]]] = {
        "width": [SMALLER | {"width": width} for width in WIDTHS],
        "depth": [SMALLER | {"hidden": hidden} for hidden in DEPTHS],
        "size": [REFERENCE | {"examples": examples} for examples in SIZES],
    }
    reference = measure(**REFERENCE, **common)
    result: dict[str, Any] = {
        "case": reference | {"goal_seconds": GOAL, "threads": arguments.threads}
    }
    for name, cases in grids.items():
        if name in arguments.only:
            found = [measure(**case, **common) for case in cases]
            # The entry that all grids share is the unit of its grid.
            base = next(
                entry[unit]
                for entry, case in zip(found, cases, strict=True)
                if case in (SMALLER, REFERENCE)
            )
            result[name] = [entry | {"ratio": entry[unit] / base} for entry in found]
    if "theorems" in arguments.only:
        result["theorems"] = [
            measure(**REFERENCE, **(common | {"theorem": theorem, "variant": variant}))
            for theorem in ("A", "D", "E", "F")
            for variant in ("dense", "sparse")
        ]
    if arguments.device != "cpu" and "beside" in arguments.only:
        result["beside"] = [
            measure(**case, **(common | {"device": device}))
            for case in BESIDE
            for device in ("cpu", arguments.device)
        ]
    write_result(arguments.name, result, seed=arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
