"""A fixed network and its prior for a certificate by derandomization: trained here, or given.

Training here gives a plain ReLU chain without biases, drawn toward a prior that is zero, its own
start, or learned on one part of the examples. How it is trained costs nothing: the theorems hold
for all weights at once. A given network is taken as it is, with a prior that the user brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.certification.candidate import frozen_copy, with_weights
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.certification.sparsity_settings import SparsitySettings, prior_kind
from nonvacuous.certification.twin import TRAINED_FRACTION, tested_twin
from nonvacuous.data import Examples, Split, make_split
from nonvacuous.distributions.priors import Prior
from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.records import TwinRecord
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.chains import unit_norm
from nonvacuous.sparsity.conv_reading import is_convolutional
from nonvacuous.sparsity.training import ChainTraining, train_chain
from nonvacuous.sparsity.weights import Layers
from nonvacuous.training import Progress

#: Step sizes that suit chains with inputs of norm 1.
_PRIOR_RATE, _RATE, _BLIND_RATE = 0.5, 0.05, 0.3


@dataclass(frozen=True, eq=False)
class SparseCandidate:
    """A network that nothing will change any more, and its prior.

    center        the prior's weights, by the names of the network's parameters
    kind          zero, initialization or learned
    saw           indices of the examples that shaped the prior
    start         the network before any training here, if it is at hand
    fixed_before  everything in the network that is not a weight, before the bound examples
    draws         (purpose, seed) of every random stream used so far
    """

    module: nn.Module
    split: Split
    center: dict[str, Tensor]
    kind: str
    description: str
    saw: np.ndarray | None
    saw_digest: str | None
    start: nn.Module | None
    fixed_before: Mapping[str, Tensor] | None
    draws: tuple[tuple[str, int], ...]


def scaled(examples: Examples) -> Examples:
    """The examples with inputs of norm 1, in their shape."""
    flat = unit_norm(examples)
    return replace(flat, inputs=flat.inputs.reshape(examples.inputs.shape))


def trained_candidate(
    model: nn.Module,
    examples: Examples,
    split: Split,
    *,
    settings: SparsitySettings,
    seed: int,
    device: torch.device,
    folder: RunFolder,
    progress: Progress | None,
) -> SparseCandidate:
    """Train the model's chain toward its prior; the prior part alone shapes a learned one.

    The network may learn from all examples: the bound counts those of ``split.bound`` alone.
    """
    _check_linear(model)
    start = frozen_copy(model, torch.device("cpu"))
    names = chain_names(start, examples)
    initial = tuple(dict(start.named_parameters())[name].detach() for name in names)
    kind, _ = prior_kind(settings.prior)
    draws: list[tuple[str, int]] = []
    center = initial
    if kind == "zero":
        center = tuple(torch.zeros_like(matrix) for matrix in initial)
    elif kind == "learned":
        prior_seed = derived_seed(seed, "prior training")
        draws.append(("prior training", prior_seed))
        center = _stage(
            folder.file("sparsity-prior.checkpoint"),
            names,
            lambda: (
                train_chain(
                    initial,
                    examples.subset(split.prior),
                    settings=_prior_training(settings),
                    seed=prior_seed,
                    phase="prior",
                    device=device,
                    progress=progress,
                ).weights
            ),
        )
    network_seed = derived_seed(seed, "network training")
    draws.append(("network training", network_seed))
    weights = _stage(
        folder.file("sparsity-network.checkpoint"),
        names,
        lambda: (
            train_chain(
                center if kind == "learned" else initial,
                examples,
                settings=_network_training(settings, kind),
                toward=center,
                seed=network_seed,
                phase="network",
                device=device,
                progress=progress,
            ).weights
        ),
    )
    learned = kind == "learned"
    return SparseCandidate(
        module=with_weights(start, dict(zip(names, weights, strict=True))),
        split=split,
        center=dict(zip(names, center, strict=True)),
        kind=kind,
        description=_description(kind, len(split.prior)),
        saw=split.prior if learned else None,
        saw_digest=None,
        start=None if kind == "zero" else start,
        fixed_before=dict(start.named_buffers()),
        draws=tuple(draws),
    )


def given_candidate(
    model: nn.Module, examples: Examples, split: Split, *, prior: Prior
) -> SparseCandidate:
    """The user's network as it is, around a prior that has not seen the bound examples."""
    _check_linear(model)
    module = frozen_copy(model, torch.device("cpu"))
    kind = "zero" if prior.kind == "zero-mean" else prior.kind
    parameters = dict(module.named_parameters())
    if prior.means is None:
        center = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    else:
        missing = [name for name in parameters if name not in prior.means]
        if missing or len(prior.means) != len(parameters):
            raise BadInput(
                f"the prior is one of another network: see {(missing or list(prior.means))[0]!r}. "
                "Build it from the same architecture"
            )
        center = {name: prior.means[name].detach().cpu() for name in parameters}
    # Reading refuses, by name, whatever is not a plain chain.
    Layers.from_module(with_weights(module, center), examples.inputs[:2])
    return SparseCandidate(
        module=module,
        split=split,
        center=center,
        kind=kind,
        description=_description(kind, len(split.prior)),
        saw=split.prior if kind == "learned" else None,
        saw_digest=prior.saw,
        start=with_weights(module, center) if kind == "initialization" else None,
        # Layers covers every weight, and a buffer that took part would have been refused.
        fixed_before=prior.fixed if prior.fixed is not None else dict(module.named_buffers()),
        draws=(),
    )


def sparse_twin(
    candidate: SparseCandidate,
    model: nn.Module,
    examples: Examples,
    *,
    settings: SparsitySettings,
    failure: float,
    seed: int,
    device: torch.device,
    folder: RunFolder,
    progress: Progress | None,
) -> TwinRecord:
    """What a plain test promises: of the learned prior, or of a chain that is trained for it."""
    if candidate.saw is not None:
        bound = candidate.split.bound
        return tested_twin(
            with_weights(candidate.module, candidate.center),
            examples.subset(bound),
            description=(
                f"the prior's own network, trained on {len(candidate.saw)} examples and tested "
                f"once on the {len(bound)} bound examples"
            ),
            failure=failure,
        )
    twin_seed = derived_seed(seed, "held-out twin")
    split = make_split(
        len(examples),
        prior_fraction=TRAINED_FRACTION,
        seed=twin_seed,
        content_hashes=examples.content_hashes(),
    )
    start = frozen_copy(model, torch.device("cpu"))
    names = chain_names(start, examples)
    initial = tuple(dict(start.named_parameters())[name].detach() for name in names)
    weights = _stage(
        folder.file("sparsity-twin.checkpoint"),
        names,
        lambda: (
            train_chain(
                initial,
                examples.subset(split.prior),
                settings=ChainTraining(steps=settings.steps, learning_rate=_PRIOR_RATE),
                seed=twin_seed,
                phase="held-out twin",
                device=device,
                progress=progress,
            ).weights
        ),
    )
    return tested_twin(
        with_weights(start, dict(zip(names, weights, strict=True))),
        examples.subset(split.bound),
        description=(
            f"the same architecture trained plainly on {len(split.prior)} of the examples and "
            f"tested once on the other {len(split.bound)}"
        ),
        failure=failure,
    )


def layer_tensors(module: nn.Module, layers: Layers) -> tuple[tuple[str, ...], ...]:
    """The names of each layer's parameters: its weights, then its bias if it has one.

    By the layer's own name where it is the owner of its parameters, else by content.
    """
    parameters = {name: p.detach().cpu().double() for name, p in module.named_parameters()}
    used: set[str] = set()

    def find(value: Tensor, likely: str) -> str:
        for name in (likely, *parameters):
            if name in parameters and name not in used and torch.equal(parameters[name], value):
                used.add(name)
                return name
        raise BadInput(
            f"{likely} is not a parameter of the network as it stands, but computed from others; a "
            "sparsity certificate records the network's own parameters. Write the layer out"
        )

    found = []
    for name, weight, bias in zip(layers.names, layers.weights, layers.biases, strict=True):
        names = (find(weight, f"{name}.weight"),)
        found.append(names if bias is None else (*names, find(bias, f"{name}.bias")))
    left = [name for name in parameters if name not in used]
    if left:
        raise BadInput(
            f"the network has a parameter {left[0]!r} that no layer uses; remove it, so that the "
            "certificate covers the whole network"
        )
    return tuple(found)


def chain_names(module: nn.Module, examples: Examples) -> tuple[str, ...]:
    """The weights of a chain that can be trained here, first layer first."""
    layers = Layers.from_module(module, examples.inputs[:2])
    biased = [name for name, b in zip(layers.names, layers.biases, strict=True) if b is not None]
    if biased:
        raise BadInput(
            f"layer {biased[0]} has a bias, and the networks that mode sparsity trains have none. "
            "Build it without biases (bias=False; built-in: mlp:100/no-bias), or train it "
            "yourself and give a prior"
        )
    return tuple(names[0] for names in layer_tensors(module, layers))


def _check_linear(model: nn.Module) -> None:
    """Convolutions have a theorem, but no run folder that could be verified."""
    if is_convolutional(model):
        raise NotYetSupported(
            "the network has convolutions, and mode sparsity covers perceptrons. `nonvacuous "
            "sparsity` certifies convolutional networks (nv.sparsity.certify_sparse_conv); "
            "`certify --mode post-hoc` covers them too, for weights with noise"
        )


def _prior_training(settings: SparsitySettings) -> ChainTraining:
    noise = 0.08 if settings.noise is None else settings.noise
    return ChainTraining(
        steps=settings.prior_steps,
        learning_rate=_PRIOR_RATE,
        noise=noise,
        activity=settings.activity,
    )


def _network_training(settings: SparsitySettings, kind: str) -> ChainTraining:
    learned = kind == "learned"
    noise = (0.0 if learned else 0.2) if settings.noise is None else settings.noise
    pull = (1.0 if learned else 0.003) if settings.pull is None else settings.pull
    return ChainTraining(
        steps=settings.steps,
        learning_rate=_RATE if learned else _BLIND_RATE,
        pull=pull,
        noise=noise,
        activity=settings.activity,
    )


def _stage(
    path: Path | None, names: Sequence[str], work: Callable[[], Sequence[Tensor]]
) -> tuple[Tensor, ...]:
    """The weights that this stage of a run made before it was stopped, or made now and kept."""
    if path is not None and path.exists():
        kept = load_tensors(path, kind="weights", device="cpu")
        return tuple(kept[name] for name in names)
    made = tuple(matrix.detach().cpu() for matrix in work())
    if path is not None:
        save_tensors(path, dict(zip(names, made, strict=True)), kind="weights")
    return made


def _description(kind: str, prior_examples: int) -> str:
    center = {
        "zero": "weights of zero",
        "initialization": "the initial weights",
        "learned": f"weights learned on {prior_examples} examples that the bound leaves out",
    }[kind]
    return f"Gaussian around {center}, with the noise of the setting."
