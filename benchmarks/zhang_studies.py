"""Figure 1 of the randomization paper and its regularizers, as result files.

    python benchmarks/zhang_studies.py figure --data-dir DATA --device cuda \\
        --table runs/zhang-table-1
    python benchmarks/zhang_studies.py regularization --data-dir DATA --device cuda \\
        --table runs/zhang-table-1

The same code as `nonvacuous reproduce zhang-figure-1` and `zhang-regularization`; a run that was
stopped goes on, and networks that the table has trained are taken from there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from provenance import write_result
from zhang_table import teller

from nonvacuous.experiments import (
    zhang_figure,
    zhang_figure_page,
    zhang_regularization,
    zhang_regularization_page,
)
from nonvacuous.experiments.zhang_settings import FigureSettings, ZhangSettings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("figure", "regularization"))
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("--name", default=None, help="of the result file")
    parser.add_argument("--table", type=Path, default=None, help="the run folder of the table")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--config", type=Path, default=None)
    parser.add_argument("--only", nargs="*", default=(), help="kinds of networks")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    name = {"figure": "zhang-figure-1", "regularization": "zhang-regularization"}[arguments.study]
    folder = arguments.runs or Path("runs") / name
    options: dict[str, Any] = {
        "reuse": arguments.table,
        "data_dir": arguments.data_dir,
        "device": arguments.device,
        "resume": True,
        "progress": teller(time.perf_counter()),
    }
    record, seed, write_pages = (figure if arguments.study == "figure" else regularization)(
        folder, arguments, options
    )
    print(write_result(arguments.name or name, record, seed=seed), flush=True)
    try:
        write_pages()
    except ImportError as missing:
        # A machine lent for its GPU may have nothing to draw with.
        print(f"no page: {missing}", flush=True)
    else:
        print((folder / "table.md").read_text(encoding="utf-8"))


def figure(
    folder: Path, arguments: argparse.Namespace, options: dict[str, Any]
) -> tuple[dict[str, Any], int, Callable[[], object]]:
    settings = (
        FigureSettings() if arguments.config is None else FigureSettings.from_toml(arguments.config)
    )
    if arguments.only:
        settings = replace(
            settings, networks={name: settings.networks[name] for name in arguments.only}
        )
    result = zhang_figure.run(settings, folder, **options)
    record = result.to_dict()
    for curve in record["curves"].values():
        # Loss by step is the picture; everything else about these networks is in the sweep.
        curve["loss"] = [[point["steps"], point["loss"]] for point in curve.pop("history")]
    return record, settings.seed, lambda: zhang_figure_page.write_pages(result, folder)


def regularization(
    folder: Path, arguments: argparse.Namespace, options: dict[str, Any]
) -> tuple[dict[str, Any], int, Callable[[], object]]:
    settings = (
        ZhangSettings() if arguments.config is None else ZhangSettings.from_toml(arguments.config)
    )
    settings = replace(settings, solo_epochs=0)
    networks = tuple(arguments.only) or None
    result = zhang_regularization.run(settings, folder, networks=networks, **options)
    record = result.to_dict()
    del record["networks"]
    return record, settings.seed, lambda: zhang_regularization_page.write_pages(result, folder)


if __name__ == "__main__":
    main()
