"""Sweeps over all channels: the working state of one descent.

Channels of one group share no weight (unless a layer reads and writes the same stream), and groups
of one block share none either, so all channels of a block move at once, and the blocks follow one
another. A sweep costs two products of a matrix with a vector for each collapsed matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonvacuous.rescaling.steps import ChannelSums, channel_steps
from nonvacuous.rescaling.terms import Block, Side, Terms

_LONGEST = 20.0
# A gain this small next to the sum of the parts is not worth a step; and a step that changes no
# part by more than a tenth leaves so little that the sweep in between matters more.
_SMALL = 1e-13
_SHORT = 0.1


def minimize_exponentials(
    coefficients: np.ndarray, exponents: np.ndarray, linear: np.ndarray
) -> np.ndarray:
    """Descend ``sum(coefficients * exp(exponents @ t)) - linear @ t`` from t = 0 by Newton steps.

    In a deep network a whole layer wants to shrink and the next one to grow. Moving one channel at
    a time finds that out step by step, one common scalar for each group takes it in one go. The
    problem is tiny (a variable per group) and lives on the processor whatever the device.

    Convex when no coefficient is negative; then the result is close to the minimum, and a second
    call is closer still. Otherwise negative curvature is replaced by its absolute value, and the
    result is a point that is no higher than the start. A step is taken only if the value
    decreases.
    """
    position = np.zeros(exponents.shape[1])
    parts = coefficients
    for _ in range(200):
        gradient = exponents.T @ parts - linear
        step = _newton_step(exponents, parts, gradient)
        decrement = -float(gradient @ step)
        size = float(np.abs(parts).sum()) + float(np.abs(linear) @ np.abs(position))
        if not decrement > _SMALL * size:
            break
        length = min(1.0, _LONGEST / float(np.abs(step).max()))
        # The step is halved until the value decreases by a fair part of what was promised.
        for _ in range(60):
            taken = length * step
            with np.errstate(over="ignore", invalid="ignore"):
                change = float(parts @ np.expm1(exponents @ taken) - linear @ taken)
            if change <= -1e-4 * length * decrement:
                break
            length /= 2
        else:
            return position
        position = position + taken
        # Newton's method squares the error: after a short step little is left.
        if float(np.abs(exponents @ step).max()) < _SHORT:
            break
        parts = coefficients * np.exp(exponents @ position)
    return position


def _newton_step(exponents: np.ndarray, parts: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    for curvature in (parts, np.abs(parts)):
        hessian = (exponents.T * curvature) @ exponents
        # A group that no term sees, or a direction in which nothing changes, must not move.
        ridge = 1e-13 * max(float(np.trace(hessian)), np.finfo(np.float64).tiny)
        hessian.flat[:: len(hessian) + 1] += ridge
        try:
            step = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            continue
        # A step that does not go down betrays negative curvature.
        if np.isfinite(step).all() and float(gradient @ step) < 0:
            return step
    return np.zeros_like(gradient)


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
        #: The current point; every move makes a new vector.
        self.log_scales = log_scales.detach().to(terms.device, torch.float64)
        self.precisions = dict.fromkeys(terms.weights, 1.0)
        self._factors: dict[float, Tensor] = {}
        self._known_sums: dict[str, Tensor] = {}
        self.set_precisions(precisions or {})

    def set_precisions(self, precisions: Mapping[str, float]) -> None:
        """Change the prior precision of some tensors."""
        self.precisions |= {name: float(value) for name, value in precisions.items()}
        self._known_sums.clear()
        self._constant = math.fsum(
            (precision * self.terms.remainders[name] - self.terms.log_variances[name]) / 2
            - self.terms.weights[name] * (1 + math.log(precision)) / 2
            for name, precision in self.precisions.items()
        )

    def at(self, log_scales: Tensor) -> Descent:
        """Another point of the same problem."""
        return Descent(self.terms, log_scales, precisions=self.precisions)

    # -- reading ------------------------------------------------------------------------------

    def totals(self) -> Totals:
        """The sums of every term at the current point."""
        squares, *products = torch.stack([*self._sums.values()]).cpu().numpy()
        return Totals(squares, products[0] if products else np.zeros(len(squares)))

    def nats(self, totals: Totals) -> float:
        """The KL at the current point: good for steering, not rounded for quoting."""
        linear = float(torch.dot(self.terms.counts, self.log_scales))
        parts = [*totals.squares / 2, *-totals.products, self._constant, -linear]
        return math.fsum(parts) if np.isfinite(parts).all() else math.inf

    def derivatives(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first and the second derivative of the KL by each log-scale alone; the size of the
        parts that the first is made of."""
        slopes, curvatures, sizes = np.zeros((3, self.terms.size))
        for block in self.terms.blocks:
            sums, _ = self._channel_sums(block)
            here = block.positions.cpu().numpy()
            slopes[here], curvatures[here] = sums.gradient(), sums.curvature()
            sizes[here] = sums.magnitude()
        return slopes, curvatures, sizes + self.terms.touched.cpu().numpy()

    def balance_residual(self) -> float:
        """The worst relative imbalance of a channel at the current point; see ``Rescaling``."""
        slopes, _, sizes = self.derivatives()
        relative = np.abs(slopes) / np.maximum(sizes, np.finfo(np.float64).tiny)
        return float(relative.max(initial=0.0))

    # -- moving -------------------------------------------------------------------------------

    def coarse_step(self, totals: Totals) -> Totals:
        """Move every group by one common scalar, all of them at once; the totals afterwards."""
        powers = self.terms.exponents
        coefficients, exponents = totals.squares / 2, 2 * powers
        if not self.terms.centered:
            coefficients = np.concatenate([coefficients, -totals.products])
            exponents = np.concatenate([exponents, powers])
        shift = minimize_exponentials(coefficients, exponents, self.terms.group_counts)
        self.shift_groups(shift)
        by_term = powers @ shift
        return Totals(totals.squares * np.exp(2 * by_term), totals.products * np.exp(by_term))

    def shift_groups(self, shift: np.ndarray) -> None:
        """Add one number to the log-scales of each group."""
        if not shift.any():
            return
        sums = self._sums
        spread = np.zeros(self.terms.size)
        for channels, move in zip(self.terms.channels, shift, strict=True):
            spread[channels] = move
        self._move(torch.from_numpy(spread).to(self.terms.device))
        by_term = torch.from_numpy(self.terms.exponents @ shift).to(self.terms.device)
        for kind in sums:
            sums[kind] = sums[kind] * torch.exp(_EXPONENT[kind] * by_term)

    def sweep(self) -> None:
        """Move every channel once, block by block, and bring the sums of terms up to date."""
        for block in self.terms.blocks:
            sums, seen = self._channel_sums(block)
            steps = torch.from_numpy(channel_steps(sums, coupled=block.coupled))
            moved = torch.zeros_like(self.log_scales)
            moved[block.positions] = steps.to(self.terms.device)
            self._move(moved)
            for term, side, kind, values in seen:
                if block.coupled:
                    self._sums[kind][term] = self._total(term, kind)
                else:
                    own = self.spread(self.terms.terms[term].sides[side], kind)
                    self._sums[kind][term] = torch.dot(values, own)

    def _move(self, steps: Tensor) -> None:
        self.log_scales = self.log_scales + steps
        self._factors.clear()

    # -- inside -------------------------------------------------------------------------------

    @property
    def _sums(self) -> dict[str, Tensor]:
        """The sums of every term, by kind: found when first asked for, then kept up to date."""
        if not self._known_sums:
            for kind in ("squares",) if self.terms.centered else ("squares", "products"):
                sums = [self._total(number, kind) for number in range(len(self.terms.terms))]
                self._known_sums[kind] = torch.stack(sums) if sums else self.terms.unmoved[:0]
        return self._known_sums

    def _channel_sums(self, block: Block) -> tuple[ChannelSums, list[tuple[int, int, str, Tensor]]]:
        """Per-channel sums of one block, and those contributions that no later block changes."""
        gathered: dict[tuple[str, float], Tensor] = {}
        seen = []
        for contact in block.contacts:
            term = self.terms.terms[contact.term]
            where = term.sides[contact.side]
            for kind in term.kinds:
                if kind == "magnitudes" and not block.coupled:
                    continue
                values = self.seen_from(contact.term, contact.side, kind)
                key = (kind, where.power)
                if key not in gathered:
                    gathered[key] = torch.zeros_like(self.log_scales)
                where.add_to(gathered[key][self.terms.channels[where.group]], values)
                if contact.is_last and kind != "magnitudes":
                    seen.append((contact.term, contact.side, kind, values))
        for (kind, power), sums in gathered.items():
            sums *= self._factor(_EXPONENT[kind] * power)
        rows = torch.stack([self.terms.counts, *gathered.values()])
        counts, *arrays = rows[:, block.positions].cpu().numpy()
        known: dict[str, dict[float, np.ndarray]] = {kind: {} for kind in _EXPONENT}
        for (kind, power), array in zip(gathered, arrays, strict=True):
            known[kind][power] = array
        products, magnitudes = known["products"], known["magnitudes"]
        # Two channels of one weight: signs are told apart weight by weight.
        negative = {power: (magnitudes[power] - products[power]) / 2 for power in magnitudes}
        return ChannelSums(known["squares"], products, counts, block.reach, negative), seen

    def seen_from(self, number: int, side: int, kind: str) -> Tensor:
        """For each row of a side, the sum of its term without the row's own factor."""
        term = self.terms.terms[number]
        others = term.sides[:side] + term.sides[side + 1 :]
        values = term.seen_from(side, [self.spread(other, kind) for other in others], kind=kind)
        precision = self.precisions[term.tensor]
        return values if precision == 1 else precision * values

    def _total(self, number: int, kind: str) -> Tensor:
        if kind not in self.terms.terms[number].kinds:
            return torch.zeros((), dtype=torch.float64, device=self.terms.device)
        own = self.spread(self.terms.terms[number].sides[0], kind)
        return torch.dot(self.seen_from(number, 0, kind), own)

    def spread(self, side: Side, kind: str) -> Tensor:
        """The factors of a group, one for each row of the term that it touches."""
        factor = self._factor(_EXPONENT[kind] * side.power)[self.terms.channels[side.group]]
        return factor if side.positions is None else factor[side.positions]

    def _factor(self, exponent: float) -> Tensor:
        if exponent not in self._factors:
            self._factors[exponent] = torch.exp(exponent * self.log_scales)
        return self._factors[exponent]
