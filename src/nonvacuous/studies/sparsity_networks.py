"""The network of ``nonvacuous sparsity``: trained toward its prior here, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nonvacuous.certification.candidate import with_weights
from nonvacuous.data import Examples
from nonvacuous.errors import Unrecognized
from nonvacuous.models import build
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_faithfully, read_network
from nonvacuous.sparsity.conv_training import ConvTraining, step_size, train_conv, without_biases
from nonvacuous.sparsity.priors import make_conv_prior, make_prior
from nonvacuous.sparsity.training import ChainTraining, scaled, train_chain, unit_norm
from nonvacuous.sparsity.weights import Network
from nonvacuous.studies.networks import build_network, load_weights
from nonvacuous.study.study import Context
from nonvacuous.training.checks import check_fits

if TYPE_CHECKING:
    from nonvacuous.studies.sparsity import SparsitySettings


@dataclass(frozen=True, eq=False)
class Subject:
    """The network under study, its prior, and the examples that the bounds are about."""

    network: Network
    prior: Network | None
    prior_name: str
    examples: Examples
    module: nn.Module | None = None
    trained: dict[str, Any] | None = None


def prepared(train: Examples, settings: SparsitySettings) -> Examples:
    """The examples as the network takes them."""
    if not settings.scales_inputs:
        return train
    return unit_norm(train) if settings.kind == "mlp" else scaled(train)


def train(settings: SparsitySettings, examples: Examples, at: Context) -> Subject:
    """A network without biases, trained toward its prior."""
    settings.check_size(examples)
    wanted, convolutional = settings.trained_prior, settings.kind == "cnn"
    if convolutional:
        _check_theorem(settings)
    # Building it once checks the widths, and gives the names under which it is saved.
    module = build(settings.model, examples.example_shape, examples.classes, seed=settings.seed)
    initial, few = without_biases(module).eval(), examples.inputs[:2]
    pull = settings.pull_toward(wanted)
    shared: dict[str, Any] = {"steps": settings.steps, "activity": settings.activity}
    asked = "zero" if wanted == "none" else wanted
    first: dict[str, Any] = {"seed": settings.seed, "progress": at.progress}
    then = first | {"seed": derived_seed(settings.seed, "network")}
    if convolutional:
        hidden = read_network(initial, few).hidden
        recipe = ConvTraining(learning_rate=step_size(hidden), **shared)
        prior = make_conv_prior(asked, examples, initial, settings=recipe, **first)
        rate = step_size(hidden, learned=prior.kind == "learned", pull=pull)
        recipe = replace(recipe, pull=pull, learning_rate=rate)
        trained = train_conv(prior.start, examples, settings=recipe, toward=prior.center, **then)
        center, bound = prior.center, prior.bound
    else:
        chain = ChainTraining(**shared)
        widths = [len(weight) for weight in initial.parameters()][:-1]
        base = make_prior(asked, examples, widths, settings=chain, **first)
        chain = replace(chain, pull=pull)
        weights = train_chain(base.start, examples, settings=chain, toward=base.center, **then)
        names = [name for name, _ in initial.named_parameters()]
        trained, center = (
            with_weights(initial, dict(zip(names, each, strict=True)))
            for each in (weights, base.center)
        )
        bound = base.bound
    network, reference = (read_network(one.eval(), few) for one in (trained, center))
    # The network that is saved has biases, and they are zero.
    zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    module = with_weights(module, zeros | dict(trained.named_parameters()))
    return Subject(
        network=network,
        prior=None if wanted == "none" else reference,
        prior_name=wanted,
        examples=bound,
        module=module,
        trained={
            "steps": settings.steps,
            "pull": pull,
            "activity": settings.activity,
            "errors": network.errors(examples),
            "examples": len(examples),
        },
    )


def load(settings: SparsitySettings, train: Examples, at: Context) -> Subject:
    """The user's network, or a built-in one with the user's weights."""
    module = build_network(settings.model, train, seed=settings.seed)
    check_fits(module, train, spec=settings.model)
    if settings.weights is not None:
        load_weights(module, settings.weights, flag="--weights", spec=settings.model)
    else:
        at.say("no --weights: the network is studied as it was built")
    network = read_faithfully(module.eval(), train)
    if isinstance(network, ConvChain):
        _check_theorem(settings)
    return Subject(
        network=network,
        prior=_given_prior(settings, train, network),
        prior_name=settings.prior or "none",
        examples=train,
    )


def _given_prior(settings: SparsitySettings, train: Examples, network: Network) -> Network | None:
    name = settings.prior or "none"
    if name == "none":
        return None
    if name == "zero":
        return network.zero()
    if name.startswith(("learned", "init")):
        raise Unrecognized(
            f"--prior {name}: how these weights began and what they were trained on is not known "
            "here. Give the file of a network that was chosen without these data, or zero.",
            instead={"--prior": "zero"},
        )
    other = build_network(settings.model, train, seed=derived_seed(settings.seed, "prior"))
    load_weights(other, Path(name), flag="--prior", spec=settings.model)
    return read_faithfully(other.eval(), train)


def _check_theorem(settings: SparsitySettings) -> None:
    """Convolutional networks have one theorem; better said before they are trained."""
    if settings.theorem != "E":
        raise Unrecognized(
            f"--theorem {settings.theorem}: it covers linear layers only; a convolutional network "
            "is certified by theorem E.",
            instead={"--theorem": "E"},
        )
