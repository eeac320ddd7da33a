"""From full tensors to the small sums that the solver works on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups
from nonvacuous.rescaling.assemble import Builder
from nonvacuous.rescaling.reading import Number, Reading, row_sums
from nonvacuous.rescaling.terms import Matrix, Side, Terms


def collapse(Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups) -> Terms:
    """The terms of the KL along the orbit of ``Q`` under ``groups``, relative to ``P``."""
    return collapse_reading(Reading.of(Q, P), groups)


def collapse_reading(reading: Reading, groups: ScaleGroups) -> Terms:
    """What :func:`collapse` returns, for tensors that have been looked at before."""
    device = reading.device
    builder = Builder(groups, device)
    counts, touched = np.zeros(groups.size), np.zeros(groups.size)
    # A GPU is not asked for these before everything is under way.
    asked: dict[tuple[str, str], Number] = {}
    for name in reading.tensors:
        scales = [scale for scale in groups.exponents[name] if scale.moves]
        for scale in scales:
            _count(scale, math.prod(reading.shapes[name]), counts, touched)
        axes = sorted({axis for scale in scales for axis in scale.axes})
        read = row_sums(reading, name, axes)
        builder.add(name, read.sums, axes, scales)
        asked[name, "low"], asked[name, "high"] = torch.aminmax(read.sums.squares)
        asked[name, "pinned"], asked[name, "pinned size"] = builder.constants[name]
        asked[name, "prior squares"] = read.prior_squares
        asked[name, "log variances"], asked[name, "log sizes"] = read.log_variances, read.log_sizes
    # All numbers on the processor, with one transfer for those that are elsewhere.
    waiting = {key: value for key, value in asked.items() if isinstance(value, Tensor)}
    answers = torch.stack(list(waiting.values())).tolist()
    fetched: dict[tuple[str, str], Any] = asked | dict(zip(waiting, answers, strict=True))
    for name in reading.tensors:
        low, high = fetched[name, "low"], fetched[name, "high"]
        if not (low > 0 and math.isfinite(high)):
            raise BadInput(
                f"tensor {name!r}: (scale^2 + mean^2) / prior_scale^2 leaves the range of float64 "
                f"({low:g} to {high:g}), so the best scale would lie at infinity; choose "
                "posterior and prior scales nearer to each other"
            )

    def each(*kinds: str) -> dict[str, float]:
        return {n: sum(fetched.get((n, kind), 0.0) for kind in kinds) for n in reading.shapes}

    return Terms(
        starts=tuple(builder.starts),
        sizes=tuple(builder.sizes),
        terms=tuple(builder.terms),
        counts=torch.from_numpy(counts).to(device),
        touched=torch.from_numpy(touched).to(device),
        weights={name: math.prod(shape) for name, shape in reading.shapes.items()},
        remainders=each("pinned", "prior squares"),
        log_variances=each("log variances"),
        constant_sizes=each("pinned size", "prior squares", "log sizes"),
        squares_range=(
            min(fetched[name, "low"] for name in reading.tensors),
            max(fetched[name, "high"] for name in reading.tensors),
        ),
    )


def _count(scale: AxisScale, weights: int, counts: np.ndarray, touched: np.ndarray) -> None:
    """Add the weights that each channel touches through one scale."""
    repeats = float(weights // np.size(scale.index))
    index = np.asarray(scale.index).reshape(-1)
    times = np.bincount(index[index >= 0], minlength=len(counts)) * repeats
    counts += scale.power * times
    touched += abs(scale.power) * times


# The KL of every tensor out of the collapsed sums, never below the true value.
#
# The collapsed sums determine the KL at every point of the orbit, so the weights themselves need
# not be read again. The price is cancellation: where posterior and prior nearly agree, large sums
# leave a small difference. The rounding error is bounded here and added; where it would be felt,
# nothing is returned, and the caller reads the full tensors (:mod:`nonvacuous.rescaling.solver`).
#
# With ``r`` the factor of a weight, twice the KL of a tensor is
#
#     sum of squares * r^2  -  2 * sum of products * r  +  remainder
#       -  number of weights  -  sum of ln(scale^2 / prior_scale^2)  -  2 * sum of ln r.

_EPSILON = float(np.finfo(np.float64).eps)
# A relative error above this is felt.
_ALLOWED = 1e-10
# Between these, products of a square with two factors neither overflow nor lose digits.
_SQUARES = (1e-200, 1e200)
_LOG_FACTOR = 230.0


def collapsed_nats(terms: Terms, groups: ScaleGroups, moves: np.ndarray) -> dict[str, float] | None:
    """KL(Q moved by ``moves`` || P) for each tensor, rounded up; None where too much cancels."""
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
        met = squares[name]
        twice = math.fsum(
            (
                met,
                -2 * products[name],
                terms.remainders[name],
                -float(weights),
                -terms.log_variances[name],
                -2 * logs,
            )
        )
        # Twice the sum of |products * r| is at most the sum of squares * r^2 and of the squared
        # prior means.
        size = 2 * (met + terms.constant_sizes[name] + log_size) + weights
        error = (256 + 32 * reach + units[name]) * _EPSILON * size
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
        here = known[whole][terms.channels(side.group)]
        return here if side.positions is None else here[side.positions]

    sums: list[Tensor] = []
    for term in terms.terms:
        for kind in term.kinds[:2]:
            exponent = 2.0 if kind == "squares" else 1.0
            first, *others = (factor(side, exponent) for side in term.sides)
            seen = term.seen_from(0, others, kind=kind)
            # Not a dot product but for a matrix, whose rows were added up already: a sum of many
            # entries is taken in a tree, where errors hardly add up.
            dense = isinstance(term, Matrix)
            sums.append(torch.dot(seen, first) if dense else (seen * first).sum())
    values = iter(torch.stack(sums).tolist() if sums else ())
    squares, products = dict.fromkeys(terms.weights, 0.0), dict.fromkeys(terms.weights, 0.0)
    units = dict.fromkeys(terms.weights, 0)
    for term in terms.terms:
        squares[term.tensor] += next(values)
        if term.products is not None:
            products[term.tensor] += next(values)
        length = sum(term.squares.shape) if isinstance(term, Matrix) else 0
        units[term.tensor] = max(units[term.tensor], length)
    return squares, products, units
