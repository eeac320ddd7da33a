"""Table 1 of the randomization paper on CIFAR-10, with the published numbers beside ours.

    python benchmarks/zhang_table.py --data-dir DATA --device cuda --only inception
    python benchmarks/zhang_table.py --data-dir DATA --device cuda             # what is missing
    python benchmarks/zhang_table.py --data-dir DATA --rows 15 16 18 19 --name zhang-table-1-cpu

The same code as `nonvacuous reproduce zhang-table-1`. Networks that the run folder holds are not
trained again, so the table can be computed in several calls; each writes the result of all so far.

    python benchmarks/zhang_table.py --data-dir DATA --device cuda --probe inception-no-bn \\
        --rates 0.1 0.03 0.01 --epochs 4

only tries learning rates for a few epochs, on true and on random labels, and writes nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from provenance import write_result

from nonvacuous.experiments.zhang_cells import Cell
from nonvacuous.experiments.zhang_settings import ZhangSettings
from nonvacuous.experiments.zhang_store import CellStore
from nonvacuous.experiments.zhang_table import TableResult, chosen_rows, run
from nonvacuous.experiments.zhang_table_page import write_pages
from nonvacuous.experiments.zhang_training import train_cells

NAME = "zhang-table-1"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs") / NAME)
    parser.add_argument("--name", default=NAME, help="of the result file")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--config", type=Path, default=None)
    parser.add_argument("--only", nargs="*", default=(), help="kinds of networks")
    parser.add_argument("--rows", nargs="*", default=(), help="rows of the table")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="begin no kind of network after seconds"
    )
    parser.add_argument("--no-solo", action="store_true", help="do not time networks trained alone")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--probe", default=None, help="try learning rates of this kind")
    parser.add_argument("--rates", nargs="*", type=float, default=())
    parser.add_argument("--epochs", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    settings = (
        ZhangSettings() if arguments.config is None else ZhangSettings.from_toml(arguments.config)
    )
    if arguments.no_solo:
        settings = replace(settings, solo_epochs=0)
    if arguments.probe:
        probe(settings, arguments)
        return
    if arguments.epochs is not None:
        settings = settings.with_epochs(arguments.epochs)
    started = time.perf_counter()
    rows = chosen_rows(settings, only=arguments.only, numbers=arguments.rows)
    result: TableResult | None = None
    for kind in dict.fromkeys(row.cell.network for row in rows):
        if result is not None and time.perf_counter() - started > arguments.budget:
            print(f"out of time before {kind}; the same command goes on", flush=True)
            break
        result = run(
            settings,
            arguments.runs,
            rows=[row for row in rows if row.cell.network == kind],
            data_dir=arguments.data_dir,
            device=arguments.device,
            resume=True,
            progress=teller(started),
        )
        print(write_result(arguments.name, summary(result), seed=settings.seed), flush=True)
        try:
            write_pages(result, arguments.runs)
        except ImportError as missing:
            # A machine lent for its GPU may have nothing to draw with.
            print(f"no page: {missing}", flush=True)
    if result is not None:
        print((arguments.runs / "table.md").read_text(encoding="utf-8"))


def teller(started: float) -> Any:
    """A line every ten seconds and one for each finished network."""
    last = [0.0]

    def progress(phase: str, done: int, total: int, message: str) -> None:
        now = time.perf_counter()
        if phase == "networks" or now - last[0] > 10:
            last[0] = now
            print(f"{now - started:6.0f} s  {phase}: {done}/{total} {message}", flush=True)

    return progress


def summary(result: TableResult) -> dict[str, Any]:
    """The table without the course of every training."""
    record = result.to_dict()
    for row in record["rows"]:
        row["measurements"] = len(row.pop("history"))
    return record


def probe(settings: ZhangSettings, arguments: argparse.Namespace) -> None:
    """The loss after each epoch for some learning rates."""
    kind = arguments.probe
    for rate in arguments.rates:
        recipe = replace(
            settings.networks[kind],
            learning_rate=rate,
            epochs=arguments.epochs or 3,
            measure_every=1,
        )
        tried = replace(settings, networks={kind: recipe}, solo_epochs=0)
        with tempfile.TemporaryDirectory() as folder:
            store = CellStore(folder)
            store.open(tried, resume=False, force=False)
            cells = [Cell(kind), Cell(kind, "random-labels")]
            for found in train_cells(
                cells, tried, store, data_dir=arguments.data_dir, device=arguments.device
            ):
                losses = " ".join(f"{point.loss or float('nan'):.3f}" for point in found.history)
                print(
                    f"{kind} rate {rate:g}, {found.cell.corruption}: loss {losses}; "
                    f"{found.seconds / recipe.epochs:.2f} s per epoch and network",
                    flush=True,
                )


if __name__ == "__main__":
    main()
