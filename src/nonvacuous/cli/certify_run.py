"""The work behind ``nonvacuous certify``: everything that needs torch."""

from __future__ import annotations

import errno
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.certification.sparsity_settings import LEARNED, SparsitySettings
from nonvacuous.certify import certify
from nonvacuous.cli.certify_request import (
    INITIAL_SCALE,
    LEARNED_SCALE,
    Request,
    default_folder,
)
from nonvacuous.cli.exits import DONE, FAILED, TOO_RISKY, CommandError, UsageError, trouble_of
from nonvacuous.cli.folders import check_writable, holds_run, instead_of
from nonvacuous.cli.invocation import again
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.networks import (
    build_network,
    check_fits,
    default_model,
    is_built_in,
    load_weights,
)
from nonvacuous.cli.output import narration_console, write_certificate, write_error, write_next
from nonvacuous.cli.pages import write_page
from nonvacuous.cli.sources import load_data
from nonvacuous.cli.stopping import exit_code_of, stoppable
from nonvacuous.data import NAMES, Dataset, Examples
from nonvacuous.distributions.grids import DEFAULT_GRID, ScaleGrid
from nonvacuous.distributions.priors import Prior, at_initialization, zero_mean
from nonvacuous.errors import BadInput, FolderBusy, FolderTaken, Unsupported
from nonvacuous.report import rescaling
from nonvacuous.report.terminal import printable
from nonvacuous.risk.memory import is_out_of_memory

#: What --mode sparsity trains: one hidden layer, no biases.
PLAIN_CHAIN = "mlp:100/no-bias"


def run(request: Request) -> int:
    """Load, build, certify, print."""
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    device = _device(request.device)
    scales = _grid(request.prior_scales)
    dataset = load_data(request.data, request.data_dir)
    examples, test = _parts(request, dataset)
    sparse = request.mode == "sparsity"
    spec = request.model or (PLAIN_CHAIN if sparse else default_model(examples))
    folder = request.out or default_folder(request.data, spec, request.seed)
    asked = _asked(request, spec)
    check_writable(folder, resume=request.resume, force=request.force, asked=asked)
    init_seed = request.seed if request.init_seed is None else request.init_seed
    network = build_network(spec, examples, seed=init_seed)
    check_fits(network, examples, spec=spec)
    prior = _prior(request, scales, spec, examples, network)
    if request.weights is not None:
        load_weights(network, request.weights, flag="--weights", spec=spec)
    was_finished = request.resume and (folder / "certificate.json").is_file()
    try:
        with stoppable(), Narration() as narration:
            for line in _announcement(request, spec, network, examples, device, folder):
                narration.say(line)
            certificate = certify(
                network,
                examples,
                mode=request.mode,  # type: ignore[arg-type]
                prior=prior,
                predictor=request.predictor,  # type: ignore[arg-type]
                confidence=request.confidence,
                seed=request.seed,
                test=test,
                trials=request.trials,
                prior_fraction=request.prior_fraction,
                prior_scales=None if prior is not None else scales or _default_scale(request),
                recipe=request.recipe,
                attempts=request.attempts,
                pretrained=request.pretrained,
                unseen=request.unseen,
                rescaling=request.rescaling,
                quotients=request.quotients,
                sparsity=_sparsity(request) if sparse else None,
                twin=request.twin,
                architecture=spec,
                source=request.data,
                device=device,
                folder=folder,
                resume=request.resume,
                force=request.force,
                tensorboard=request.tensorboard,
                progress=narration,
            )
    except Unsupported as error:
        if not sparse:
            raise
        raise CommandError(str(error), next_command=_other_mode(request, spec)) from error
    except FolderTaken as error:
        busy = isinstance(error, FolderBusy)
        raise CommandError(str(error), next_command=instead_of(folder, busy=busy)) from error
    except KeyboardInterrupt as stop:
        if not holds_run(folder):
            write_error("stopped before anything was computed.", next_command=again())
            return exit_code_of(stop)
        write_error(
            f"stopped. {folder} keeps everything up to the last finished "
            f"{'stage' if sparse else 'epoch'}.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    except OSError as error:
        raise _folder_trouble(error, folder) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise CommandError(
            f"memory ran out on the {device.type}. Take a smaller --batch-size or --model; "
            f"{folder} keeps what was done."
        ) from error
    return _tell(certificate, folder, request, was_finished=was_finished)


def _device(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here (is the driver installed, and a build "
            "of torch with CUDA?).",
            next_command=again(replacing={"--device": "cpu"}),
        )
    return torch.device("cuda")


def _parts(request: Request, dataset: Dataset) -> tuple[Examples, Examples | None]:
    """The examples that the promise is about, and those that are only looked at at the end."""
    if request.mode != "holdout":
        return dataset.train, dataset.test
    if request.part == "train" or (
        request.part is None and dataset.test is None and request.unseen
    ):
        return dataset.train, None
    if dataset.test is not None:
        return dataset.test, None
    if request.part == "test":
        raise UsageError(f"--part test: {request.data} has no test part.")
    raise UsageError(
        f"--mode holdout: {request.data} has no test part, and a network that was trained on these "
        "examples would look better than it is. If it never saw them, say so with --unseen.",
        next_command=again("--unseen"),
    )


def _folder_trouble(error: OSError, folder: Path) -> CommandError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandError(
            f"the disk that holds {folder} is full. Free some space and go on: everything up to "
            "the last finished epoch is kept.",
            next_command=again("--resume", without=["--force"]),
        )
    return CommandError(
        f"the run folder {folder} cannot be used: {trouble_of(error)} Name a folder that you may "
        "write to with --out.",
        next_command=again(replacing={"--out": "FOLDER"}),
    )


def _grid(scales: tuple[float, ...]) -> ScaleGrid | None:
    try:
        return ScaleGrid(scales) if scales else None
    except BadInput as error:
        raise UsageError(f"--prior-scale: {error}.") from error


def _default_scale(request: Request) -> float:
    return LEARNED_SCALE if request.prior_fraction > 0 else INITIAL_SCALE


def _prior(
    request: Request,
    scales: ScaleGrid | None,
    spec: str,
    examples: Examples,
    initial: nn.Module,
) -> Prior | None:
    """The prior of given weights; a network that is trained here gets its own, or has none."""
    if request.mode != "post-hoc" and (request.mode != "sparsity" or request.weights is None):
        return None
    grid = scales or DEFAULT_GRID
    if request.prior == "zero":
        return zero_mean(grid=grid)
    if request.initial is not None:
        init_seed = request.seed if request.init_seed is None else request.init_seed
        initial = build_network(spec, examples, seed=init_seed)
        load_weights(initial, request.initial, flag="--initial", spec=spec)
    return at_initialization(initial, grid=grid)


def _sparsity(request: Request) -> SparsitySettings:
    """A network that is trained here gets the prior that was asked for."""
    if request.weights is not None:
        return request.sparsity
    return replace(request.sparsity, prior=request.prior or LEARNED)


def _asked(request: Request, spec: str) -> dict[str, Any]:
    """What config.toml will say of this call, as far as it is known before the data are split."""
    return {
        "mode": request.mode,
        "source": request.data,
        "architecture": spec,
        "predictor": request.predictor,
        "confidence": request.confidence,
        "seed": request.seed,
        "trials": request.trials,
        "attempts": request.attempts,
        "rescaling": request.rescaling,
        "pretrained": request.pretrained,
        "twin": request.twin,
        "recipe": request.recipe.to_dict(),
        "sparsity": _sparsity(request).to_dict() if request.mode == "sparsity" else None,
    }


def _announcement(
    request: Request,
    spec: str,
    network: nn.Module,
    examples: Examples,
    device: torch.device,
    folder: Path,
) -> list[str]:
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return [
        f"{spec} ({parameters:,} parameters) on {examples.name} ({len(examples):,} examples, "
        f"{examples.classes} classes)",
        f"mode {request.mode}, confidence {request.confidence:g}, seed {request.seed}, "
        f"device {device.type}, run folder {folder}",
    ]


def _tell(certificate: Certificate, folder: Path, request: Request, *, was_finished: bool) -> int:
    write_certificate(certificate, as_json=request.json)
    sys.stdout.flush()
    console = narration_console()
    if was_finished:
        console.print("This run was finished before: nothing was computed again.", soft_wrap=True)
    saved = rescaling.told(certificate)
    if saved:
        console.print(printable(saved), soft_wrap=True)
    console.print(f"Run folder: {printable(str(folder))}", soft_wrap=True)
    if request.report:
        page = write_page(certificate, folder)
        console.print(f"Report:     {printable(str(page))}", soft_wrap=True)
    code = _verdict(certificate, request, folder)
    if code == DONE:
        write_next(shlex.join(_verification(request, folder)))
    return code


def _other_mode(request: Request, spec: str) -> str:
    """The same network in a mode that takes every network."""
    words = ["nonvacuous", "certify", "--data", request.data, "--model", spec]
    if request.data_dir is not None:
        words += ["--data-dir", str(request.data_dir)]
    if request.weights is not None:
        words += ["--weights", str(request.weights)]
        given = ["--initial", str(request.initial)] if request.initial else ["--prior", "zero"]
        words += given
    return shlex.join([*words, "--seed", str(request.seed)])


def _verification(request: Request, folder: Path) -> list[str]:
    """The command that checks this run in full: what is not built in must be named again."""
    words = ["nonvacuous", "verify", str(folder)]
    if request.data not in NAMES:
        words += ["--data", request.data]
    elif request.data_dir is not None and request.data != "digits":
        words += ["--data-dir", str(request.data_dir)]
    if request.model is not None and not is_built_in(request.model):
        words += ["--model", request.model]
    return words


def _verdict(certificate: Certificate, request: Request, folder: Path) -> int:
    """The exit code, with the reason where it is not 0."""
    limit, refused = request.max_risk, certificate.status == "refused"
    doubtful = certificate.status == "conditional" and not request.allow_conditional
    if not refused and (
        limit is None
        or (certificate.risk_upper <= limit and not certificate.is_vacuous and not doubtful)
    ):
        return DONE
    if doubtful:
        reason = "the certificate is conditional, for the reason above (--allow-conditional)"
    elif refused:
        reason = "the certificate is refused: there is no promise, for the reason above"
    elif certificate.is_vacuous:
        reason = f"the certificate is vacuous: {certificate.unshown}"
    else:
        reason = f"the certificate promises {shown_up(certificate.risk_upper)} only"
    gate = "" if limit is None else f"; --max-risk asks for at most {limit:g}"
    write_error(f"{reason}{gate}.", next_command=shlex.join(["nonvacuous", "report", str(folder)]))
    return FAILED if limit is None else TOO_RISKY
