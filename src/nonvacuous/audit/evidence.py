"""Everything the audit looks at: the facts a certificate is made from, before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nonvacuous import records
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import Unsupported
from nonvacuous.kinds import Kind, kind_of
from nonvacuous.networks import LayerGraph
from nonvacuous.risk.losses import Loss
from nonvacuous.rules.attempts import Standing
from nonvacuous.rules.symmetries import captured
from nonvacuous.sparsity.weights import Network
from nonvacuous.sparsity_records import SparsityRecord


@dataclass(frozen=True)
class Search:
    """Something that was chosen by looking at the bound examples.

    ``charge`` says how it was paid: the name of a line in the budget with at least ``choices``
    choices, or "free" with the reason (a choice of posterior costs nothing: the bound holds for
    all posteriors at once), or None if nobody paid.
    """

    name: str
    choices: int
    charge: str | None
    reason: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """The facts. Nothing here is recomputed from a claim; claims are what is checked against it."""

    mode: str
    predictor: str
    #: Which predictor the risk was actually measured on.
    measured_predictor: str
    module: torch.nn.Module
    examples: Examples
    split: Split
    loss: Loss
    bound: records.BoundRecord
    budget: records.BudgetRecord
    risk: records.RiskRecord
    seed: int
    #: The evaluation inputs' transform, and the one the empirical risk was measured with.
    evaluation_transform: str
    risk_transform: str
    searches: tuple[Search, ...] = ()
    prior: DiagonalGaussian | None = None
    posterior: DiagonalGaussian | None = None
    complexity: records.ComplexityRecord | None = None
    #: Digest of the posterior when the KL was computed, and when the risk was sampled.
    posterior_at_kl: str | None = None
    posterior_at_risk: str | None = None
    #: Digest of the posterior before it was rescaled, if it was: the draws belong to it.
    noise_digest: str | None = None
    #: Buffers, tensors in plain attributes and parameters outside the posterior, as they were
    #: before the bound examples were seen: those of the prior's network, not those of the network
    #: that was trained.
    fixed_before: Mapping[str, torch.Tensor] | None = None
    #: Indices (into ``examples``) that the prior was fitted on, as the prior itself records them.
    prior_saw: np.ndarray | None = None
    #: True if the prior was given by the user, so that this record is the user's word; False if it
    #: was fitted here.
    prior_given: bool = False
    #: Indices that fitted the preprocessing, if any was fitted.
    preprocessing_saw: np.ndarray | None = None
    #: Every random draw made, in order, as (purpose, seed); "freeze" marks the frozen posterior.
    draws: tuple[tuple[str, int], ...] = ()
    #: What touched the test examples, in order; "freeze" as above.
    test_reads: tuple[str, ...] = ()
    test: Examples | None = None
    #: Plain error rates beside the promise, those on test examples among them.
    observed: tuple[records.Observation, ...] = ()
    #: What the ledger says about other attempts on the same examples; None if none was kept.
    standing: Standing | None = None
    #: The number of certificates on these examples that the budget was divided by.
    attempts_paid: int = 1
    #: True if examples may be dependent (groups, time), as declared by the user; None if not said.
    groups_declared: bool | None = None
    #: The network before any training here, where it is at hand.
    start: torch.nn.Module | None = None
    #: The network as a graph, where it was captured on the way.
    graph: LayerGraph | None = None
    #: Where the starting weights come from, if the user declares that they were trained on other,
    #: independent data.
    pretrained: str | None = None
    #: True if the user declares that the network of a plain test never saw the bound examples.
    unseen: bool = False
    #: The weights of the one network that was drawn, for the predictor "drawn".
    drawn: Mapping[str, torch.Tensor] | None = None
    #: What the prior itself records about the examples it saw (``Prior.saw``).
    prior_saw_digest: str | None = None
    #: Errors on prior examples set aside, if they chose the temperature or tilt of the bound.
    tilt: records.Observation | None = None
    #: Claims that will go into the certificate, compared with the facts where they are given.
    risk_upper: float | None = None
    confidence: float | None = None
    data: records.DataRecord | None = None
    #: For mode "sparsity": its terms, and network and prior as its theorems read them.
    sparsity: SparsityRecord | None = None
    layers: Network | None = None
    prior_layers: Network | None = None
    #: For mode "progressive": its batches, and the examples that each checkpoint was trained on.
    progressive: records.ProgressiveRecord | None = None
    trained_on: tuple[np.ndarray, ...] | None = None
    #: Errors on the bound examples of what the user's training makes of wrong labels for others.
    taught_wrong: records.Observation | None = None

    @property
    def kind(self) -> Kind:
        return kind_of(self.mode)

    @cached_property
    def captured(self) -> LayerGraph:
        """The network as a graph, captured once for all checks."""
        if self.graph is not None:
            return self.graph
        try:
            return captured(self.module, self.examples.inputs)
        except Unsupported as error:
            raise Unsupported(
                f"no symmetry of this network is known, but some are used: {error}"
            ) from error

    @property
    def bound_part(self) -> Examples:
        return self.examples.subset(self.split.bound)  # a copy: some networks write into inputs

    @property
    def bound_examples(self) -> int:
        """The n of the theorem."""
        return len(self.split.bound)


#: Facts that a certificate records under the names they have here.
RECORDED = (
    "mode", "predictor", "bound", "budget", "complexity", "data", "sparsity", "progressive",
    "risk_upper", "confidence", "seed",
)  # fmt: skip


class NotStored(Exception):
    """A check asked for a fact that a finished run does not keep."""


class StoredEvidence(Evidence):
    """The facts as far as a finished run keeps them; asking for another one raises."""

    def __init__(self, **facts: Any) -> None:
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        if name in _FACTS and name not in object.__getattribute__(self, "__dict__"):
            raise NotStored(name)  # not the default: nobody said that it was so
        return object.__getattribute__(self, name)


_FACTS = frozenset(field.name for field in fields(Evidence))
