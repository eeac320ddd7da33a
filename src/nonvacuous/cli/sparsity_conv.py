"""A built-in convolutional network for ``nonvacuous sparsity``, trained toward its prior."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from nonvacuous.cli.exits import UsageError, again
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.sparsity_request import Request, Subject
from nonvacuous.data import Examples
from nonvacuous.models import build
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_reading import conv_chain
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv, without_biases
from nonvacuous.sparsity.measuring import measure_conv
from nonvacuous.sparsity.priors import make_conv_prior

#: Step sizes that suit inputs of norm 1: for one hidden layer, and for more.
_RATES = (0.5, 0.15)
#: A network that starts from a learned prior needs smaller steps.
_NEAR = 0.4


def check_theorem(request: Request) -> None:
    """Convolutional networks have one theorem; better said before they are trained."""
    if request.theorem != "E":
        raise UsageError(
            f"--theorem {request.theorem}: it covers linear layers only; a convolutional network "
            "is certified by theorem E.",
            next_command=again(replacing={"--theorem": "E"}),
        )


def train_convolutional(request: Request, train: Examples, narration: Narration) -> Subject:
    """Convolutions without biases, trained toward their prior."""
    check_theorem(request)
    wanted = request.trained_prior
    module = build(request.model, train.example_shape, train.classes, seed=request.seed)
    initial = without_biases(module).eval()
    hidden = conv_chain(initial, train.inputs[:2]).hidden
    settings = ConvTraining(
        steps=request.steps, learning_rate=_RATES[hidden > 1], activity=request.activity
    )
    prior = make_conv_prior(
        "zero" if wanted == "none" else wanted,
        train,
        initial,
        settings=settings,
        seed=request.seed,
        progress=narration,
    )
    pull = request.pull_toward(wanted)
    rate = settings.learning_rate * (_NEAR if prior.kind == "learned" else 1.0)
    # A strong pull overshoots the prior at large steps.
    toward = replace(settings, pull=pull, learning_rate=min(rate, 0.5 / pull) if pull else rate)
    trained = train_conv(
        prior.start, train, settings=toward, toward=prior.center,
        seed=derived_seed(request.seed, "network"), progress=narration,
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
            "steps": request.steps,
            "pull": toward.pull,
            "activity": request.activity,
            "errors": measured.errors,
            "examples": len(train),
        },
    )


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
