"""A fixed network and its prior for a certificate by derandomization: trained here, or given.

Training here gives a plain ReLU chain, with or without convolutions, without biases, drawn toward a
prior that is zero, its own start, or learned on one part of the examples. How it is trained costs
nothing: the theorems hold for all weights at once. A given network is taken as it is, with a prior
that the user brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nonvacuous.certification import measurement
from nonvacuous.certification.candidate import frozen_copy, start_at, with_weights
from nonvacuous.certification.job import Job
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import priors, storage
from nonvacuous.errors import BadInput
from nonvacuous.kinds import prior_kind
from nonvacuous.methods.sparsity import Sparsity
from nonvacuous.records import TwinRecord
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import conv_chain, conv_reading, conv_training
from nonvacuous.sparsity.training import ChainTraining, train_chain
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint


@dataclass(frozen=True, eq=False)
class SparseCandidate:
    """A network that nothing will change any more, and its prior before any noise.

    center   the prior's weights, by the names of the network's parameters
    kind     zero, initialization or learned
    facts    what the :class:`~nonvacuous.certification.candidate.Candidate` tells the audit
    """

    module: nn.Module
    center: dict[str, Tensor]
    kind: str
    facts: dict[str, Any]


def trained_candidate(method: Sparsity, job: Job, model: nn.Module) -> SparseCandidate:
    """Train the model's chain toward its prior; the prior part alone shapes a learned one.

    The network may learn from all examples: the bound counts those of ``split.bound`` alone.
    """
    examples, split, seed = job.examples, job.split, job.seed
    trainer = Trainer(method, job, model)
    start, initial = trainer.start, trainer.initial
    kind, _ = prior_kind(method.prior)
    draws: list[tuple[str, int]] = []
    center = initial
    if kind == "zero":
        center = {name: torch.zeros_like(matrix) for name, matrix in initial.items()}
    elif kind == "learned":
        prior_seed = derived_seed(seed, "prior training")
        draws.append(("prior training", prior_seed))
        center = trainer.kept("prior", examples.subset(split.prior), prior_seed)
    network_seed = derived_seed(seed, "network training")
    draws.append(("network training", network_seed))
    begin = center if kind == "learned" else initial
    weights = trainer.kept("network", examples, network_seed, begin=begin, toward=center)
    return SparseCandidate(
        module=with_weights(start, weights),
        center=dict(center),
        kind=kind,
        facts={
            "prior_saw": split.prior if kind == "learned" else None,
            "start": None if kind == "zero" else start,
            "fixed_before": dict(start.named_buffers()),
            "draws": tuple(draws),
        },
    )


def given_candidate(
    model: nn.Module, examples: Examples, split: Split, *, prior: priors.Prior
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
    conv_reading.read_network(with_weights(module, center), examples.inputs[:2])
    return SparseCandidate(
        module=module,
        center=center,
        kind=kind,
        facts={
            "prior_saw": split.prior if kind == "learned" else None,
            "prior_saw_digest": prior.saw,
            # Only a prior that came from outside brings a record of its own.
            "prior_given": prior.saw is not None,
            "start": start_at(module, prior),
            # The layers cover every weight, and a buffer that took part would have been refused.
            "fixed_before": dict(module.named_buffers()) if prior.fixed is None else prior.fixed,
            "draws": (),
        },
    )


def sparse_twin(
    method: Sparsity, job: Job, candidate: SparseCandidate, model: nn.Module
) -> TwinRecord | None:
    """What a plain test promises: of the learned prior, or of a network that is trained for it."""
    saw, start = candidate.facts["prior_saw"], candidate.facts["start"]
    if saw is not None:
        own = with_weights(candidate.module, candidate.center)
        return measurement.plain_test(
            own, job.examples, job.split, failure=job.failure, separate=False
        )
    if method.given is not None:
        if start is None:
            return None  # a prior of zeros says nothing about where training starts
        start = frozen_copy(start).requires_grad_(True)
        return measurement.trained_twin(job, start, method.plain_training)
    split, seed = measurement.twin_split(job.examples, job.seed), measurement.twin_seed(job.seed)
    trainer = Trainer(method, job, model)
    weights = trainer.kept("twin", job.examples.subset(split.prior), seed)
    return measurement.separate_twin(job, with_weights(trainer.start, weights), split)


Weights = dict[str, Tensor]
Stage = Literal["prior", "network", "twin"]
#: Step sizes that suit chains with inputs of norm 1.
_PRIOR_RATE, _RATE, _BLIND_RATE = 0.5, 0.05, 0.3
#: How much the squared distance to a learned prior weighs: chains, and convolutions.
_PULL, _CONV_PULL = 1.0, 10.0
_BLIND_PULL = 0.003


class Trainer:
    """Trains networks of one architecture; ``names`` are its weights, in their order.

    A chain of linear layers is trained with the noise that its theorems put on it, a chain of
    convolutions with kernels of its own for every example.
    """

    def __init__(self, method: Sparsity, job: Job, model: nn.Module) -> None:
        self.settings, self.job = method, job
        self.start = frozen_copy(model, torch.device("cpu"))
        layers, tensors = conv_reading.read_parameters(self.start, job.examples.inputs[:2])
        named = zip(layers.names, layers.biases, strict=True)
        biased = [name for name, bias in named if bias is not None]
        if biased:
            raise BadInput(
                f"layer {biased[0]} has a bias, and the networks that mode sparsity trains have "
                "none. Build it without biases (bias=False; built-in: mlp:100/no-bias, "
                "cnn:16/no-bias), or train it yourself and give a prior"
            )
        self.names = tuple(weight for weight, *_ in tensors)
        self.convolutional = isinstance(layers, conv_chain.ConvChain)
        own = dict(self.start.named_parameters())
        self.initial: Weights = {name: own[name].detach() for name in self.names}

    def trained(
        self,
        stage: Stage,
        examples: Examples,
        *,
        seed: int,
        begin: Weights | None = None,
        toward: Weights | None = None,
    ) -> Weights:
        """A prior on examples which the bound leaves out, the network itself, drawn toward its
        prior, or the same architecture for a plain test."""
        training, begin = self._training(stage), begin or self.initial
        phase, ends = "held-out twin" if stage == "twin" else stage, (begin, toward or begin)
        shared: dict[str, Any] = {"seed": seed, "phase": phase, "progress": self.job.progress}
        if self.convolutional:
            shared["settings"] = conv_training.ConvTraining(**training)
            first, center = (with_weights(self.start, end).to(self.job.device) for end in ends)
            first.requires_grad_(True)
            network = conv_training.train_conv(first, examples, toward=center, **shared)
            weights: Mapping[str, Tensor] = dict(network.named_parameters())
        else:
            shared |= {"settings": ChainTraining(**training), "device": self.job.device}
            start, anchors = ([end[name] for name in self.names] for end in ends)
            chain = train_chain(start, examples, toward=anchors, **shared)
            weights = dict(zip(self.names, chain, strict=True))
        return {name: weights[name].detach().cpu() for name in self.names}

    def _training(self, stage: Stage) -> dict[str, Any]:
        """Step sizes, noise and pull that suit the stage, where the user asks for no others."""
        own, convolutional = self.settings, self.convolutional
        learned = prior_kind(own.prior)[0] == "learned"
        hidden = len(self.names) - 1
        rate = conv_training.step_size(hidden) if convolutional else _PRIOR_RATE
        if stage == "twin":
            return {"steps": own.steps, "learning_rate": rate, "noise": 0.0}
        steps, pull, noise = own.prior_steps, 0.0, 0.08
        if stage == "network":
            near = _CONV_PULL if convolutional else _PULL
            pull = (near if learned else _BLIND_PULL) if own.pull is None else own.pull
            steps, noise = own.steps, 0.0 if learned else 0.2
            rate = _RATE if learned else _BLIND_RATE
            if convolutional:
                rate = conv_training.step_size(hidden, learned=learned, pull=pull)
        usual = conv_training.ConvTraining.noise if convolutional else noise
        noise = usual if own.noise is None else own.noise
        shared = {"pull": pull, "noise": noise, "activity": own.activity}
        return {"steps": steps, "learning_rate": rate, **shared}

    def kept(self, stage: Stage, examples: Examples, seed: int, **more: Weights) -> Weights:
        """The weights that this stage of a run made before it was stopped, or made now and kept.

        The file carries what the weights depend on. One that depends on anything else is refused: a
        prior that was learned for another split has seen bound examples of this one.
        """
        path = self.job.folder.file(f"sparsity-{stage}.checkpoint")
        if path is None:
            return self.trained(stage, examples, seed=seed, **more)
        configuration = {
            "kind": f"sparsity {stage}",
            "architecture": str(self.start),
            "initial_weights": storage.tensors_digest(dict(self.start.state_dict())),
            "examples": examples.content_hash(),
            "seed": seed,
            "settings": self.settings.record(),
            **{name: storage.tensors_digest(weights) for name, weights in more.items()},
        }
        if path.exists():
            stored = load_checkpoint(path, configuration=configuration)
            return {name: stored.tensors[name] for name in stored.facts["order"]}
        made = self.trained(stage, examples, seed=seed, **more)
        # The format keeps no order of its own, and layers have one.
        facts = {"order": list(made)}
        save_checkpoint(path, tensors=made, facts=facts, configuration=configuration)
        return made
