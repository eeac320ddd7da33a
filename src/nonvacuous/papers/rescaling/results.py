"""What the rescaling figure found: frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.kinds import Center
from nonvacuous.networks import LayerGraph, ScaleGroups
from nonvacuous.papers.rescaling.cnn import CnnResult
from nonvacuous.papers.rescaling.settings import PublishedMlp, RescalingSettings, published_mlp
from nonvacuous.rescaling.columns import (
    Accounted,
    Accounting,
    best_scale_columns,
    fixed_scale_columns,
    symmetry_columns,
)
from nonvacuous.rescaling.quotients import symmetries_of
from nonvacuous.study.settings import Frozen

#: How near a ratio must come to the published one, and how far below its bound ours should be.
RATIO_TOLERANCE, BOUND_GOAL = 0.15, 0.75


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


class NetworkResult(Frozen):
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
        return published_mlp(self.widths) if self.is_published_data else None

    @property
    def ratio_error(self) -> float | None:
        """Our KL ratio over the published one, minus 1."""
        shown = self.published
        return None if shown is None else self.paper.kl_ratio / shown.kl_ratio - 1

    @property
    def bound_fraction(self) -> float | None:
        """Our certificate over the published rescaled bound."""
        shown = self.published
        return None if shown is None else self.ours.risk_upper / shown.rescaled

    def told(self) -> str:
        """One line."""
        shown = self.published
        ratio = f"KL ratio {self.paper.kl_ratio:.2f}"
        ours = f"certificate {shown_up(self.ours.risk_upper)}"
        if shown is not None:
            ratio += f" (published {shown.kl_ratio:.2f})"
            ours += f" (published {shown.bound:.2f}, rescaled {shown.rescaled:.2f})"
        return f"{self.name}: {ratio}, {ours}"


@dataclass(frozen=True)
class FigureResult:
    """The whole figure."""

    settings: RescalingSettings
    networks: tuple[NetworkResult, ...]
    convolutional: CnnResult | None = None

    @property
    def summary(self) -> dict[str, int]:
        """How many networks reach what; the first two count published networks only."""
        compared = [entry for entry in self.networks if entry.published is not None]
        return {
            "networks": len(self.networks),
            "published": len(compared),
            "ratios_within_15_percent": sum(
                abs(entry.ratio_error or 0.0) <= RATIO_TOLERANCE for entry in compared
            ),
            "bounds_at_most_three_quarters_of_published": sum(
                (entry.bound_fraction or 0.0) <= BOUND_GOAL for entry in compared
            ),
            "better_than_guessing": sum(not entry.ours.is_vacuous for entry in self.networks),
            "valid": sum(entry.ours.status == "valid" for entry in self.networks),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file, derived ones included."""
        cnn = self.convolutional
        return {
            "settings": self.settings.record(),
            "summary": self.summary,
            "networks": [
                {
                    **entry.model_dump(),
                    "kl_ratio": entry.paper.kl_ratio,
                    "published": None if entry.published is None else asdict(entry.published),
                    "ratio_error": entry.ratio_error,
                    "bound_fraction": entry.bound_fraction,
                }
                for entry in self.networks
            ],
            **({} if cnn is None else {"convolutional": cnn.model_dump()}),
        }


class Column(Frozen):
    """One way to account for the complexity, in nats, and the two bounds that follow.

    charge_nats   what the choice of the prior's scale from its grid costs; the bounds contain it
    """

    name: str
    kl_nats: float
    charge_nats: float
    mcallester: float
    kl_inverse: float

    @classmethod
    def of(cls, column: Accounted, accounting: Accounting) -> Column:
        """Both bounds for one complexity."""
        return cls(
            name=column.name,
            kl_nats=column.kl_nats,
            charge_nats=column.charge_nats,
            mcallester=accounting.mcallester(column.total_nats),
            kl_inverse=accounting.kl_inverse(column.total_nats),
        )


def all_columns(
    trained: nn.Module,
    initial: nn.Module,
    *,
    scale: float,
    prior_scale: float,
    grid: ScaleGrid,
    graph: LayerGraph,
    groups: ScaleGroups,
    accounting: Accounting,
) -> tuple[Column, ...]:
    """Every column for equal noise of one scale around the trained weights."""
    Q = DiagonalGaussian.around(trained, scale=scale)
    prior = DiagonalGaussian.centered(trained, scale=prior_scale)
    columns = [*fixed_scale_columns(Q, prior, groups, center="zero", scale=prior_scale)]
    symmetries = symmetries_of(graph)
    start = {name: p.detach() for name, p in initial.named_parameters()}
    centers: tuple[tuple[Center, dict[str, Tensor] | None], ...] = (
        ("zero", None),
        ("initialization", start),
    )
    for center, means in centers:
        found = best_scale_columns(Q, means, groups, center=center, grid=grid)
        each = found.per_tensor
        columns += found.columns
        columns += symmetry_columns(
            Q,
            each.prior,
            groups,
            each.log_scales,
            symmetries=symmetries,
            loss="zero-one",
            center=center,
            charge_nats=each.charge_nats,
        )
    return tuple(Column.of(column, accounting) for column in columns)
