"""The work behind ``nonvacuous certify``: everything that needs torch."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nonvacuous.bounds.rounding import shown_confidence, shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.certification.adapting import TOKENS
from nonvacuous.certification.method import Method
from nonvacuous.certify import certify
from nonvacuous.cli import exits, output, report
from nonvacuous.cli.exits import CommandError, UsageError, again, command, shown_page
from nonvacuous.cli.flags import check_writable, device_of, in_use, instead_of, other_settings
from nonvacuous.cli.narration import working
from nonvacuous.data import NAMES, Dataset, Examples
from nonvacuous.data.load import file_and_column
from nonvacuous.data.readers.tables import other_labels
from nonvacuous.distributions import grids, priors
from nonvacuous.errors import FolderTaken, Refused, Unsupported
from nonvacuous.foreign import holds_run
from nonvacuous.methods import HeldOut, PostHoc, Sparsity
from nonvacuous.report.tables import saved_in_one_line
from nonvacuous.risk.forward import is_out_of_memory
from nonvacuous.settings import Run
from nonvacuous.studies import networks
from nonvacuous.study.settings import default_folder
from nonvacuous.study.study import named_data

if TYPE_CHECKING:
    from nonvacuous.cli.certify import Call


def run(call: Call, method: Method) -> int:
    """Load, build, certify, print."""
    if call.threads is not None:
        torch.set_num_threads(call.threads)
    device = device_of(call.device)
    dataset = named_data(call.data, call.data_dir, call.classes)
    examples, test = _parts(call, method, dataset)
    spec = call.model or method.usual_network or networks.default_model(examples)
    folder = call.out or default_folder(call.data, spec, call.seed)
    begun = holds_run(folder)
    if call.resume and not begun and not in_use(folder):
        raise UsageError(
            f"--resume: there is no run to go on with in {folder}. Check --out, or leave --resume "
            "out to begin one there.",
            instead={"--resume": ""},
        )
    other = other_settings(folder, _asked(call, method, spec)) if begun else ()
    check_writable(folder, "run", begun=begun, resume=call.resume, force=call.force, other=other)
    init_seed = call.seed if call.init_seed is None else call.init_seed
    network = networks.build_network(spec, examples, seed=init_seed)
    conversions = networks.check_readable(network, examples, spec=spec)
    if call.weights is not None:
        initial = network
        if call.initial is not None:
            initial = networks.build_network(spec, examples, seed=init_seed)
            networks.load_weights(initial, call.initial, flag="--initial", spec=spec)
        method = _with_prior(method, initial)
        networks.load_weights(network, call.weights, flag="--weights", spec=spec)
    was_finished = call.resume and (folder / "certificate.json").is_file()

    def stopped() -> tuple[str, str]:
        if not holds_run(folder):
            return "stopped before anything was computed.", again()
        kept = f"{folder} keeps everything up to the last finished {method.kept_by}."
        return f"stopped. {kept}", again({"--resume": None, "--force": ""})

    try:
        with working(stopped) as narration:
            weights = sum(parameter.numel() for parameter in network.parameters())
            narration.say(
                f"{spec} ({weights:,} parameters) on {examples.name} ({len(examples):,} examples, "
                f"{examples.classes} classes)"
            )
            narration.say(
                f"mode {method.mode}, confidence {shown_confidence(call.confidence, 6)}, "
                f"seed {call.seed}, device {device}, run folder {folder}"
            )
            for line in _remarks(call.data, dataset, examples, conversions, method):
                narration.say(line)
            certificate = certify(
                network.to(device),
                examples,
                method=method,
                confidence=call.confidence,
                seed=call.seed,
                test=test,
                attempts=call.attempts,
                folder=Run(
                    folder=folder,
                    architecture=spec,
                    source=call.data,
                    ledger=call.ledger,
                    different_data=call.different_data,
                    tensorboard=call.tensorboard,
                ),
                resume=call.resume,
                force=call.force,
                progress=narration,
            )
    except Refused as error:
        output.write_error(str(error), next_command=None)
        return exits.FAILED if call.max_risk is None else exits.TOO_RISKY
    except Unsupported as error:
        if method.usual_network is None:
            raise
        raise CommandError(str(error), instead=_other_mode(call, spec)) from error
    except FolderTaken as error:
        error.instead = instead_of(folder)
        raise
    except OSError as error:
        raise _folder_trouble(error, folder) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise CommandError(
            f"memory ran out on the {device}. Take a smaller --batch-size or --model; "
            f"{folder} keeps what was done."
        ) from error
    return _tell(certificate, folder, call, was_finished=was_finished)


def _parts(call: Call, method: Method, dataset: Dataset) -> tuple[Examples, Examples | None]:
    """The examples that the promise is about, and those that are only looked at at the end."""
    if not isinstance(method, HeldOut):
        return dataset.train, dataset.test
    if call.part == "train" or (call.part is None and dataset.test is None and method.unseen):
        return dataset.train, None
    if dataset.test is not None:
        return dataset.test, None
    if call.part == "test":
        raise UsageError(f"--part test: {call.data} has no test part.")
    raise UsageError(
        f"--mode holdout: {call.data} has no test part, and a network that was trained on these "
        "examples would look better than it is. If it never saw them, say so with --unseen.",
        instead={"--unseen": None},
    )


def _folder_trouble(error: OSError, folder: Path) -> CommandError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandError(
            f"the disk that holds {folder} is full. Free some space and go on: everything up to "
            "the last finished epoch is kept.",
            instead={"--resume": None, "--force": ""},
        )
    return CommandError(
        f"the run folder {folder} cannot be used: {exits.trouble_of(error, writing=True)}",
        instead={"--out": "FOLDER"},
    )


def _with_prior(method: Method, initial: nn.Module) -> Method:
    """The prior of given weights is theirs: zero, or the network as it was before training."""
    if not isinstance(method, PostHoc | Sparsity):
        return method
    scales = method.prior_scale if isinstance(method, PostHoc) else None
    grid = grids.ScaleGrid(scales) if scales else grids.DEFAULT_GRID
    zero = method.prior == "zero"
    prior = priors.zero_mean(grid=grid) if zero else priors.at_initialization(initial, grid=grid)
    return method.changed(prior=prior, **({"prior_scale": None} if scales else {}))


def _asked(call: Call, method: Method, spec: str) -> dict[str, Any]:
    """What config.toml will say of this call, as far as it is known before the data are split."""
    return {
        "mode": method.mode,
        "source": call.data,
        "architecture": spec,
        "confidence": call.confidence,
        "seed": call.seed,
        "attempts": call.attempts,
        "method": {n: v for n, v in method.record().items() if n not in ("prior", "prior_scale")},
    }


def _remarks(
    source: str,
    dataset: Dataset,
    examples: Examples,
    conversions: tuple[str, ...],
    method: Method,
) -> list[str]:
    """What was taken how, where another reading was possible or would serve better."""
    remarks = [f"network: {conversion}" for conversion in conversions]
    path, label = file_and_column(source)
    if label is not None and (others := other_labels(path, label)):
        remarks.append(
            f"inputs: {', '.join(others)} too, which is called like a column of labels; leave it "
            f"out of the table if it tells {label}"
        )
    names = examples.class_names
    if names != tuple(map(str, range(len(names)))):
        shown = ", ".join(f"{at} = {name}" for at, name in enumerate(names[:20]))
        more = f", ... ({len(names)} in all)" if len(names) > 20 else ""
        remarks.append(f"classes, in the order of the scores: {shown}{more} (other: --classes)")
    if dataset.unused:
        remarks.append(f"not used of {dataset.name}: {', '.join(dataset.unused)}")
    lacking = [n for n, c in zip(names, examples.class_counts(), strict=True) if not c]
    if lacking:
        remarks.append(f"no example of {', '.join(lacking[:8])} in {examples.name}")
    advice = method.advice(examples.example_shape, tokens=TOKENS in conversions)
    return remarks + ([] if advice is None else [advice])


def _tell(certificate: Certificate, folder: Path, call: Call, *, was_finished: bool) -> int:
    output.write_certificate(certificate, as_json=call.json)
    sys.stdout.flush()
    if was_finished:
        output.say("This run was finished before: nothing was computed again.")
    if certificate.beside_guessing:
        output.say(f"Warning: {certificate.beside_guessing}.")
    if saved := saved_in_one_line(certificate):
        output.say(saved)
    output.say(f"Run folder: {folder}")
    if call.report:
        output.say(f"Report:     {report.write_page(certificate, folder)}")
    code = _verdict(certificate, call, folder)
    if code == exits.DONE:
        output.write_next(_verification(call, folder))
    return code


def _other_mode(call: Call, spec: str) -> str:
    """The same network in a mode that takes every network."""
    named = ("data", "model", "classes", "data_dir", "weights", "initial")
    given = {name: getattr(call, name) for name in named} | {"model": spec}
    prior = "zero" if call.weights is not None and call.initial is None else None
    return command("certify", **given, prior=prior, seed=call.seed)


def _verification(call: Call, folder: Path) -> str:
    """The command that checks this run in full: what is not built in must be named again."""
    own: dict[str, Any] = {"data": call.data, "classes": call.classes}
    if call.data in NAMES:
        own = {"data_dir": call.data_dir if call.data != "digits" else None}
    built_in = call.model is None or networks.is_built_in(call.model)
    return command("verify", folder, **own, model=None if built_in else call.model)


def _verdict(certificate: Certificate, call: Call, folder: Path) -> int:
    """The exit code, with the reason where it is not 0."""
    limit, refused = call.max_risk, certificate.status == "refused"
    doubtful = certificate.status == "conditional" and not call.allow_conditional
    if not refused and (
        limit is None
        or (certificate.risk_upper <= limit and not certificate.is_vacuous and not doubtful)
    ):
        return exits.DONE
    if doubtful:
        reason = "the certificate is conditional, for the reason above (--allow-conditional)"
    elif refused:
        reason = "the certificate is refused: there is no promise, for the reason above"
    elif certificate.gate is not None and certificate.risk_upper >= 1.0:
        reason = f"the gate at {certificate.gate!r} was not passed"
    elif certificate.is_vacuous:
        reason = f"the certificate is vacuous: {certificate.unshown}"
    else:
        reason = f"the certificate promises {shown_up(certificate.risk_upper)} only"
    asked = limit is not None and certificate.gate is None
    gate = f"; --max-risk asks for at most {limit:g}" if asked else ""
    output.write_error(f"{reason}{gate}.", next_command=_remedy(certificate, call, folder))
    return exits.FAILED if limit is None else exits.TOO_RISKY


def _remedy(certificate: Certificate, call: Call, folder: Path) -> str:
    """How many new examples show the risk that is asked for, if it is met; else the page."""
    measured = f"{certificate.empirical.mean:.3g}"
    if certificate.status == "valid" and 0.0 < float(measured) < (call.max_risk or 0.0):
        return command("plan", target=f"{call.max_risk:g}", risk=measured)
    return shown_page(folder / report.PAGE) if call.report else command("report", folder)
