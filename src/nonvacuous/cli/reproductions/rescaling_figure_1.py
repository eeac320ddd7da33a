"""``nonvacuous reproduce rescaling-figure-1``: ten networks before and after rescaling."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import DONE, CommandError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.output import (
    narration_console,
    result_console,
    write_error,
    write_json,
    write_next,
)
from nonvacuous.cli.reproductions.running import chosen_settings, folder_of, naming

if TYPE_CHECKING:
    from nonvacuous.cli.narration import Narration
    from nonvacuous.experiments.rescaling_results import FigureResult
    from nonvacuous.experiments.rescaling_settings import RescalingSettings

NAME = "rescaling-figure-1"


def rescaling_figure_1(
    *,
    out: Path | None = None,
    only: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)
    ] = (),
    quick: Annotated[bool, SWITCH] = False,
    cifar: Annotated[bool, SWITCH] = False,
    config: Path | None = None,
    data_dir: Path | None = None,
    seed: OptionalWholeNumber = None,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: OptionalWholeNumber = None,
    resume: Annotated[bool, SWITCH] = False,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Compute the figure again and put the published numbers beside ours.

    Needs MNIST and some ten minutes on one processor core.

    Parameters
    ----------
    out
        The folder for results.json, table.md, figure.svg and the certificates;
        runs/rescaling-figure-1 by default.
    only
        Some of the networks, such as 784-32-10 784-64-32-10.
    quick
        The same steps on the small embedded digits, in seconds: nothing to compare, but everything
        can be seen to work.
    cifar
        Also the figure's right side: a convolutional network on CIFAR-10. The paper does not say
        which; ours has as many weights as its numbers suggest. Needs a GPU (--device cuda), and a
        minute there.
    config
        TOML file with other settings; experiments/rescaling-figure-1.toml holds the default ones.
    data_dir
        Folder that contains mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to compute.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped: networks that are finished are not computed again.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments.rescaling_settings import RescalingSettings

    settings = chosen_settings(RescalingSettings, quick=quick, config=config, seed=seed)
    if only:
        with naming("--only"):
            # The digits have 64 inputs.
            settings = settings.only(only, inputs=64 if quick else 784)
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)
    return _run(
        settings,
        folder,
        quick=quick,
        cifar=cifar,
        data_dir=data_dir,
        device=device,
        threads=threads,
        resume=resume,
        force=force,
        as_json=json,
    )


def _run(
    settings: RescalingSettings,
    folder: Path,
    *,
    quick: bool,
    cifar: bool,
    data_dir: Path | None,
    device: str,
    threads: int | None,
    resume: bool,
    force: bool,
    as_json: bool,
) -> int:
    import torch

    from nonvacuous.cli.narration import Narration
    from nonvacuous.cli.stopping import exit_code_of, stoppable
    from nonvacuous.experiments.rescaling_cifar import CnnSettings, cnn_table, run_cnn
    from nonvacuous.experiments.rescaling_figure import run
    from nonvacuous.experiments.rescaling_pages import write_pages

    if device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    if threads is not None:
        torch.set_num_threads(threads)
    options: dict[str, Any] = {"data_dir": data_dir, "device": device}
    convolutional = None
    try:
        with stoppable(), Narration() as narration:
            narration.say(
                f"{len(settings.networks)} networks on {settings.data}, seed {settings.seed}, "
                f"device {device}, folder {folder}"
            )
            progress = _progress(narration)
            result = run(settings, folder, **options, resume=resume, force=force, progress=progress)
            if cifar:
                chosen = CnnSettings.quick() if quick else CnnSettings(seed=settings.seed)
                convolutional = run_cnn(chosen, folder, **options, resume=resume, progress=progress)
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every network that is finished.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    paths = write_pages(result, folder)
    record = result.to_dict()
    if convolutional is not None:
        from dataclasses import asdict

        record["convolutional"] = asdict(convolutional)
    if as_json:
        write_json(record)
    else:
        _write_text(result)
        if convolutional is not None:
            sys.stdout.write("\n" + cnn_table(convolutional))
    sys.stdout.flush()
    console = narration_console()
    if convolutional is not None:
        paths["cnn.json"] = folder / "cnn.json"
    for path in paths.values():
        console.print(f"Written: {path}", soft_wrap=True)
    first = folder / result.networks[0].ours.certificate
    write_next(f"nonvacuous verify {first}")
    return DONE


def _write_text(result: FigureResult) -> None:
    from rich.table import Table

    from nonvacuous.experiments.rescaling_pages import verdict

    console = result_console()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("network", no_wrap=True)
    for heading in ("KL ratio", "published", "bounds", "published", "certificate"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in result.networks:
        shown = entry.published
        table.add_row(
            entry.name,
            f"{entry.paper.kl_ratio:.2f}",
            "-" if shown is None else f"{shown.kl_ratio:.2f}",
            f"{entry.paper.bound:.2f} > {entry.paper.rescaled:.2f}",
            "-" if shown is None else f"{shown.bound:.2f} > {shown.rescaled:.2f}",
            f"{entry.ours.risk_upper:.4f}",
        )
    console.print(table)
    console.print(
        "bounds: the paper's formula, before and after rescaling. certificate: the same weights, "
        "our recipe, everything paid for.",
        soft_wrap=True,
    )
    console.print(verdict(result), soft_wrap=True)


def _progress(narration: Narration) -> Any:
    """Bars as usual, and a line that stays for each finished network."""

    def progress(phase: str, done: int, total: int, message: str) -> None:
        narration(phase, done, total, message)
        if phase == "networks":
            narration.say(message)

    return progress
