"""``nonvacuous randomize --run``: a certificate's recipe repeated on random labels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.certify import certify
from nonvacuous.claims import write_record
from nonvacuous.cli import exits, output, report
from nonvacuous.cli.flags import device_of
from nonvacuous.cli.narration import working
from nonvacuous.data import NAMES, Split, files
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.files import inside
from nonvacuous.foreign import holds_run, run_settings
from nonvacuous.kinds import kind_of
from nonvacuous.methods import METHODS, Posterior
from nonvacuous.models import rebuild
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.rules import digests, outcomes
from nonvacuous.seeds import derived_seed
from nonvacuous.settings import Run
from nonvacuous.studies.networks import build_network, is_built_in
from nonvacuous.study.study import named_data


def randomize_run(folder: Path, flags: Mapping[str, Any]) -> int:
    """Train and certify once more with labels drawn at random; nothing else is changed.

    The folder may be a stranger's. What it names is used only if it is built in; a file or a
    function (which would be imported) must be named again by whoever types the command.
    """
    if flags.get("threads") is not None:
        torch.set_num_threads(flags["threads"])
    certificate, settings, method = _finished(folder)
    model, stored = flags.get("model"), settings.architecture
    source = _named("--data", flags.get("data"), settings.source, settings.source in NAMES)
    spec = _named("--model", model, stored, is_built_in(stored))
    path = inside(folder, report.LABELS)
    if path.exists() and not flags.get("force"):
        raise exits.UsageError(
            f"{path} exists already. Add --force to compute it again.",
            instead={"--force": None},
        )
    dataset = named_data(source, flags.get("data_dir"))
    if dataset.train.content_hash() != settings.examples:
        raise exits.CommandError(
            f"--run: {folder} was computed on other examples than --data {source} has, so nothing "
            "could be compared.",
            instead={"--data": "SOURCE"},
        )
    if model is None:
        means = DiagonalGaussian.load(inside(folder, "posterior.safetensors")).means
        shapes = {name: tuple(mean.shape) for name, mean in means.items()}
        inputs, classes = dataset.train.example_shape, dataset.train.classes
        network = rebuild(spec, inputs, classes, seed=settings.seed, shapes=shapes)
    else:
        network = build_network(spec, dataset.train, seed=settings.seed)
    if digests.tensors_digest(dict(network.state_dict())) != settings.weights:
        raise exits.CommandError(
            f"--run: {folder} started from weights that --model {spec} with seed {settings.seed} "
            "does not give (an --init-seed of its own, or another version of the model), so "
            "nothing could be compared.",
            instead=exits.command("randomize", data=source),
        )
    split = Split.load(inside(folder, "split.npz"))
    label_seed = derived_seed(settings.seed, "random labels")
    randomized = corrupt(dataset, "random-labels", seed=label_seed)
    with working(lambda: ("stopped; nothing was written.", exits.again())) as narration:
        narration.say(
            f"{spec} on {dataset.name} with labels drawn at random, seed {settings.seed}: the "
            f"recipe of {folder}"
        )
        made = certify(
            network.to(device_of(flags.get("device") or "auto")),
            randomized.train,
            method=method.changed(prior_fraction=len(split.prior) / len(dataset.train), twin=False),
            confidence=settings.confidence,
            seed=settings.seed,
            attempts=settings.attempts,
            folder=Run(
                architecture=spec,
                ledger=outcomes.ledger_of(flags.get("ledger"), folder),
                different_data="the labels were drawn at random",
            ),
            progress=narration,
        )
    record = _record(certificate, made, randomized.seed)
    write_record(path, record)
    return _tell(record, path, folder, as_json=bool(flags.get("json")))


class _Settings(BaseModel, frozen=True, strict=True, extra="ignore"):
    """What config.toml must say for a recipe to be repeated, each of its kind."""

    mode: str
    source: str
    architecture: str
    confidence: float
    seed: int
    attempts: int
    weights: str
    examples: str
    method: dict[str, Any]


def _finished(folder: Path) -> tuple[Certificate, _Settings, Posterior]:
    path = inside(folder, "certificate.json")
    if not holds_run(folder) or not path.is_file():
        raise (exits.CommandError if folder.is_dir() else exits.UsageError)(
            f"--run: {folder} holds no finished nonvacuous certify (config.toml and "
            "certificate.json).",
            instead="nonvacuous certify --data digits",
        )
    certificate = Certificate.load(path)
    wrong = partial(exits.CommandError, instead=exits.command("verify", folder))

    def sealed(name: str) -> None:
        file = inside(folder, name)
        if not file.is_file() or files.sha256_of_file(file) != certificate.artifacts.get(name):
            raise wrong(
                f"--run: {name} in {folder} is not the file that its certificate was sealed with."
            )

    sealed("config.toml")
    try:
        settings = _Settings.model_validate(run_settings(folder))
    except ValidationError as error:
        where = error.errors()[0]["loc"]
        raise wrong(f"--run: config.toml in {folder} is not that of a run: {where}.") from error
    elsewhere = kind_of(settings.mode).given or settings.method.get("pretrained")
    if elsewhere or METHODS[settings.mode] is not Posterior:
        raise exits.CommandError(
            f"--run: {folder} certified weights that were trained elsewhere; that training cannot "
            "be repeated here. Give it as --train package.module:function instead."
            if elsewhere
            else f"--run: {folder} is of --mode {settings.mode}; what can be repeated on random "
            "labels is a run of --mode posterior.",
            instead="nonvacuous randomize --help",
        )
    for name in ("split.npz", "posterior.safetensors"):
        sealed(name)
    try:
        return certificate, settings, Posterior(**settings.method)
    except BadInput as error:
        raise wrong(f"--run: config.toml in {folder}: {error}.") from error


def _named(flag: str, given: str | None, stored: str, built_in: bool) -> str:
    if given is not None or built_in:
        return given or stored
    raise exits.UsageError(
        f"--run: the run names {stored!r}, which is not built in. Nothing that a folder names is "
        f"opened or imported: if you trust it, repeat it as {flag}.",
        instead={flag: stored},
    )


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
        output.write_json(record)
    else:
        true, random = record["true_labels"], record["random_labels"]
        for name, part in (("true labels", true), ("random labels", random)):
            note = " (vacuous: a constant answer may do as well)" if part["is_vacuous"] else ""
            output.write_lines(f"{name + ':':15}error <= {shown_up(part['risk_upper'])}{note}")
        output.write_lines(f"Written: {path}")
    if not record["random_labels"]["is_vacuous"]:
        output.write_error(
            "the recipe promises something on labels that nobody can predict: the bound failed "
            "by bad luck, or there is a mistake.",
            next_command=exits.command("verify", folder),
        )
        return exits.FAILED
    output.write_next(exits.command("report", folder))
    return exits.DONE
