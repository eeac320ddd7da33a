"""Figure 1 of "Can Rescaling Invariances Help?" with the published numbers beside ours.

    python benchmarks/rescaling_figure.py --data-dir DATA --runs runs/rescaling-figure-1

The same code as `nonvacuous reproduce rescaling-figure-1`; a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from provenance import write_result

from nonvacuous.experiments.rescaling_figure import run
from nonvacuous.experiments.rescaling_pages import write_pages
from nonvacuous.experiments.rescaling_settings import RescalingSettings

NAME = "rescaling-figure-1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs") / NAME)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", default=())
    arguments = parser.parse_args()
    settings = RescalingSettings()
    if arguments.only:
        settings = settings.only(tuple(arguments.only))
    started = time.perf_counter()
    before = len(list(arguments.runs.glob("networks/*.json")))

    def progress(phase: str, done: int, total: int, message: str) -> None:
        if phase == "networks":
            print(f"{time.perf_counter() - started:6.0f} s  {message}", flush=True)

    result = run(
        settings,
        arguments.runs,
        data_dir=arguments.data_dir,
        device=arguments.device,
        resume=True,
        progress=progress,
    )
    write_pages(result, arguments.runs)
    # Seconds of a run that found some networks finished would mean nothing.
    seconds = time.perf_counter() - started if before == 0 else None
    record = {**result.to_dict(), "seconds": seconds}
    print(write_result(NAME, record, seed=settings.seed))


if __name__ == "__main__":
    main()
