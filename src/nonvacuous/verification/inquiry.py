"""One verification under way: what is given, and what was read of it and found right so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nonvacuous.audit.probing import Recount
from nonvacuous.certificate import Certificate
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.files import inside
from nonvacuous.progress import Progress
from nonvacuous.records import Assumption, DataRecord, ExampleSet
from nonvacuous.rules.attempts import Standing
from nonvacuous.verification.findings import Collector, Disagreement, NotAsked

#: Pairs of a draw and an example for the fresh estimate.
TRIALS = 20_000


@dataclass
class Contents:
    """What was read from a run folder and found right."""

    split: Split | None = None
    prior: DiagonalGaussian | None = None
    posterior: DiagonalGaussian | None = None
    drawn: dict[str, Tensor] | None = None
    #: The network's tensors that are not random; empty where it has none.
    fixed: dict[str, Tensor] | None = None
    #: How the weights were moved from the gauge in which they were given.
    log_scales: np.ndarray | None = None
    #: The settings of the run, as its config.toml has them.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Of a progressive certificate: the tensors of its checkpoints, in order.
    checkpoints: list[dict[str, Tensor]] | None = None
    intact: set[str] = field(default_factory=set)
    #: What the ledger of attempts says about this one, if it is there and knows it.
    standing: Standing | None = None

    @property
    def method(self) -> dict[str, Any]:
        """The settings of the method; empty where config.toml is not at hand."""
        own: dict[str, Any] = self.settings.get("method", {})
        return own

    @property
    def stored(self) -> dict[str, Tensor]:
        """Every tensor of the network, by name; of the first checkpoint where there are several."""
        means = {} if self.posterior is None else self.posterior.means
        return {**means, **(self.fixed or {}), **(self.checkpoints or [{}])[0]}


@dataclass(frozen=True, eq=False)
class Known:
    """The recorded examples: all that were given, which of them do what, and the test part."""

    examples: Examples
    split: Split
    test: Examples | None
    #: Whether the inputs were standardized here, by the prior part of the examples.
    standardized: bool = False

    @cached_property
    def bound_part(self) -> Examples:
        return self.examples.subset(self.split.bound)


@dataclass
class Inquiry(Collector):
    """A certificate, and what its verifier brings: run folder, network, examples, patience.

    model    a network, a function that builds one, or a name
    trials   fresh trials of a randomized network, and their seed; by default the system draws it
    """

    certificate: Certificate
    folder: Path | None = None
    model: Any = None
    trials: int = TRIALS
    seed: int | None = None
    progress: Progress | None = None
    contents: Contents = field(default_factory=Contents)
    #: The examples, once they were compared with the recorded ones.
    examples: Known | None = None

    @property
    def known(self) -> Known:
        assert self.examples is not None
        return self.examples

    @property
    def learned(self) -> bool:
        """Whether the prior was learned on a part of the examples."""
        prior = self.certificate.prior
        return prior is not None and prior.saw is not None

    def stated(self, name: str) -> Assumption | None:
        """What the certificate says of an assumption."""
        return next((a for a in self.certificate.assumptions if a.name == name), None)

    def admitted(self, name: str) -> bool:
        """Whether the certificate itself says that it may be false."""
        stated = self.stated(name)
        return stated is not None and stated.effect != "none"

    def ask(self, name: str, question: str, field: str, work: Callable[[Path], str]) -> None:
        """A question that one file of the run folder answers, if it is there and untouched."""
        assert self.folder is not None
        folder = self.folder

        def opened() -> str:
            if name in self.certificate.artifacts and name not in self.contents.intact:
                raise NotAsked(f"{name} is missing or was changed.")
            if not (folder / name).is_file():
                raise NotAsked(f"there is no {name} in the folder.")
            return work(inside(folder, name))

        self.expect(question, field, opened)


def roles(split: Split, data: DataRecord) -> tuple[tuple[str, np.ndarray, ExampleSet | None], ...]:
    """What examples do: the field of the record, which ones they are, and the record of them."""
    return (
        ("data.bound", split.bound, data.bound),
        ("data.prior", split.prior, data.prior),
        ("data.held_out", split.heldout, data.held_out),
    )


def agree(
    again: Recount, errors: int | None, total: float | None = None, *, field: str | None = None
) -> None:
    """Raise unless losses that were counted again are those recorded, up to rounding."""
    if not again.agrees_with(errors=errors, total=total):
        amount = total if errors is None else errors
        raise Disagreement(
            f"it says {amount:g}; counted again it is {again.total:g} of {again.trials} "
            f"({again.close} hang on rounding).",
            field,
        )
