"""What a certificate is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from nonvacuous.certification.charging import Charging
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data import Examples
from nonvacuous.risk import Loss
from nonvacuous.training import Progress


@dataclass(frozen=True, eq=False)
class Job:
    """What a certificate is asked for: the same whatever the mode."""

    mode: Literal["posterior", "post-hoc", "sparsity", "holdout"]
    predictor: Literal["stochastic", "drawn", "deterministic"]
    architecture: str
    examples: Examples
    test: Examples | None
    loss: Loss
    failure: float
    attempts: int
    trials: int
    seed: int
    device: torch.device
    folder: RunFolder
    progress: Progress | None
    pretrained: bool
    #: Declared by the user: the network of a plain test never saw the examples.
    unseen: bool
    #: Symmetries to forget in the KL, see :mod:`nonvacuous.audit.symmetries`.
    quotients: tuple[str, ...] = ()
    #: Its way into the ledger; None where none is kept.
    charging: Charging | None = None
