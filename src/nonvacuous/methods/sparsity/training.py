"""Training the networks of mode sparsity: weights by name in, weights by name out.

A chain of linear layers is trained with the noise that its theorems put on it, a chain of
convolutions with kernels of its own for every example. How either is trained costs nothing in a
certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data import Examples
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.kinds import prior_kind
from nonvacuous.methods.sparsity import Sparsity
from nonvacuous.progress import Progress
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.training import ChainTraining, train_chain
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint

Weights = dict[str, Tensor]
Stage = Literal["prior", "network", "twin"]
#: Step sizes that suit chains with inputs of norm 1.
_PRIOR_RATE, _RATE, _BLIND_RATE = 0.5, 0.05, 0.3
#: And convolutions: with one hidden layer, and with more.
_CONV_RATES = (0.5, 0.15)
#: A convolutional network that starts from a learned prior needs smaller steps.
_NEAR = 0.4
#: How much the squared distance to a learned prior weighs: chains, and convolutions.
_PULL, _CONV_PULL = 1.0, 10.0
_BLIND_PULL = 0.003


@dataclass(frozen=True, eq=False)
class Trainer:
    """How networks of one architecture are trained; ``names`` are its weights, in their order."""

    start: nn.Module
    names: tuple[str, ...]
    convolutional: bool
    settings: Sparsity
    device: torch.device
    progress: Progress | None

    @property
    def initial(self) -> Weights:
        own = dict(self.start.named_parameters())
        return {name: own[name].detach() for name in self.names}

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
        begin, training = begin or self.initial, self._training(stage)
        phase = "held-out twin" if stage == "twin" else stage
        shared: dict[str, Any] = {"seed": seed, "phase": phase, "progress": self.progress}
        if self.convolutional:
            network = train_conv(
                self._module(begin).requires_grad_(True),
                examples,
                settings=ConvTraining(**training),
                toward=None if toward is None else self._module(toward),
                **shared,
            )
            weights: Mapping[str, Tensor] = dict(network.named_parameters())
        else:
            chain = train_chain(
                tuple(begin[name] for name in self.names),
                examples,
                settings=ChainTraining(**training),
                toward=None if toward is None else tuple(toward[name] for name in self.names),
                device=self.device,
                **shared,
            )
            weights = dict(zip(self.names, chain, strict=True))
        return {name: weights[name].detach().cpu() for name in self.names}

    def _training(self, stage: Stage) -> dict[str, Any]:
        """Step sizes, noise and pull that suit the stage, where the user asks for no others."""
        own, convolutional = self.settings, self.convolutional
        learned = prior_kind(own.prior)[0] == "learned"
        rate = _CONV_RATES[len(self.names) > 2] if convolutional else _PRIOR_RATE
        if stage == "twin":
            return {"steps": own.steps, "learning_rate": rate, "noise": 0.0}
        steps, pull, noise = own.prior_steps, 0.0, 0.08
        if stage == "network":
            near = _CONV_PULL if convolutional else _PULL
            pull = (near if learned else _BLIND_PULL) if own.pull is None else own.pull
            steps, noise = own.steps, 0.0 if learned else 0.2
            if convolutional:
                rate *= _NEAR if learned else 1.0
                # A strong pull overshoots the prior at large steps.
                rate = min(rate, 0.5 / pull) if pull else rate
            else:
                rate = _RATE if learned else _BLIND_RATE
        usual = ConvTraining.noise if convolutional else noise
        noise = usual if own.noise is None else own.noise
        shared = {"pull": pull, "noise": noise, "activity": own.activity}
        return {"steps": steps, "learning_rate": rate, **shared}

    def _module(self, weights: Mapping[str, Tensor]) -> nn.Module:
        return with_weights(self.start, weights).to(self.device)


def kept(
    folder: RunFolder,
    trainer: Trainer,
    stage: Stage,
    examples: Examples,
    seed: int,
    **more: Weights,
) -> Weights:
    """The weights that this stage of a run made before it was stopped, or made now and kept.

    The file carries what the weights depend on. One that depends on anything else is refused: a
    prior that was learned for another split has seen bound examples of this one.
    """
    path = folder.file(f"sparsity-{stage}.checkpoint")
    if path is None:
        return trainer.trained(stage, examples, seed=seed, **more)
    configuration = {
        "kind": f"sparsity {stage}",
        "architecture": str(trainer.start),
        "initial_weights": tensors_digest(dict(trainer.start.state_dict())),
        "examples": examples.content_hash(),
        "seed": seed,
        "settings": trainer.settings.record(),
        **{name: tensors_digest(weights) for name, weights in more.items()},
    }
    if path.exists():
        stored = load_checkpoint(path, configuration=configuration)
        return {name: stored.tensors[name] for name in stored.facts["order"]}
    made = trainer.trained(stage, examples, seed=seed, **more)
    # The format keeps no order of its own, and layers have one.
    save_checkpoint(path, tensors=made, facts={"order": list(made)}, configuration=configuration)
    return made
