"""The study of measures as a result file: every measure's rank correlations, and the time.

    python benchmarks/measures_study.py --large --data-dir DATA --device cuda
    python benchmarks/measures_study.py --name measures-study-digits

The same code as `nonvacuous reproduce measures-study`; a run that was stopped goes on. A folder
whose table is whole (brought from another machine, say) is only judged anew: nothing is trained.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from provenance import write_result

from nonvacuous.experiments.measures_study import StudyResult, run, usual_processes
from nonvacuous.experiments.measures_study_settings import StudySettings

NAME = "measures-study"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="2,592 networks on MNIST")
    parser.add_argument("--config", type=Path, default=None)
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("--name", default=NAME, help="of the result file")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    settings = StudySettings.large() if arguments.large else StudySettings()
    if arguments.config is not None:
        settings = StudySettings.from_toml(arguments.config)
    folder = arguments.runs or Path("runs") / arguments.name
    begun = time.perf_counter()

    def told(phase: str, done: int, total: int, message: str) -> None:
        if phase == "networks":
            print(f"{time.perf_counter() - begun:6.1f} s  {message}", flush=True)

    result = run(
        settings,
        folder,
        data_dir=arguments.data_dir,
        device=arguments.device,
        processes=arguments.processes or usual_processes(arguments.device),
        resume=True,
        progress=told,
    )
    record = result.to_dict() | {"seconds_of_this_call": time.perf_counter() - begun}
    print(write_result(arguments.name, record, seed=settings.seed), flush=True)
    show(result, folder)


def show(result: StudyResult, folder: Path) -> None:
    try:
        from nonvacuous.experiments.measures_study_pages import write_pages

        write_pages(result, folder)
    except ImportError as missing:
        # A machine lent for its GPU may have nothing to draw with.
        print(f"no page: {missing}", flush=True)
    else:
        print((folder / "table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
