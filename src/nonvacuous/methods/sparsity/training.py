"""Training the networks of mode sparsity: weights by name in, weights by name out.

A chain of linear layers is trained with the noise that its theorems put on it, a chain of
convolutions with kernels of its own for every example. How either is trained costs nothing in a
certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    def prior(self, examples: Examples, *, seed: int) -> Weights:
        """A prior that is learned on examples which the bound leaves out."""
        own = self.settings
        return self._run(
            self.initial,
            examples,
            "prior",
            seed,
            steps=own.prior_steps,
            learning_rate=self._conv_rate if self.convolutional else _PRIOR_RATE,
            noise=self._noise(0.08),
            activity=own.activity,
        )

    def network(self, examples: Examples, *, seed: int, begin: Weights, toward: Weights) -> Weights:
        """The network itself, drawn toward its prior."""
        own, learned = self.settings, prior_kind(self.settings.prior)[0] == "learned"
        near = _CONV_PULL if self.convolutional else _PULL
        pull = (near if learned else _BLIND_PULL) if own.pull is None else own.pull
        rate = _RATE if learned else _BLIND_RATE
        if self.convolutional:
            rate = self._conv_rate * (_NEAR if learned else 1.0)
            # A strong pull overshoots the prior at large steps.
            rate = min(rate, 0.5 / pull) if pull else rate
        return self._run(
            begin,
            examples,
            "network",
            seed,
            toward=toward,
            steps=own.steps,
            learning_rate=rate,
            pull=pull,
            noise=self._noise(0.0 if learned else 0.2),
            activity=own.activity,
        )

    def twin(self, examples: Examples, *, seed: int) -> Weights:
        """The same architecture, trained for a plain test."""
        rate = self._conv_rate if self.convolutional else _PRIOR_RATE
        training: dict[str, Any] = {"steps": self.settings.steps, "learning_rate": rate}
        return self._run(self.initial, examples, "held-out twin", seed, **training, noise=0.0)

    @property
    def _conv_rate(self) -> float:
        return _CONV_RATES[len(self.names) > 2]

    def _noise(self, usual: float) -> float:
        """As asked for, or what is usual for chains of linear layers."""
        own = ConvTraining.noise if self.convolutional else usual
        return own if self.settings.noise is None else self.settings.noise

    def _run(
        self,
        begin: Weights,
        examples: Examples,
        phase: str,
        seed: int,
        *,
        toward: Weights | None = None,
        **training: Any,
    ) -> Weights:
        if self.convolutional:
            trained = train_conv(
                self._module(begin).requires_grad_(True),
                examples,
                settings=ConvTraining(**training),
                toward=None if toward is None else self._module(toward),
                seed=seed,
                phase=phase,
                progress=self.progress,
            )
            weights = dict(trained.named_parameters())
            return {name: weights[name].detach().cpu() for name in self.names}
        chain = train_chain(
            tuple(begin[name] for name in self.names),
            examples,
            settings=ChainTraining(**training),
            toward=None if toward is None else tuple(toward[name] for name in self.names),
            seed=seed,
            phase=phase,
            device=self.device,
            progress=self.progress,
        )
        return dict(zip(self.names, chain, strict=True))

    def _module(self, weights: Mapping[str, Tensor]) -> nn.Module:
        return with_weights(self.start, weights).to(self.device)


def kept(
    folder: RunFolder, trainer: Trainer, stage: str, examples: Examples, seed: int, **more: Weights
) -> Weights:
    """The weights that this stage of a run made before it was stopped, or made now and kept.

    The file carries what the weights depend on. One that depends on anything else is refused: a
    prior that was learned for another split has seen bound examples of this one.
    """
    path = folder.file(f"sparsity-{stage}.checkpoint")
    if path is None:
        return _on_cpu(getattr(trainer, stage)(examples, seed=seed, **more))
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
    made = _on_cpu(getattr(trainer, stage)(examples, seed=seed, **more))
    # The format keeps no order of its own, and layers have one.
    save_checkpoint(path, tensors=made, facts={"order": list(made)}, configuration=configuration)
    return made


def _on_cpu(weights: Weights) -> Weights:
    return {name: matrix.detach().cpu() for name, matrix in weights.items()}
