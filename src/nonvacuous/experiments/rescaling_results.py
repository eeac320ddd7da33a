"""What the rescaling figure found: frozen records that go to JSON and come back the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.experiments.published import PublishedMlp, published_mlp
from nonvacuous.experiments.rescaling_columns import Column
from nonvacuous.experiments.rescaling_settings import RescalingSettings
from nonvacuous.files import write_atomically

#: How near a ratio must come to the published one, and how far below its bound ours should be.
RATIO_TOLERANCE, BOUND_GOAL = 0.15, 0.75


@dataclass(frozen=True)
class PaperSetting:
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


@dataclass(frozen=True)
class OurSetting:
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


@dataclass(frozen=True)
class NetworkResult:
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

    def save(self, path: Path) -> None:
        """Write JSON; a reader sees the whole file or none."""
        text = json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"
        write_atomically(path, lambda stream: stream.write(text.encode()))

    @classmethod
    def load(cls, path: Path) -> NetworkResult:
        """Read what :meth:`save` wrote."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                **{
                    **record,
                    "widths": tuple(record["widths"]),
                    "paper": PaperSetting(**record["paper"]),
                    "ours": OurSetting(**record["ours"]),
                    "columns": {
                        scale: tuple(Column(**entry) for entry in entries)
                        for scale, entries in record["columns"].items()
                    },
                }
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{path} is not a result of this experiment ({error}); remove it to compute it anew"
            ) from error


@dataclass(frozen=True)
class FigureResult:
    """The whole figure."""

    settings: RescalingSettings
    networks: tuple[NetworkResult, ...]

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
        return {
            "settings": self.settings.to_dict(),
            "summary": self.summary,
            "networks": [
                {
                    **asdict(entry),
                    "kl_ratio": entry.paper.kl_ratio,
                    "published": None if entry.published is None else asdict(entry.published),
                    "ratio_error": entry.ratio_error,
                    "bound_fraction": entry.bound_fraction,
                }
                for entry in self.networks
            ],
        }
