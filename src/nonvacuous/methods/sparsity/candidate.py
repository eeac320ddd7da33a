"""A fixed network and its prior for a certificate by derandomization: trained here, or given.

Training here gives a plain ReLU chain, with or without convolutions, without biases, drawn toward a
prior that is zero, its own start, or learned on one part of the examples. How it is trained costs
nothing: the theorems hold for all weights at once. A given network is taken as it is, with a prior
that the user brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.certification.candidate import frozen_copy, start_at, with_weights
from nonvacuous.certification.job import Job
from nonvacuous.certification.twin import (
    plain_test,
    separate_twin,
    trained_twin,
    twin_seed,
    twin_split,
)
from nonvacuous.data import Examples, Split
from nonvacuous.distributions.priors import Prior
from nonvacuous.errors import BadInput
from nonvacuous.kinds import prior_kind
from nonvacuous.methods.sparsity import Sparsity
from nonvacuous.methods.sparsity.training import Trainer, kept
from nonvacuous.records import TwinRecord
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.conv_reading import is_convolutional, read_network
from nonvacuous.sparsity.weights import Network


@dataclass(frozen=True, eq=False)
class SparseCandidate:
    """A network that nothing will change any more, and its prior.

    center        the prior's weights, by the names of the network's parameters
    kind          zero, initialization or learned

    The others are those of :class:`~nonvacuous.certification.candidate.Candidate`.
    """

    module: nn.Module
    center: dict[str, Tensor]
    kind: str
    saw: np.ndarray | None
    start: nn.Module | None
    fixed_before: Mapping[str, Tensor]
    saw_digest: str | None = None
    draws: tuple[tuple[str, int], ...] = ()

    @property
    def description(self) -> str:
        center = {
            "zero": "weights of zero",
            "initialization": "the initial weights",
            "learned": f"weights learned on {0 if self.saw is None else len(self.saw)} examples "
            "that the bound leaves out",
        }[self.kind]
        return f"Gaussian around {center}, with the noise of the setting."


def trained_candidate(method: Sparsity, job: Job, model: nn.Module) -> SparseCandidate:
    """Train the model's chain toward its prior; the prior part alone shapes a learned one.

    The network may learn from all examples: the bound counts those of ``split.bound`` alone.
    """
    examples, split, seed, folder = job.examples, job.split, job.seed, job.folder
    trainer = _trainer(method, job, model)
    start, initial = trainer.start, trainer.initial
    kind, _ = prior_kind(method.prior)
    draws: list[tuple[str, int]] = []
    center = initial
    if kind == "zero":
        center = {name: torch.zeros_like(matrix) for name, matrix in initial.items()}
    elif kind == "learned":
        prior_seed = derived_seed(seed, "prior training")
        draws.append(("prior training", prior_seed))
        center = kept(folder, trainer, "prior", examples.subset(split.prior), prior_seed)
    network_seed = derived_seed(seed, "network training")
    draws.append(("network training", network_seed))
    begin = center if kind == "learned" else initial
    weights = kept(folder, trainer, "network", examples, network_seed, begin=begin, toward=center)
    return SparseCandidate(
        module=with_weights(start, weights),
        center=dict(center),
        kind=kind,
        saw=split.prior if kind == "learned" else None,
        start=None if kind == "zero" else start,
        fixed_before=dict(start.named_buffers()),
        draws=tuple(draws),
    )


def given_candidate(
    model: nn.Module, examples: Examples, split: Split, *, prior: Prior
) -> SparseCandidate:
    """The user's network as it is, around a prior that has not seen the bound examples."""
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
    read_network(with_weights(module, center), examples.inputs[:2])
    return SparseCandidate(
        module=module,
        center=center,
        kind=kind,
        saw=split.prior if kind == "learned" else None,
        saw_digest=prior.saw,
        start=start_at(module, prior),
        # The layers cover every weight, and a buffer that took part would have been refused.
        fixed_before=prior.fixed if prior.fixed is not None else dict(module.named_buffers()),
    )


def sparse_twin(
    method: Sparsity, job: Job, candidate: SparseCandidate, model: nn.Module
) -> TwinRecord | None:
    """What a plain test promises: of the learned prior, or of a network that is trained for it."""
    if candidate.saw is not None:
        own = with_weights(candidate.module, candidate.center)
        return plain_test(own, job.examples, job.split, failure=job.failure, separate=False)
    if method.given is not None:
        if candidate.start is None:
            return None  # a prior of zeros says nothing about where training starts
        start = frozen_copy(candidate.start).requires_grad_(True)
        return trained_twin(job, start, method.plain_training)
    split, seed = twin_split(job.examples, job.seed), twin_seed(job.seed)
    trainer = _trainer(method, job, model)
    weights = kept(job.folder, trainer, "twin", job.examples.subset(split.prior), seed)
    return separate_twin(job, with_weights(trainer.start, weights), split)


def layer_tensors(module: nn.Module, layers: Network) -> tuple[tuple[str, ...], ...]:
    """The names of each layer's parameters: its weights, then its bias if it has one.

    By the layer's own name where it is the owner of its parameters, else by content.
    """
    parameters = {name: p.detach().cpu().double() for name, p in module.named_parameters()}
    used: set[str] = set()

    def find(value: Tensor, likely: str) -> str:
        for name in (likely, *parameters):
            if name in parameters and name not in used and _same(parameters[name], value):
                used.add(name)
                return name
        raise BadInput(
            f"{likely} is not a parameter of the network as it stands, but computed from others; a "
            "sparsity certificate records the network's own parameters. Write the layer out"
        )

    layered = []
    for name, weight, bias in zip(layers.names, layers.weights, layers.biases, strict=True):
        names = (find(weight, f"{name}.weight"),)
        layered.append(names if bias is None else (*names, find(bias, f"{name}.bias")))
    left = [name for name in parameters if name not in used]
    if left:
        raise BadInput(
            f"the network has a parameter {left[0]!r} that no layer uses; remove it, so that the "
            "certificate covers the whole network"
        )
    return tuple(layered)


def chain_names(module: nn.Module, examples: Examples) -> tuple[str, ...]:
    """The weights of a chain that can be trained here, first layer first."""
    layers = read_network(module, examples.inputs[:2])
    named = zip(layers.names, layers.biases, strict=True)
    biased = [name for name, bias in named if bias is not None]
    if biased:
        raise BadInput(
            f"layer {biased[0]} has a bias, and the networks that mode sparsity trains have none. "
            "Build it without biases (bias=False; built-in: mlp:100/no-bias, cnn:16/no-bias), or "
            "train it yourself and give a prior"
        )
    return tuple(names[0] for names in layer_tensors(module, layers))


def _same(parameter: Tensor, value: Tensor) -> bool:
    """A linear layer of a convolutional chain is read as a kernel with the same numbers."""
    flat = value.dim() == 4 and parameter.dim() == 2
    return torch.equal(parameter, value.flatten(1) if flat else value)


def _trainer(method: Sparsity, job: Job, model: nn.Module) -> Trainer:
    start = frozen_copy(model, torch.device("cpu"))
    names = chain_names(start, job.examples)
    return Trainer(start, names, is_convolutional(start), method, job.device, job.progress)
