"""Processor seconds of a post-hoc certificate: this version against another one.

    python benchmarks/posthoc_speed.py --baseline OTHER/src

Both certify the same trained networks, each version in processes of its own that take turns. The
first certificate of a process is made twice, and only the second one counts: it loads libraries.
Every one gets new tensors, so that nothing is remembered from the one before. One thread, time of
the processor, the least of all rounds: what else the machine does counts little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Network, data set, examples (None: all), center of the prior.
CASES = (
    ("mlp:100,100", "digits", None, "initialization"),
    ("mlp:100,100", "digits", None, "zero"),
    ("cnn:8,16", "digits", None, "initialization"),
    ("mlp:100,100", "mnist", 10_000, "initialization"),
)


def trained(network: str, data: str, count: int | None) -> tuple[Any, Any, Any]:
    """The network before and after a few epochs of Adam, and the examples: plain torch."""
    import torch
    from torch.nn.functional import cross_entropy

    from nonvacuous.data import load
    from nonvacuous.models import build

    train = load(data).train
    train = train.subset(range(count)) if count else train
    shape, classes = tuple(train.inputs.shape[1:]), 10
    before, model = (build(network, shape, classes, seed=0) for _ in range(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10 if count is None else 3):
        for batch in torch.randperm(len(train), generator=generator).split(64):
            optimizer.zero_grad()
            cross_entropy(model(train.inputs[batch]), train.labels[batch]).backward()
            optimizer.step()
    return before.eval(), model.eval(), train


def certificates() -> dict[str, Any]:
    import nonvacuous as nv

    results: dict[str, Any] = {}
    for network, data, count, center in (CASES[0], *CASES):
        before, model, train = trained(network, data, count)
        prior = nv.priors.zero_mean() if center == "zero" else nv.priors.at_initialization(before)
        started = time.process_time()
        if hasattr(nv, "PostHoc"):
            method = nv.PostHoc(prior=prior, twin=False)
            certificate = nv.certify(model, train, method=method, seed=0)
        else:  # before there were methods
            certificate = nv.certify(model, train, mode="post-hoc", prior=prior, twin=False, seed=0)
        name = f"{network} on {data}, prior at {center}"
        seconds = time.process_time() - started
        results[name] = {"seconds": seconds, "risk_upper": certificate.risk_upper}
    return results


def in_process(source: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child"]
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    results: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--baseline", help="the src folder of another version")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each version")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(certificates()))
        return
    from provenance import write_result

    own = str(Path(__file__).resolve().parents[1] / "src")
    sys.path.insert(0, own)
    sources = {"now": own, "baseline": arguments.baseline}
    runs: dict[str, list[dict[str, Any]]] = {version: [] for version in sources}
    for _ in range(arguments.rounds):
        for version, source in sources.items():
            runs[version].append(in_process(source))
    rows = {}
    for name in runs["now"][0]:
        seconds = {
            version: min(run[name]["seconds"] for run in each) for version, each in runs.items()
        }
        rows[name] = {
            "times_faster": seconds["baseline"] / seconds["now"],
            "seconds": seconds["now"],
            "baseline_seconds": seconds["baseline"],
            "risk_upper": runs["now"][0][name]["risk_upper"],
            "baseline_risk_upper": runs["baseline"][0][name]["risk_upper"],
        }
    print(json.dumps(rows, indent=2))
    write_result("posthoc-speed", {"cases": rows}, seed=0)


if __name__ == "__main__":
    main()
