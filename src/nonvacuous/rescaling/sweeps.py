"""Sweeps over the groups: the working state of one descent.

Channels of one group share no weight (unless a layer reads and writes the same stream), so all
channels of a group move at once, and the groups follow one another. A sweep costs two products of
a matrix with a vector for each collapsed matrix, whatever the number of channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonvacuous.rescaling.coarse import minimize_exponentials
from nonvacuous.rescaling.steps import ChannelSums, channel_steps
from nonvacuous.rescaling.terms import Side, Terms

# What the log-factor of a weight is multiplied by in each kind of sum.
_EXPONENT = {"squares": 2.0, "products": 1.0, "magnitudes": 1.0}


@dataclass(frozen=True)
class Totals:
    """The sums of squares and of products of each term at the current point."""

    squares: np.ndarray
    products: np.ndarray


class Descent:
    """A point on the orbit, and the moves that lower the KL from there.

    ``precisions`` multiplies the terms of each tensor (1 / prior_scale^2 when the terms were
    collapsed against a prior of scale one); without it the terms are taken as they are.
    """

    def __init__(
        self, terms: Terms, log_scales: Tensor, *, precisions: Mapping[str, float] | None = None
    ) -> None:
        self.terms = terms
        self.log_scales = log_scales.detach().clone().to(terms.device, torch.float64)
        self._slices = terms.slices()
        self._count = len(terms.terms)
        self._counts = [terms.counts[where] for where in self._slices]
        self._precisions = dict.fromkeys(terms.weights, 1.0)
        self._factors: dict[tuple[int, float], Tensor] = {}
        self._sums: dict[str, list[Tensor]] = {}
        self.set_precisions(precisions or {})

    def set_precisions(self, precisions: Mapping[str, float]) -> None:
        """Change the prior precision of some tensors."""
        self._precisions |= {name: float(value) for name, value in precisions.items()}
        for kind in ("squares", "products"):
            self._sums[kind] = [self._total(number, kind) for number in range(self._count)]
        self._constant = math.fsum(
            (precision * self.terms.remainders[name] - self.terms.log_variances[name]) / 2
            - self.terms.weights[name] * (1 + math.log(precision)) / 2
            for name, precision in self._precisions.items()
        )

    def at(self, log_scales: Tensor) -> Descent:
        """Another point of the same problem."""
        return Descent(self.terms, log_scales, precisions=self._precisions)

    # -- reading ------------------------------------------------------------------------------

    def totals(self) -> Totals:
        """The sums of every term at the current point."""
        sums = self._sums["squares"] + self._sums["products"]
        both = torch.stack(sums).cpu().numpy() if sums else np.zeros(0)
        squares, products = both[: self._count], both[self._count :]
        return Totals(squares, products)

    def nats(self, totals: Totals) -> float:
        """The KL at the current point: good for steering, not rounded for quoting."""
        parts = [*(totals.squares / 2), *(-totals.products), self._constant]
        parts.append(-float(self.terms.counts @ self.log_scales))
        return math.fsum(parts) if np.isfinite(parts).all() else math.inf

    def balance_residual(self) -> float:
        """The worst relative imbalance of a channel at the current point; see ``Rescaling``."""
        worst = [torch.zeros((), dtype=torch.float64, device=self.terms.device)]
        for group in range(len(self._slices)):
            sums, _ = self._channel_sums(group)
            size = sums.magnitude() + self.terms.touched[self._slices[group]]
            relative = sums.gradient().abs() / size.clamp_min(torch.finfo(torch.float64).tiny)
            worst.append(relative.max())
        return float(torch.stack(worst).max())

    # -- moving -------------------------------------------------------------------------------

    def coarse_step(self, totals: Totals) -> None:
        """Move every group by one common scalar, all of them at once."""
        powers = self.terms.exponents
        shift = minimize_exponentials(
            np.concatenate([totals.squares / 2, -totals.products]),
            np.concatenate([2 * powers, powers]),
            self.terms.group_counts,
        )
        self.shift_groups(shift)

    def shift_groups(self, shift: np.ndarray) -> None:
        """Add one number to the log-scales of each group."""
        if not shift.any():
            return
        moves = torch.from_numpy(shift).to(self.terms.device)
        sizes = torch.tensor(self.terms.sizes, device=moves.device)
        # Saying how long the result is spares a GPU the question.
        self.log_scales += torch.repeat_interleave(moves, sizes, output_size=self.terms.size)
        self._factors.clear()
        by_term = torch.from_numpy(self.terms.exponents @ shift).to(moves.device)
        for kind, sums in self._sums.items():
            changed = torch.stack(sums) * torch.exp(_EXPONENT[kind] * by_term)
            self._sums[kind] = list(changed.unbind())

    def sweep(self) -> None:
        """Move every channel once, group by group."""
        for group in range(len(self._slices)):
            self._update(group)

    # -- inside -------------------------------------------------------------------------------

    def _update(self, group: int) -> None:
        """Move the channels of one group, and bring the sums of terms that end here up to date."""
        sums, seen = self._channel_sums(group)
        coupled = self.terms.coupled[group]
        step = channel_steps(sums, coupled=coupled)
        self.log_scales[self._slices[group]] += step
        for key in [key for key in self._factors if key[0] == group]:
            del self._factors[key]
        for number, side, kind, values in seen:
            if self.terms.last_side[number] != side:
                continue
            if coupled:
                self._sums[kind][number] = self._total(number, kind)
            else:
                own = self._spread(self.terms.terms[number].sides[side], kind)
                self._sums[kind][number] = torch.dot(values, own)

    def _channel_sums(self, group: int) -> tuple[ChannelSums, list[tuple[int, int, str, Tensor]]]:
        """Per-channel sums of one group, and the contributions that they were added up from."""
        found: dict[str, dict[float, Tensor]] = {kind: {} for kind in _EXPONENT}
        seen = []
        coupled = self.terms.coupled[group]
        for number, side in self.terms.incident[group]:
            where = self.terms.terms[number].sides[side]
            for kind in self._kinds(number, coupled=coupled):
                values = self._seen_from(number, side, kind)
                found[kind][where.power] = where.added(
                    found[kind].get(where.power), values, self.terms.sizes[group]
                )
                if kind != "magnitudes":
                    seen.append((number, side, kind, values))
        for kind, sums in found.items():
            for power, values in sums.items():
                sums[power] = values * self._factor(group, _EXPONENT[kind] * power)
        products = found["products"]
        # Two channels of one weight: signs are told apart weight by weight.
        negative = {p: (found["magnitudes"][p] - products[p]) / 2 for p in found["magnitudes"]}
        return (
            ChannelSums(
                squares=found["squares"],
                products=products,
                counts=self._counts[group],
                reach=self.terms.reach[group],
                negative=negative if coupled else None,
            ),
            seen,
        )

    def _kinds(self, number: int, *, coupled: bool = False) -> tuple[str, ...]:
        if self.terms.terms[number].products is None:
            return ("squares",)
        return ("squares", "products", "magnitudes") if coupled else ("squares", "products")

    def _seen_from(self, number: int, side: int, kind: str) -> Tensor:
        term = self.terms.terms[number]
        others = (s for place, s in enumerate(term.sides) if place != side)
        factors = tuple(self._spread(other, kind) for other in others)
        values = term.seen_from(side, factors, kind=kind)
        precision = self._precisions[term.tensor]
        return values if precision == 1 else precision * values

    def _total(self, number: int, kind: str) -> Tensor:
        if kind not in self._kinds(number):
            return torch.zeros((), dtype=torch.float64, device=self.terms.device)
        own = self._spread(self.terms.terms[number].sides[0], kind)
        return torch.dot(self._seen_from(number, 0, kind), own)

    def _spread(self, side: Side, kind: str) -> Tensor:
        return side.gather(self._factor(side.group, _EXPONENT[kind] * side.power))

    def _factor(self, group: int, exponent: float) -> Tensor:
        key = (group, exponent)
        if key not in self._factors:
            self._factors[key] = torch.exp(exponent * self.log_scales[self._slices[group]])
        return self._factors[key]
