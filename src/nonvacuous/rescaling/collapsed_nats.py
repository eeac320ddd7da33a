"""The KL of every tensor out of the collapsed sums, never below the true value.

The collapsed sums determine the KL at every point of the orbit, so the weights themselves need
not be read again. The price is cancellation: where posterior and prior nearly agree, large sums
leave a small difference. The rounding error is bounded here and added; where it would be felt,
nothing is returned, and the caller reads the full tensors (:mod:`nonvacuous.rescaling.orbit`).

With ``r`` the factor of a weight, twice the KL of a tensor is

    sum of squares * r^2  -  2 * sum of products * r  +  remainder
      -  number of weights  -  sum of ln(scale^2 / prior_scale^2)  -  2 * sum of ln r.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nonvacuous.rescaling.terms import Matrix, Side, Term, Terms

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import ScaleGroups

_EPSILON = float(np.finfo(np.float64).eps)
# A relative error above this is felt.
_ALLOWED = 1e-10
# Between these, products of a square with two factors neither overflow nor lose digits.
_SQUARES = (1e-200, 1e200)
_LOG_FACTOR = 230.0


def collapsed_nats(terms: Terms, groups: ScaleGroups, moves: np.ndarray) -> dict[str, float] | None:
    """KL(Q moved by ``moves`` || P) for each tensor, rounded up; None where too much cancels.

    ``terms`` must not be merged: each of them has to tell which tensor it came from.
    """
    powers = [abs(side.power) for term in terms.terms for side in term.sides]
    reach = max(powers, default=0.0) * float(np.abs(moves).max(initial=0.0))
    low, high = terms.squares_range
    if 2 * reach > _LOG_FACTOR or low < _SQUARES[0] or high > _SQUARES[1]:
        return None
    squares, products, units = _term_sums(terms, moves)
    padded = np.append(moves, 0.0)  # the last entry is what a pinned position (-1) points at
    nats: dict[str, float] = {}
    errors = 0.0
    for name, weights in terms.weights.items():
        if not weights:
            nats[name] = 0.0
            continue
        logs = log_size = 0.0
        for scale in groups.exponents[name] if reach else ():
            chosen = padded[scale.index]
            repeats = weights // chosen.size
            logs += scale.power * float(chosen.sum()) * repeats
            log_size += abs(scale.power) * float(np.abs(chosen).sum()) * repeats
        met = squares.get(name, 0.0)
        twice = math.fsum(
            (
                met,
                -2 * products.get(name, 0.0),
                terms.remainders[name],
                -float(weights),
                -terms.log_variances[name],
                -2 * logs,
            )
        )
        # Twice the sum of |products * r| is at most the sum of squares * r^2 and of the squared
        # prior means.
        size = 2 * (met + terms.constant_sizes[name] + log_size) + weights
        error = (256 + 32 * reach + units.get(name, 0)) * _EPSILON * size
        total = twice / 2 + error
        if not math.isfinite(total):
            return None
        nats[name] = math.nextafter(total, math.inf) if total > 0 else 0.0
        errors += error
    if errors > _ALLOWED * math.fsum(nats.values()):
        return None
    return nats


def _term_sums(
    terms: Terms, moves: np.ndarray
) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """For each tensor, the sums over its terms of squares * r^2 and of products * r; and the
    length of the longest sum in which rounding errors may add up one by one."""
    log_scales = torch.from_numpy(moves).to(terms.device)
    known: dict[float, Tensor] = {}

    def factor(side: Side, exponent: float) -> Tensor:
        whole = exponent * side.power
        if whole not in known:
            known[whole] = torch.exp(whole * log_scales)
        start = terms.starts[side.group]
        here = known[whole][start : start + terms.sizes[side.group]]
        return here if side.places is None else here[side.places]

    sums: list[Tensor] = []
    for term in terms.terms:
        sums.append(_sum(term, term.squares, [factor(side, 2.0) for side in term.sides]))
        if term.products is not None:
            sums.append(_sum(term, term.products, [factor(side, 1.0) for side in term.sides]))
    found = iter(torch.stack(sums).tolist() if sums else ())
    squares: dict[str, float] = {}
    products: dict[str, float] = {}
    units: dict[str, int] = {}
    for term in terms.terms:
        squares[term.tensor] = squares.get(term.tensor, 0.0) + next(found)
        if term.products is not None:
            products[term.tensor] = products.get(term.tensor, 0.0) + next(found)
        length = sum(term.squares.shape) if isinstance(term, Matrix) else 0
        units[term.tensor] = max(units.get(term.tensor, 0), length)
    return squares, products, units


def _sum(term: Term, values: Tensor, factors: list[Tensor]) -> Tensor:
    if isinstance(term, Matrix):
        return torch.dot(torch.mv(values, factors[1]), factors[0])
    for factor in factors:
        values = values * factor
    # Not a dot product: a sum of many entries is taken in a tree, where errors hardly add up.
    return values.sum()
