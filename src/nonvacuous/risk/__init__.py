"""Measuring risk: losses with a range, and estimators that say how much they may be trusted."""

from __future__ import annotations

from nonvacuous.risk.estimate import RiskEstimate
from nonvacuous.risk.losses import Loss, bounded_cross_entropy, margin_loss, zero_one
from nonvacuous.risk.pairs import estimate_risk

__all__ = [
    "Loss",
    "RiskEstimate",
    "bounded_cross_entropy",
    "estimate_risk",
    "margin_loss",
    "zero_one",
]
