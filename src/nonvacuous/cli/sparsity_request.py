"""What ``nonvacuous sparsity`` was asked, and the network that its study is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nonvacuous.cli.exits import CommandError, UsageError, again
from nonvacuous.cli.networks import check_file
from nonvacuous.cli.sparsity import Flags
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.priors import parse_prior
from nonvacuous.sparsity.study import FEWEST
from nonvacuous.sparsity.weights import Layers

_LEARNED = "learned:0.2"


@dataclass(frozen=True, kw_only=True)
class Request(Flags):
    """The flags of the command, ``epsilons`` as numbers."""

    sizes: tuple[float, ...]

    @property
    def kind(self) -> str:
        """The name of the architecture, without its sizes."""
        return self.model.partition(":")[0]

    @property
    def trains(self) -> bool:
        """Whether the network is trained here."""
        return self.kind in ("mlp", "cnn") and self.weights is None

    @property
    def scales_inputs(self) -> bool:
        """Whether inputs are brought to norm 1."""
        return self.trains if self.unit_norm is None else self.unit_norm

    def pull_toward(self, prior: str) -> float:
        """How strongly training is drawn to this prior.

        A learned prior classifies already, and a convolution's noise meets every position: there
        staying close pays.
        """
        if prior == "none":
            return 0.0
        if self.pull is not None:
            return self.pull
        return 10.0 if self.kind == "cnn" and prior.startswith("learned") else 0.1

    @property
    def trained_prior(self) -> str:
        """The prior of a network that is trained here."""
        wanted = self.prior or _LEARNED
        if wanted.endswith(".safetensors"):
            raise UsageError(
                f"--prior {wanted}: a file goes with --weights. A network that is trained here "
                "gets its prior here: zero, initialization or learned:0.2.",
                next_command=again(replacing={"--prior": _LEARNED}),
            )
        return wanted

    def check(self) -> None:
        """Raise a usage error for what cannot be meant, before anything is announced."""
        if self.weights is not None:
            check_file(self.weights, flag="--weights")
        if not self.trains:
            prior = self.prior or "none"
            if prior not in ("none", "zero") and not prior.startswith(("learned", "init")):
                check_file(Path(prior), flag="--prior")
            return
        if self.trained_prior == "none":
            return
        try:
            parse_prior(self.trained_prior)
        except BadInput as error:
            raise UsageError(
                f"--prior: {error}.", next_command=again(replacing={"--prior": _LEARNED})
            ) from error

    def check_size(self, examples: Examples) -> None:
        """Refuse too few examples before the network is trained for nothing."""
        fraction = 0.0 if self.trained_prior == "none" else parse_prior(self.trained_prior)[1]
        left = len(examples) - round(fraction * len(examples))
        if left >= FEWEST:
            return
        kept = f", of which --prior {self.trained_prior} leaves {left}" if fraction else ""
        enough = len(examples) >= FEWEST
        raise CommandError(
            f"{examples.name} has {len(examples)} examples{kept}; a study of how activations are "
            f"distributed needs at least {FEWEST}. "
            + ("Take a prior that needs none." if enough else "Bring more examples."),
            next_command=again(replacing={"--prior": "initialization"}) if enough else None,
        )


@dataclass(frozen=True, eq=False)
class Subject:
    """The network under study, its prior, and the examples that the bounds are about."""

    network: Layers | ConvChain
    prior: Layers | ConvChain | None
    prior_name: str
    examples: Examples
    module: nn.Module | None
    trained: dict[str, Any] | None
