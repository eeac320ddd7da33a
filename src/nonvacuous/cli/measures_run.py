"""The work behind ``nonvacuous measures``: everything that needs torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nonvacuous.cli.exits import CommandError, again, exit_code_of, stoppable
from nonvacuous.cli.measures import FILES, UNFINISHED
from nonvacuous.cli.measures_request import (
    Request,
    check_corruption,
    check_names,
    finished,
)
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.networks import build_network, check_file, check_fits, load_data, load_weights
from nonvacuous.cli.output import write_error
from nonvacuous.data import Dataset, Examples
from nonvacuous.distributions.storage import save_tensors, tensors_digest
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.files import write_atomically
from nonvacuous.measures.attack import attack
from nonvacuous.measures.panel import Panel, panel
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.rules.outcomes import Shown, ledger_of
from nonvacuous.seeds import derived_seed
from nonvacuous.studies.measures_page import write_page
from nonvacuous.studies.measures_text import FIT_LOSS
from nonvacuous.training.many import Job, ManyExamples, ManySettings, train_many


@dataclass(frozen=True, eq=False)
class Network:
    """A network to measure, with the examples that trained it and what is known of its training."""

    module: nn.Module
    initial: nn.Module | None
    examples: Examples
    trained: dict[str, Any] | None


def run(request: Request) -> tuple[dict[str, Any], list[Path]] | int:
    """Train or load, measure, write the files; the record, and where the files are.

    An exit code where it was stopped.
    """
    check_names(request.only, request.without)
    if request.against is not None:
        check_corruption(request.against)
    for flag, path in (
        ("--weights", request.weights),
        ("--initial", request.initial),
        ("--against-weights", request.against_weights),
    ):
        if path is not None:
            check_file(path, flag=flag)
    if request.resume and (record := finished(request)) is not None:
        return record, []
    if request.unfinished is not None and not request.resume:
        shutil.rmtree(request.unfinished, ignore_errors=True)
    try:
        return _run(request)
    except KeyboardInterrupt as stop:
        kept = request.unfinished is not None and request.unfinished.exists()
        write_error(
            f"stopped. What was done is kept in {request.out}." if kept else "stopped.",
            next_command=again("--resume", without=["--force"]) if kept else again(),
        )
        return exit_code_of(stop)


def _run(request: Request) -> tuple[dict[str, Any], list[Path]]:
    given = load_data(request.data, request.data_dir).train
    train = given.subset(np.arange(min(request.examples, len(given))))
    other = None if request.against is None else _corrupted(train, request)
    with stoppable(), Narration() as narration:
        narration.say(
            f"{request.model} on {len(train):,} examples of {train.name}, seed {request.seed}"
        )
        network, rival = _networks(request, train, other, narration)
        found = _panel(request, network, narration)
        if any(entry.measure.is_bound for entry in found.entries):
            shown = Shown(ledger_of(request.ledger, request.out), given, command="measures")
            weights = tensors_digest(dict(network.module.state_dict()))
            shown.record({"asked": request.asked, "network": weights})
        attacked = _attacked(request, network, narration) if request.attack else None
        compared = None if rival is None else _panel(request, rival, narration)
    record = {
        "asked": request.asked,
        "model": request.model,
        "data": train.name,
        "data_source": request.data,
        "weights": None if request.weights is None else str(request.weights),
        "examples": len(train),
        "seed": request.seed,
        "trained": network.trained,
        "panel": found.to_dict(),
        "attack": attacked,
        "against": None
        if compared is None or rival is None
        else _against(request, compared, rival),
    }
    return record, ([] if request.out is None else _write(request.out, record, network, rival))


def _panel(request: Request, network: Network, narration: Narration) -> Panel:
    return panel(
        network.module,
        network.examples,
        initial=network.initial,
        seed=request.seed,
        only=request.only,
        without=request.without,
        progress=narration,
    )


def _corrupted(train: Examples, request: Request) -> Examples:
    assert request.against is not None
    try:
        return corrupt(
            Dataset(train), request.against, seed=derived_seed(request.seed, "against")
        ).train
    except BadInput as error:
        raise CommandError(
            f"--against: {error}", next_command=again(replacing={"--against": "random-labels"})
        ) from error


def _networks(
    request: Request, train: Examples, other: Examples | None, narration: Narration
) -> tuple[Network, Network | None]:
    """The network under study and, for --against, the same one trained on corrupted data."""
    own = rival = None
    if request.weights is not None:
        own = _loaded(request, train, request.weights, "--weights")
    if other is not None and request.against_weights is not None:
        rival = _loaded(request, other, request.against_weights, "--against-weights")
    missing = [
        part for part, given in ((train, own), (other, rival)) if part is not None and given is None
    ]
    trained = _trained(request, missing, narration) if missing else []
    if own is None:
        own = trained.pop(0)
    return own, trained.pop() if trained else rival


def _loaded(request: Request, part: Examples, weights: Path, flag: str) -> Network:
    """A network that somebody trained before."""
    module = build_network(request.model, part, seed=request.seed)
    check_fits(module, part, spec=request.model)
    load_weights(module, weights, flag=flag, spec=request.model)
    start = None
    if request.initial is not None:
        start = build_network(request.model, part, seed=request.seed)
        load_weights(start, request.initial, flag="--initial", spec=request.model)
    return Network(module, start, part, None)


def _trained(request: Request, parts: Sequence[Examples], narration: Narration) -> list[Network]:
    """One network for each part of data, all from the same initial weights."""
    check_fits(
        build_network(request.model, parts[0], seed=request.seed), parts[0], spec=request.model
    )

    def build(seed: int) -> nn.Module:
        return build_network(request.model, parts[0], seed=seed)

    done = train_many(
        build,
        ManyExamples([part.inputs for part in parts], torch.stack([part.labels for part in parts])),
        [
            Job(labels=k, inputs=k, seed=request.seed, learning_rate=request.learning_rate)
            for k in range(len(parts))
        ],
        settings=ManySettings(
            epochs=request.epochs, batch_size=64, decay=1.0, stop_when_fit=True, fit_loss=FIT_LOSS
        ),
        device="cpu",
        progress=narration,
        checkpoint=_place(request, "training.safetensors"),
    )
    networks = []
    for part, job in zip(parts, done.jobs, strict=True):
        if job.stopped == "diverged":
            rate = f"{request.learning_rate / 4:g}"
            raise CommandError(
                f"training diverged with --learning-rate {request.learning_rate:g}.",
                next_command=again(replacing={"--learning-rate": rate}),
            )
        module = build(request.seed)
        module.load_state_dict(job.state)
        last = job.history[-1]
        networks.append(
            Network(
                module.eval(),
                build(request.seed).eval(),
                part,
                {
                    "epochs": last.epoch,
                    "loss": last.train_loss,
                    "errors": last.train_errors,
                    "stopped": job.stopped,
                },
            )
        )
    return networks


def _place(request: Request, name: str) -> Path | None:
    """Where a part of the work is kept until all is done."""
    return None if request.unfinished is None else request.unfinished / name


def _attacked(request: Request, network: Network, narration: Narration) -> dict[str, Any]:
    try:
        return attack(
            network.module,
            network.examples,
            initial=network.initial,
            gauges=request.gauges,
            spread=request.spread,
            seed=request.seed,
            only=request.only,
            without=request.without,
            checkpoint=_place(request, "gauges.json"),
            progress=narration,
        ).to_dict()
    except Unsupported as error:
        raise CommandError(str(error), next_command=again(without=["--attack"])) from error


def _against(request: Request, compared: Panel, rival: Network) -> dict[str, Any]:
    return {"spec": request.against, "trained": rival.trained, "panel": compared.to_dict()}


def _write(
    out: Path, record: dict[str, Any], network: Network, rival: Network | None
) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, one in ((FILES[0], network), (FILES[3], rival)):
        if one is not None and one.trained is not None:
            save_tensors(out / name, dict(one.module.state_dict()), kind="weights")
            paths.append(out / name)
    text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_atomically(out / FILES[1], lambda stream: stream.write(text.encode()))
    page = write_page(record, out / FILES[2], command=again())
    shutil.rmtree(out / UNFINISHED, ignore_errors=True)
    return [*paths, out / FILES[1], page]
