"""What the rescaling figure found: frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.papers.rescaling.columns import Column, PaperSetting
from nonvacuous.papers.rescaling.images import ImageResult
from nonvacuous.papers.rescaling.settings import MLPS, PublishedMlp, RescalingSettings
from nonvacuous.study.settings import CellRecord, Frozen

#: How near a ratio must come to the published one, and how far below its bound ours should be.
RATIO_TOLERANCE, BOUND_GOAL = 0.15, 0.75


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
        shown = self.published
        return None if shown is None else self.paper.kl_ratio / shown.kl_ratio - 1

    @property
    def bound_fraction(self) -> float | None:
        """Our certificate over the published rescaled bound."""
        shown = self.published
        return None if shown is None else self.ours.risk_upper / shown.rescaled

    def lines(self) -> tuple[str]:
        shown = self.published
        ratio = f"KL ratio {self.paper.kl_ratio:.2f}"
        ours = f"certificate {shown_up(self.ours.risk_upper)}"
        if shown is not None:
            ratio += f" (published {shown.kl_ratio:.2f})"
            ours += f" (published {shown.bound:.2f}, rescaled {shown.rescaled:.2f})"
        return (f"{self.name}: {ratio}, {ours}",)


@dataclass(frozen=True)
class FigureResult:
    """The whole figure."""

    settings: RescalingSettings
    networks: tuple[NetworkResult, ...]
    images: tuple[ImageResult, ...] = ()

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
        return {
            "settings": self.settings.record(),
            "summary": self.summary,
            "networks": [
                {
                    **entry.model_dump(),
                    "kl_ratio": entry.paper.kl_ratio,
                    "published": None if entry.published is None else entry.published._asdict(),
                    "ratio_error": entry.ratio_error,
                    "bound_fraction": entry.bound_fraction,
                }
                for entry in self.networks
            ],
            "images": [
                {**entry.model_dump(), "kl_ratios": [point.kl_ratio for point in entry.points]}
                for entry in self.images
            ],
        }
