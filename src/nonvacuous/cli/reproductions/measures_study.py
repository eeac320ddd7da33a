"""``nonvacuous reproduce measures-study``: which measures foretell the gap?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.reproductions.running import (
    chosen_settings,
    folder_of,
    print_tables,
    run_and_show,
)

if TYPE_CHECKING:
    from nonvacuous.experiments.measures_study import StudyResult
    from nonvacuous.experiments.measures_study_settings import StudySettings
    from nonvacuous.progress import Progress

NAME = "measures-study"


def measures_study(
    *,
    out: Path | None = None,
    large: Annotated[bool, SWITCH] = False,
    quick: Annotated[bool, SWITCH] = False,
    config: Path | None = None,
    data_dir: Path | None = None,
    seed: OptionalWholeNumber = None,
    device: Literal["cpu", "cuda"] = "cpu",
    processes: OptionalWholeNumber = None,
    threads: OptionalWholeNumber = None,
    resume: Annotated[bool, SWITCH] = False,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Train a grid of networks to the same loss and ask every measure which of them generalize.

    Without flags: 256 perceptrons on the embedded digits, in some minutes on two processor cores.

    Parameters
    ----------
    out
        The folder for networks.jsonl, results.json, table.md and report.html; runs/measures-study
        by default.
    large
        2,592 perceptrons on MNIST at 14 by 14 pixels; for a GPU.
    quick
        A few networks and the cheap measures, in seconds.
    config
        TOML file with other settings; experiments/measures-study.toml holds the default ones and
        experiments/measures-study-large.toml those of --large.
    data_dir
        Folder that contains mnist/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to train. Measures are computed on processors.
    processes
        For measures and statistics; as many as there are cores by default.
    threads
        Processor threads for torch in the process that trains; its own choice by default.
    resume
        Go on with a run that was stopped. Where all networks are in the table, only the statistics
        are computed again.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments import measures_study as study
    from nonvacuous.experiments.measures_study_pages import (
        short_table,
        times_table,
        write_pages,
    )

    settings = _settings(large=large, quick=quick, config=config, seed=seed)
    if processes is not None and processes < 1:
        raise UsageError(f"--processes is {processes}; give at least 1.")
    folder = folder_of(
        f"{NAME}-large" if large else NAME, out, quick=quick, resume=resume, force=force
    )

    def compute(progress: Progress) -> StudyResult:
        return study.run(
            settings,
            folder,
            data_dir=data_dir,
            device=device,
            processes=processes or study.usual_processes(device),
            resume=resume,
            force=force,
            progress=progress,
        )

    return run_and_show(
        compute,
        write_pages,
        lambda result: print_tables(short_table(result), times_table(result)),
        title=f"{len(settings.cells()):,} networks on {settings.data}, seed {settings.seed}",
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command="nonvacuous measures --help",
    )


def _settings(*, large: bool, quick: bool, config: Path | None, seed: int | None) -> StudySettings:
    from dataclasses import replace

    from nonvacuous.experiments.measures_study_settings import StudySettings

    if not large:
        return chosen_settings(StudySettings, quick=quick, config=config, seed=seed)
    if quick or config is not None:
        raise UsageError("--large has settings of its own: leave out --quick and --config.")
    settings = StudySettings.large()
    return settings if seed is None else replace(settings, seed=seed)
