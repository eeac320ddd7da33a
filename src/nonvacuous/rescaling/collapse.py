"""From full tensors to the small sums that the solver works on."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups
from nonvacuous.rescaling.assemble import Builder
from nonvacuous.rescaling.reading import Reading, row_sums
from nonvacuous.rescaling.sweeps import Descent
from nonvacuous.rescaling.terms import Matrix, Terms


def collapse(reading: Reading, groups: ScaleGroups) -> Terms:
    """The terms of the KL along the orbit of a posterior under ``groups``, relative to a prior."""
    device = reading.device
    builder = Builder(groups, device)
    counts, touched = np.zeros(groups.size), np.zeros(groups.size)
    rows = []
    for name in reading.tensors:
        scales = [scale for scale in groups.exponents[name] if scale.moves]
        for scale in scales:
            _count(scale, math.prod(reading.shapes[name]), counts, touched)
        axes = sorted({axis for scale in scales for axis in scale.axes})
        sums, numbers = row_sums(reading, name, axes)
        kept = builder.add(name, sums, axes, scales)
        rows.append(torch.cat([torch.stack(torch.aminmax(sums.squares)), kept, numbers]))
    # A GPU is asked once, when everything is under way.
    columns = torch.stack(rows).cpu().numpy().T
    lowest, highest, pinned, pinned_sizes, prior_squares, logs, log_sizes = columns
    for name, low, high in zip(reading.tensors, lowest, highest, strict=True):
        if not (low > 0 and math.isfinite(high)):
            raise BadInput(
                f"tensor {name!r}: (scale^2 + mean^2) / prior_scale^2 leaves the range of float64 "
                f"({low:g} to {high:g}), so the best scale would lie at infinity; choose "
                "posterior and prior scales nearer to each other"
            )

    def each(values: np.ndarray) -> dict[str, float]:
        known = dict(zip(reading.tensors, values.tolist(), strict=True))
        return dict.fromkeys(reading.shapes, 0.0) | known

    return Terms(
        starts=tuple(builder.starts),
        sizes=tuple(builder.sizes),
        terms=tuple(builder.terms),
        counts=torch.from_numpy(counts).to(device),
        touched=torch.from_numpy(touched).to(device),
        weights={name: math.prod(shape) for name, shape in reading.shapes.items()},
        remainders=each(pinned + prior_squares),
        log_variances=each(logs),
        constant_sizes=each(pinned_sizes + prior_squares + log_sizes),
        squares_range=(float(lowest.min()), float(highest.max())),
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
    point = Descent(terms, torch.from_numpy(moves))
    sums: list[Tensor] = []
    for number, term in enumerate(terms.terms):
        for kind in term.kinds[:2]:
            seen, own = point.seen_from(number, 0, kind), point.spread(term.sides[0], kind)
            # Not a dot product but for a matrix, whose rows were added up already: a sum of many
            # entries is taken in a tree, where errors hardly add up.
            sums.append(torch.dot(seen, own) if isinstance(term, Matrix) else (seen * own).sum())
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
