"""One network under equal noise, accounted for in every way, as the rescaling figure records it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from nonvacuous.bounds import sampling
from nonvacuous.bounds.rounding import shown_up
from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.kinds import Center
from nonvacuous.networks import LayerGraph, ScaleGroups, capture, scale_groups
from nonvacuous.papers.rescaling.settings import MLPS, PublishedMlp
from nonvacuous.progress import Progress
from nonvacuous.records import PaperAccounting
from nonvacuous.rescaling.columns import (
    Accounted,
    Accounting,
    best_scale_columns,
    fixed_scale_columns,
    symmetry_columns,
)
from nonvacuous.rescaling.quotients import symmetries_of
from nonvacuous.rescaling.solver import rescale
from nonvacuous.risk.pairs import RiskEstimate, estimate_risk
from nonvacuous.study.settings import CellRecord, Frozen

#: The part of the failure probability that pays for sampling a risk.
_SAMPLING_SHARE = 0.2


class Column(Frozen):
    """One way to account for the complexity, in nats, and the two bounds that follow.

    charge_nats   what the choice of the prior's scale from its grid costs; the bounds contain it
    """

    name: str
    kl_nats: float
    charge_nats: float
    mcallester: float
    kl_inverse: float


class PaperSetting(Frozen):
    """The paper's own formula, risk + sqrt(KL / 2n): neither clipped at 1 nor with a confidence.

    kl_before, kl_after   nats, in weight space and after the best rescaling
    empirical_risk        mean error of the randomized network on the examples, as sampled
    """

    kl_before: float
    kl_after: float
    empirical_risk: float
    bound: float
    rescaled: float

    @property
    def kl_ratio(self) -> float:
        return self.kl_before / self.kl_after


class OurSetting(Frozen):
    """An audited certificate for the same weights, with a prior at their initial values.

    tensor_kl_nats, tensor_risk_upper
                    the same without forgetting the shift of the scores
    certificate     where the certificate lies, from the folder of the figure
    """

    risk_upper: float
    kl_nats: float
    tensor_risk_upper: float
    tensor_kl_nats: float
    empirical_errors: int
    trials: int
    status: str
    is_vacuous: bool
    posterior: str
    held_out_twin: float | None
    test_error: float | None
    certificate: str


class NetworkResult(CellRecord):
    """Everything about one network."""

    name: str
    widths: tuple[int, ...]
    weights: int
    examples: int
    train_errors: int
    paper: PaperSetting
    ours: OurSetting
    columns: Mapping[str, tuple[Column, ...]]
    is_published_data: bool

    @property
    def published(self) -> PublishedMlp | None:
        """The paper's numbers, where the network and the data are the paper's."""
        printed = MLPS if self.is_published_data else ()
        return next((entry for entry in printed if entry.widths == self.widths), None)

    @property
    def ratio_error(self) -> float | None:
        """Our KL ratio over the published one, minus 1."""
        return self.paper.kl_ratio / self.published.kl_ratio - 1 if self.published else None

    @property
    def bound_fraction(self) -> float | None:
        """Our certificate over the published rescaled bound."""
        return self.ours.risk_upper / self.published.rescaled if self.published else None

    def lines(self) -> tuple[str]:
        ratio = f"KL ratio {self.paper.kl_ratio:.2f}"
        ours = f"certificate {shown_up(self.ours.risk_upper)}"
        if shown := self.published:
            ratio += f" (published {shown.kl_ratio:.2f})"
            ours += f" (published {shown.bound:.2f}, rescaled {shown.rescaled:.2f})"
        return (f"{self.name}: {ratio}, {ours}",)


@dataclass(frozen=True, eq=False)
class Accounts:
    """A trained network, its initial weights, and the examples that its risk is measured on.

    prior_scale   of the fixed prior; grid: those to choose from
    trials        pairs of an example and a draw of the weights, for every risk
    seed          of the draws, by the scale of the noise
    """

    trained: nn.Module
    initial: nn.Module
    examples: Examples
    prior_scale: float
    grid: ScaleGrid
    trials: int
    confidence: float
    seed: Callable[[float], int]

    @cached_property
    def graph(self) -> LayerGraph:
        return capture(self.trained, self.examples.inputs[:2])

    @cached_property
    def groups(self) -> ScaleGroups:
        return scale_groups(self.graph)

    def risk(self, scale: float) -> RiskEstimate:
        """The risk under noise of this scale."""
        device = self.examples.inputs.device
        return estimate_risk(
            self.trained,
            DiagonalGaussian.around(self.trained, scale=scale),
            self.examples,
            trials=self.trials,
            generator=torch.Generator(device=device).manual_seed(self.seed(scale)),
        )

    def paper(self, scale: float, prior_scale: float, risk: RiskEstimate) -> PaperSetting:
        """The paper's formula for noise of one scale and a prior around zero of another."""
        posterior = DiagonalGaussian.around(self.trained, scale=scale)
        prior = DiagonalGaussian.centered(self.trained, scale=prior_scale)
        moved = rescale(posterior, prior, self.groups)
        mean = risk.total / risk.trials
        paper = PaperAccounting.of(
            (moved.kl_before, moved.kl_after),
            prior_scale=prior_scale,
            mean=mean,
            examples=len(self.examples),
        )
        return PaperSetting(empirical_risk=mean, **paper.model_dump(exclude={"prior_scale"}))

    def columns(self, scale: float, risk: RiskEstimate) -> tuple[Column, ...]:
        """Every column for equal noise of one scale around the trained weights."""
        failure = 1.0 - self.confidence
        assert risk.errors is not None
        upper = sampling(errors=risk.errors, trials=risk.trials, failure=failure * _SAMPLING_SHARE)
        shared = Accounting(upper, len(self.examples), failure * (1.0 - _SAMPLING_SHARE))

        def column(way: Accounted) -> Column:
            nats = {"kl_nats": way.kl_nats, "charge_nats": way.charge_nats}
            return Column(name=way.name, **nats, **shared.bounds(**nats))

        ways = self._accounted(DiagonalGaussian.around(self.trained, scale=scale))
        return tuple(map(column, ways))

    def at_every(
        self, scales: Collection[float], tell: Progress
    ) -> tuple[dict[float, RiskEstimate], dict[str, tuple[Column, ...]]]:
        """The risk and the columns for noise of each of these scales."""
        risks, columns = {}, {}
        for done, scale in enumerate(scales, start=1):
            risks[scale] = self.risk(scale)
            columns[f"{scale:g}"] = self.columns(scale, risks[scale])
            tell("columns", done, len(scales), f"noise {scale:g}")
        return risks, columns

    def _accounted(self, Q: DiagonalGaussian) -> list[Accounted]:
        groups, fixed = self.groups, self.prior_scale
        prior = DiagonalGaussian.centered(self.trained, scale=fixed)
        columns = [*fixed_scale_columns(Q, prior, groups, center="zero", scale=fixed)]
        start = {name: p.detach() for name, p in self.initial.named_parameters()}
        centers: dict[Center, dict[str, Tensor] | None] = {"zero": None, "initialization": start}
        for center, means in centers.items():
            best, each = best_scale_columns(Q, means, groups, center=center, grid=self.grid)
            given, shared, per_tensor = best
            unmoved = replace(
                given,
                name=f"{given.name} per tensor",
                kl_nats=each.kl_before,
                charge_nats=each.charge_nats,
            )
            columns += [given, shared, unmoved, per_tensor]
            columns += symmetry_columns(Q, each, groups, symmetries_of(self.graph), center=center)
        return columns
