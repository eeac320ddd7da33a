"""The network of ``nonvacuous sparsity``: trained toward its prior here, or the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.errors import Unrecognized
from nonvacuous.models import build
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import conv_chain, read_faithfully
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv, without_biases
from nonvacuous.sparsity.measuring import measure_conv
from nonvacuous.sparsity.priors import make_conv_prior, make_prior
from nonvacuous.sparsity.training import (
    ChainTraining,
    chain_errors,
    scaled,
    train_chain,
    unit_norm,
)
from nonvacuous.sparsity.weights import Layers, Network
from nonvacuous.studies.networks import build_network, load_weights
from nonvacuous.study.study import Context
from nonvacuous.training.checks import check_fits

if TYPE_CHECKING:
    from nonvacuous.studies.sparsity import SparsitySettings

#: Step sizes that suit inputs of norm 1: for one hidden layer, and for more.
_RATES = (0.5, 0.15)
#: A network that starts from a learned prior needs smaller steps.
_NEAR = 0.4


@dataclass(frozen=True, eq=False)
class Subject:
    """The network under study, its prior, and the examples that the bounds are about."""

    network: Network
    prior: Network | None
    prior_name: str
    examples: Examples
    module: nn.Module | None
    trained: dict[str, Any] | None


def prepared(train: Examples, settings: SparsitySettings) -> Examples:
    """The examples as the network takes them."""
    if not settings.scales_inputs:
        return train
    return unit_norm(train) if settings.kind == "mlp" else scaled(train)


def train(settings: SparsitySettings, examples: Examples, at: Context) -> Subject:
    """A network without biases, trained toward its prior."""
    settings.check_size(examples)
    convolutional = settings.kind == "cnn"
    if convolutional:
        _check_theorem(settings)
    # Building it once checks the widths, and gives the names under which it is saved.
    module = build(settings.model, examples.example_shape, examples.classes, seed=settings.seed)
    made = (_convolutions if convolutional else _chain)(settings, examples, module, at)
    network, prior, bound, weights, errors = made
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # The network that is saved has biases, and they are zero.
            parameter.copy_(weights.get(name, torch.zeros_like(parameter)))
    return Subject(
        network=network,
        prior=None if settings.trained_prior == "none" else prior,
        prior_name=settings.trained_prior,
        examples=bound,
        module=module,
        trained={
            "steps": settings.steps,
            "pull": settings.pull_toward(settings.trained_prior),
            "activity": settings.activity,
            "errors": errors,
            "examples": len(examples),
        },
    )


#: A trained network and its prior, the examples of the bound, its weights by name, and its errors.
_Made = tuple[Network, Network, Examples, Mapping[str, Tensor], int]


def _chain(settings: SparsitySettings, examples: Examples, module: nn.Module, at: Context) -> _Made:
    named = [(n, p) for n, p in module.named_parameters() if n.endswith("weight")]
    wanted = settings.trained_prior
    recipe = ChainTraining(steps=settings.steps, activity=settings.activity)
    prior = make_prior(
        "zero" if wanted == "none" else wanted,
        examples,
        [len(weight) for _, weight in named][:-1],
        settings=recipe,
        seed=settings.seed,
        progress=at.progress,
    )
    trained = train_chain(
        prior.start,
        examples,
        settings=replace(recipe, pull=settings.pull_toward(wanted)),
        toward=prior.center,
        seed=derived_seed(settings.seed, "network"),
        progress=at.progress,
    )
    names = tuple(name.rpartition(".")[0] for name, _ in named)
    network, center = (
        replace(Layers.of(weights), names=names) for weights in (trained, prior.center)
    )
    weights = {name: weight for (name, _), weight in zip(named, trained, strict=True)}
    return network, center, prior.bound, weights, chain_errors(trained, examples)


def _convolutions(
    settings: SparsitySettings, examples: Examples, module: nn.Module, at: Context
) -> _Made:
    wanted = settings.trained_prior
    initial = without_biases(module).eval()
    hidden = conv_chain(initial, examples.inputs[:2]).hidden
    recipe = ConvTraining(
        steps=settings.steps, learning_rate=_RATES[hidden > 1], activity=settings.activity
    )
    prior = make_conv_prior(
        "zero" if wanted == "none" else wanted,
        examples,
        initial,
        settings=recipe,
        seed=settings.seed,
        progress=at.progress,
    )
    pull = settings.pull_toward(wanted)
    rate = recipe.learning_rate * (_NEAR if prior.kind == "learned" else 1.0)
    trained = train_conv(
        prior.start,
        examples,
        # A strong pull overshoots the prior at large steps.
        settings=replace(recipe, pull=pull, learning_rate=min(rate, 0.5 / pull) if pull else rate),
        toward=prior.center,
        seed=derived_seed(settings.seed, "network"),
        progress=at.progress,
    )
    chain, center = (conv_chain(one.eval(), examples.inputs[:2]) for one in (trained, prior.center))
    measured = measure_conv(chain, examples.inputs, examples.labels, epsilons=(), level=1.0)
    return chain, center, prior.bound, dict(trained.named_parameters()), measured.errors


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
        module=None,
        trained=None,
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
