"""``nonvacuous randomize --run``: a certificate's recipe repeated on random labels."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import torch

from nonvacuous.audit.digests import tensors_digest
from nonvacuous.certificate import Certificate, rounded_up
from nonvacuous.certification.recipe import Recipe
from nonvacuous.certify import certify
from nonvacuous.cli.exits import DONE, FAILED, CommandError, UsageError
from nonvacuous.cli.folders import holds_run
from nonvacuous.cli.invocation import again
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.networks import build_network
from nonvacuous.cli.output import result_console, write_error, write_json, write_next
from nonvacuous.cli.pages import LABELS
from nonvacuous.cli.randomize_run import device_of
from nonvacuous.cli.sources import load_data
from nonvacuous.cli.stopping import exit_code_of, stoppable
from nonvacuous.data import Split
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.files import write_atomically
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.report.terminal import printable
from nonvacuous.seeds import derived_seed


def randomize_run(
    folder: Path,
    *,
    data_dir: Path | None,
    device: str,
    threads: int | None,
    force: bool,
    as_json: bool,
) -> int:
    """Train and certify once more with labels drawn at random; nothing else is changed."""
    if threads is not None:
        torch.set_num_threads(threads)
    certificate, settings = _finished(folder)
    path = folder / LABELS
    if path.exists() and not force:
        raise UsageError(
            f"{path} exists already. Add --force to compute it again.",
            next_command=again("--force"),
        )
    dataset = load_data(settings["source"], data_dir)
    network = build_network(settings["architecture"], dataset.train, seed=settings["seed"])
    if tensors_digest(dict(network.state_dict())) != settings["weights"]:
        raise CommandError(
            f"--run: {folder} started from weights that --model {settings['architecture']} with "
            f"seed {settings['seed']} does not give (an --init-seed of its own, or another version "
            "of the model), so nothing could be compared.",
            next_command=f"nonvacuous randomize --data {shlex.quote(settings['source'])}",
        )
    split = Split.load(folder / "split.npz")
    randomized = corrupt(
        dataset, "random-labels", seed=derived_seed(settings["seed"], "random labels")
    )
    try:
        with stoppable(), Narration() as narration:
            narration.say(
                f"{settings['architecture']} on {dataset.name} with labels drawn at random, seed "
                f"{settings['seed']}: the recipe of {folder}"
            )
            made = certify(
                network,
                randomized.train,
                mode="posterior",
                predictor=settings["predictor"],
                confidence=settings["confidence"],
                seed=settings["seed"],
                trials=settings["trials"],
                prior_fraction=len(split.prior) / len(dataset.train),
                prior_scales=ScaleGrid(tuple(settings["prior_scales"])),
                recipe=Recipe.from_dict(settings["recipe"]),
                attempts=settings["attempts"],
                twin=False,
                architecture=settings["architecture"],
                device=device_of(device),
                progress=narration,
            )
    except KeyboardInterrupt as stop:
        write_error("stopped; nothing was written.", next_command=again())
        return exit_code_of(stop)
    record = _record(certificate, made, randomized.seed)
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))
    return _tell(record, path, folder, as_json=as_json)


def _finished(folder: Path) -> tuple[Certificate, dict[str, Any]]:
    path = folder / "certificate.json"
    if not holds_run(folder) or not path.is_file():
        raise (CommandError if folder.is_dir() else UsageError)(
            f"--run: {folder} holds no finished nonvacuous certify (config.toml and "
            "certificate.json).",
            next_command="nonvacuous certify --data digits",
        )
    settings = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    if settings["mode"] != "posterior" or settings.get("pretrained"):
        raise CommandError(
            f"--run: {folder} certified weights that were trained elsewhere; that training cannot "
            "be repeated here. Give it as --train package.module:function instead.",
            next_command="nonvacuous randomize --help",
        )
    return Certificate.load(path), settings


def _record(true: Certificate, random: Certificate, seed: int) -> dict[str, Any]:
    return {
        "format": "nonvacuous-random-labels/1",
        "certificate": true.digest,
        "true_labels": {"risk_upper": true.risk_upper, "is_vacuous": true.is_vacuous},
        "random_labels": {
            "risk_upper": random.risk_upper,
            "is_vacuous": random.is_vacuous,
            "status": random.status,
            "empirical_risk": random.empirical.amount / random.empirical.trials,
            "kl_nats": None if random.complexity is None else random.complexity.kl_nats,
        },
        "guessing": 1.0 - 1.0 / random.data.classes,
        "confidence": random.confidence,
        "label_seed": seed,
    }


def _tell(record: dict[str, Any], path: Path, folder: Path, *, as_json: bool) -> int:
    if as_json:
        write_json(record)
    else:
        true, random = record["true_labels"], record["random_labels"]
        console = result_console()
        for name, part in (("true labels", true), ("random labels", random)):
            note = " (vacuous: a constant answer may do as well)" if part["is_vacuous"] else ""
            console.print(f"{name + ':':15}error <= {rounded_up(part['risk_upper'])}{note}")
        console.print(printable(f"Written: {path}"), soft_wrap=True)
    report = shlex.join(["nonvacuous", "report", str(folder)])
    if not record["random_labels"]["is_vacuous"]:
        write_error(
            "the recipe promises something on labels that nobody can predict: the bound failed "
            "by bad luck, or there is a mistake.",
            next_command=shlex.join(["nonvacuous", "verify", str(folder)]),
        )
        return FAILED
    write_next(report)
    return DONE
