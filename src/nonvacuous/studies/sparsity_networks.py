"""The network of ``nonvacuous sparsity``: trained toward its prior here, or the user's own."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.errors import Unrecognized
from nonvacuous.models import build
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import conv_chain, read_faithfully
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv, without_biases
from nonvacuous.sparsity.measuring import measure_conv
from nonvacuous.sparsity.priors import make_conv_prior, make_prior
from nonvacuous.sparsity.training import Chain, ChainTraining, chain_errors, train_chain, unit_norm
from nonvacuous.sparsity.weights import Layers
from nonvacuous.studies.networks import build_network, check_fits, load_weights
from nonvacuous.study.study import Context

if TYPE_CHECKING:
    from nonvacuous.studies.sparsity import SparsitySettings

#: Step sizes that suit inputs of norm 1: for one hidden layer, and for more.
_RATES = (0.5, 0.15)
#: A network that starts from a learned prior needs smaller steps.
_NEAR = 0.4


@dataclass(frozen=True, eq=False)
class Subject:
    """The network under study, its prior, and the examples that the bounds are about."""

    network: Layers | ConvChain
    prior: Layers | ConvChain | None
    prior_name: str
    examples: Examples
    module: nn.Module | None
    trained: dict[str, Any] | None


def prepared(train: Examples, settings: SparsitySettings) -> Examples:
    """The examples as the network takes them."""
    if not settings.scales_inputs:
        return train
    scaled = unit_norm(train)
    if settings.kind == "mlp":
        return scaled
    return replace(scaled, inputs=scaled.inputs.reshape(train.inputs.shape))


def train(settings: SparsitySettings, examples: Examples, at: Context) -> Subject:
    """A chain without biases, trained toward its prior."""
    settings.check_size(examples)
    if settings.kind == "cnn":
        return _train_convolutional(settings, examples, at)
    # Building it once checks the widths, and gives the names under which it is saved.
    module = build(settings.model, examples.example_shape, examples.classes, seed=settings.seed)
    widths = [len(p) for name, p in module.named_parameters() if name.endswith("weight")][:-1]
    wanted = settings.trained_prior
    recipe = ChainTraining(steps=settings.steps, activity=settings.activity)
    prior = make_prior(
        "zero" if wanted == "none" else wanted,
        examples,
        widths,
        settings=recipe,
        seed=settings.seed,
        progress=at.progress,
    )
    toward = ChainTraining(
        steps=settings.steps,
        activity=settings.activity,
        pull=settings.pull_toward(wanted),
    )
    trained = train_chain(
        prior.start, examples, settings=toward, toward=prior.weights,
        seed=derived_seed(settings.seed, "network"), progress=at.progress,
    )  # fmt: skip
    return Subject(
        network=_named(trained.weights, module),
        prior=None if wanted == "none" else _named(prior.weights, module),
        prior_name=wanted,
        examples=prior.bound,
        module=_filled_chain(module, trained.weights),
        trained={
            "steps": settings.steps,
            "pull": toward.pull,
            "activity": settings.activity,
            "errors": chain_errors(trained.weights, examples),
            "examples": len(examples),
        },
    )


def _train_convolutional(settings: SparsitySettings, train: Examples, at: Context) -> Subject:
    """Convolutions without biases, trained toward their prior."""
    _check_theorem(settings)
    wanted = settings.trained_prior
    module = build(settings.model, train.example_shape, train.classes, seed=settings.seed)
    initial = without_biases(module).eval()
    hidden = conv_chain(initial, train.inputs[:2]).hidden
    recipe = ConvTraining(
        steps=settings.steps, learning_rate=_RATES[hidden > 1], activity=settings.activity
    )
    prior = make_conv_prior(
        "zero" if wanted == "none" else wanted,
        train,
        initial,
        settings=recipe,
        seed=settings.seed,
        progress=at.progress,
    )
    pull = settings.pull_toward(wanted)
    rate = recipe.learning_rate * (_NEAR if prior.kind == "learned" else 1.0)
    # A strong pull overshoots the prior at large steps.
    toward = replace(recipe, pull=pull, learning_rate=min(rate, 0.5 / pull) if pull else rate)
    trained = train_conv(
        prior.start, train, settings=toward, toward=prior.center,
        seed=derived_seed(settings.seed, "network"), progress=at.progress,
    )  # fmt: skip
    chain = conv_chain(trained, train.inputs[:2])
    measured = measure_conv(chain, train.inputs, train.labels, epsilons=(), level=1.0)
    return Subject(
        network=chain,
        prior=None if wanted == "none" else conv_chain(prior.center.eval(), train.inputs[:2]),
        prior_name=wanted,
        examples=prior.bound,
        module=_filled(module, trained),
        trained={
            "steps": settings.steps,
            "pull": toward.pull,
            "activity": settings.activity,
            "errors": measured.errors,
            "examples": len(train),
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
        module=None,
        trained=None,
    )


def _given_prior(
    settings: SparsitySettings, train: Examples, network: Layers | ConvChain
) -> Layers | ConvChain | None:
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


def _named(weights: Chain, module: nn.Module) -> Layers:
    names = [n for n, _ in module.named_parameters() if n.endswith("weight")]
    matrices = tuple(matrix.detach().cpu().double() for matrix in weights)
    return Layers(
        matrices, (None,) * len(matrices), tuple(name.rpartition(".")[0] for name in names)
    )


def _filled_chain(module: nn.Module, weights: Chain) -> nn.Module:
    """The chain under the built-in network's names: its biases are zero."""
    matrices = iter(weights)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("weight"):
                parameter.copy_(next(matrices))
            else:
                parameter.zero_()
    return module


def _filled(module: nn.Module, trained: nn.Module) -> nn.Module:
    """The trained weights under the built-in network's names: its biases are zero."""
    filled = copy.deepcopy(module)
    weights = dict(trained.named_parameters())
    with torch.no_grad():
        for name, parameter in filled.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
            else:
                parameter.zero_()
    return filled
