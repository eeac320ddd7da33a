"""What an estimator hands to the bounds: counts, and how many of them are independent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RiskEstimate:
    """Losses summed over independent trials.

    ``trials`` is the number of *independent* trials, whatever the number of forward passes:
    the only count a sampling bound may use. ``total`` is the sum of the losses of the trials in
    units of the loss's range, so 0 <= total <= trials; ``errors`` is that sum as an integer
    when each trial is an error or not, and None otherwise. ``identical`` says that the trials
    share one law, which the exact binomial tail needs.
    """

    errors: int | None
    trials: int
    total: float
    scheme: str
    identical: bool
    loss: str
    method: str
    examples: int
    lower: float = 0.0
    upper: float = 1.0
    per_draw: tuple[float, ...] = ()

    @property
    def risk(self) -> float:
        """The mean loss in the loss's own units: an estimate, without a confidence."""
        return self.lower + (self.upper - self.lower) * self.total / self.trials
