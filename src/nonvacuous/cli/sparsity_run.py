"""The work behind ``nonvacuous sparsity``: everything that needs torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nonvacuous.cli.exits import CommandError, UsageError, again, stoppable
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.networks import build_network, check_fits, load_data, load_weights
from nonvacuous.cli.sparsity_conv import check_theorem, train_convolutional
from nonvacuous.cli.sparsity_request import Request, Subject
from nonvacuous.data import Examples
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.files import write_atomically
from nonvacuous.models import build
from nonvacuous.rules.outcomes import Shown, ledger_of
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_faithfully
from nonvacuous.sparsity.priors import make_prior
from nonvacuous.sparsity.study import study
from nonvacuous.sparsity.training import Chain, ChainTraining, chain_errors, train_chain, unit_norm
from nonvacuous.sparsity.weights import Layers
from nonvacuous.studies.sparsity_page import write_page

FILES = ("network.safetensors", "record.json", "sparsity.html")


def run(request: Request) -> tuple[dict[str, Any], list[Path]]:
    """Train or load, study, write the files; the record, and where the files are."""
    dataset = load_data(request.data, request.data_dir)
    train, test = _prepared(dataset.train, request), dataset.test
    if test is not None and request.scales_inputs:
        test = unit_norm(test)
    with stoppable(), Narration() as narration:
        narration.say(f"{request.model} on {len(train):,} examples of {train.name}, seed "
                      f"{request.seed}")  # fmt: skip
        subject = (_train if request.trains else _load)(request, train, narration)
        found = study(
            subject.network,
            subject.examples,
            epsilons=request.sizes,
            prior=subject.prior,
            held_out=test,
            input_norm=1.0 if request.scales_inputs else None,
            confidence=request.confidence,
            theorem=request.theorem,
            seed=derived_seed(request.seed, "certificate"),
            progress=narration,
        )
    if subject.prior is not None:
        shown = Shown(ledger_of(request.ledger, request.out), dataset.train, command="sparsity")
        shown.record({"asked": request, "network": subject.network.digest()})
    record = {
        **found.to_dict(),
        "model": request.model,
        "data_source": request.data,
        "weights": None if request.weights is None else str(request.weights),
        "prior": subject.prior_name,
        "unit_norm": request.scales_inputs,
        "confidence": request.confidence,
        "seed": request.seed,
        "trained": subject.trained,
    }
    paths = [] if request.out is None else _write(request.out, record, subject, found.shown)
    return record, paths


def _prepared(train: Examples, request: Request) -> Examples:
    if request.examples is not None:
        if request.examples > len(train):
            raise CommandError(
                f"--examples {request.examples:,}: {train.name} has {len(train):,} training "
                "examples.",
                next_command=again(replacing={"--examples": str(len(train))}),
            )
        train = train.subset(np.arange(request.examples))
    if not request.scales_inputs:
        return train
    scaled = unit_norm(train)
    if request.kind == "mlp":
        return scaled
    return replace(scaled, inputs=scaled.inputs.reshape(train.inputs.shape))


def _train(request: Request, train: Examples, narration: Narration) -> Subject:
    """A chain without biases, trained toward its prior."""
    request.check_size(train)
    if request.kind == "cnn":
        return train_convolutional(request, train, narration)
    # Building it once checks the widths, and gives the names under which it is saved.
    module = build(request.model, train.example_shape, train.classes, seed=request.seed)
    widths = [len(p) for name, p in module.named_parameters() if name.endswith("weight")][:-1]
    wanted = request.trained_prior
    settings = ChainTraining(steps=request.steps, activity=request.activity)
    prior = make_prior(
        "zero" if wanted == "none" else wanted,
        train,
        widths,
        settings=settings,
        seed=request.seed,
        progress=narration,
    )
    toward = ChainTraining(
        steps=request.steps,
        activity=request.activity,
        pull=request.pull_toward(wanted),
    )
    trained = train_chain(
        prior.start, train, settings=toward, toward=prior.weights,
        seed=derived_seed(request.seed, "network"), progress=narration,
    )  # fmt: skip
    return Subject(
        network=_named(trained.weights, module),
        prior=None if wanted == "none" else _named(prior.weights, module),
        prior_name=wanted,
        examples=prior.bound,
        module=_filled(module, trained.weights),
        trained={
            "steps": request.steps,
            "pull": toward.pull,
            "activity": request.activity,
            "errors": chain_errors(trained.weights, train),
            "examples": len(train),
        },
    )


def _load(request: Request, train: Examples, narration: Narration) -> Subject:
    """The user's network, or a built-in one with the user's weights."""
    module = build_network(request.model, train, seed=request.seed)
    check_fits(module, train, spec=request.model)
    if request.weights is not None:
        load_weights(module, request.weights, flag="--weights", spec=request.model)
    else:
        narration.say("no --weights: the network is studied as it was built")
    network = read_faithfully(module.eval(), train)
    if isinstance(network, ConvChain):
        check_theorem(request)
    return Subject(
        network=network,
        prior=_given_prior(request, train, network),
        prior_name=request.prior or "none",
        examples=train,
        module=None,
        trained=None,
    )


def _given_prior(
    request: Request, train: Examples, network: Layers | ConvChain
) -> Layers | ConvChain | None:
    name = request.prior or "none"
    if name == "none":
        return None
    if name == "zero":
        return network.zero()
    if name.startswith(("learned", "init")):
        raise UsageError(
            f"--prior {name}: how these weights began and what they were trained on is not known "
            "here. Give the file of a network that was chosen without these data, or zero.",
            next_command=again(replacing={"--prior": "zero"}),
        )
    other = build_network(request.model, train, seed=derived_seed(request.seed, "prior"))
    load_weights(other, Path(name), flag="--prior", spec=request.model)
    return read_faithfully(other.eval(), train)


def _named(weights: Chain, module: nn.Module) -> Layers:
    names = [n for n, _ in module.named_parameters() if n.endswith("weight")]
    matrices = tuple(matrix.detach().cpu().double() for matrix in weights)
    return Layers(
        matrices, (None,) * len(matrices), tuple(name.rpartition(".")[0] for name in names)
    )


def _filled(module: nn.Module, weights: Chain) -> nn.Module:
    """The chain under the built-in network's names: its biases are zero."""
    matrices = iter(weights)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("weight"):
                parameter.copy_(next(matrices))
            else:
                parameter.zero_()
    return module


def _write(out: Path, record: dict[str, Any], subject: Subject, shown: Any) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    if subject.module is not None:
        save_tensors(out / FILES[0], dict(subject.module.state_dict()), kind="weights")
        paths.append(out / FILES[0])
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_atomically(out / FILES[1], lambda stream: stream.write(text.encode()))
    page = write_page(record, shown, out / FILES[2], command=again())
    return [*paths, out / FILES[1], page]
