"""What ``nonvacuous sparsity`` was asked, and the network that its study is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.invocation import again
from nonvacuous.data import Examples
from nonvacuous.sparsity.certificate import Theorem
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.weights import Layers

_LEARNED = "learned:0.2"


@dataclass(frozen=True)
class Request:
    """The flags of the command."""

    data: str
    model: str
    weights: Path | None
    prior: str | None
    data_dir: Path | None
    examples: int | None
    epsilons: tuple[float, ...]
    unit_norm: bool | None
    theorem: Theorem
    pull: float | None
    activity: float
    steps: int
    confidence: float
    seed: int
    out: Path | None

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
                "gets its prior here: zero, init or learned:0.2.",
                next_command=again(replacing={"--prior": _LEARNED}),
            )
        return wanted


@dataclass(frozen=True, eq=False)
class Subject:
    """The network under study, its prior, and the examples that the bounds are about."""

    network: Layers | ConvChain
    prior: Layers | ConvChain | None
    prior_name: str
    examples: Examples
    module: nn.Module | None
    trained: dict[str, Any] | None
