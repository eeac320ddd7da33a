"""What must hold before a function can be made to pass through points; looked at before work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.interpolation.kernels import Kernel


def as_points(points: Any, *, what: str = "points") -> Tensor:
    """(points, coordinates) float64; images are laid out flat."""
    given = points if isinstance(points, Tensor) else torch.as_tensor(np.asarray(points))
    if given.ndim == 0 or len(given) == 0:
        raise BadInput(f"{what}: there must be at least one point, got shape {tuple(given.shape)}")
    if given.is_complex():
        raise BadInput(f"{what}: complex numbers are not supported; give their two parts")
    flat = given.detach().reshape(len(given), -1).to(torch.float64)
    if flat.shape[1] == 0:
        raise BadInput(f"{what}: points without coordinates, shape {tuple(given.shape)}")
    bad = ~flat.isfinite().all(1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise BadInput(
            f"{what}: {int(bad.sum())} of {len(flat)} points have a coordinate that is not a "
            f"finite number, the first is point {first}; remove or repair them"
        )
    return flat


@dataclass(frozen=True, eq=False)
class Targets:
    """All right-hand sides as the columns of one matrix.

    columns   which are whose, by name
    plain     names of those that were given as vectors
    """

    matrix: Tensor
    columns: Mapping[str, slice]
    plain: frozenset[str]


def as_targets(values: Any, count: int) -> Targets:
    """Values, or values by name, for so many points."""
    named = dict(values) if isinstance(values, Mapping) else {"values": values}
    if not named:
        raise BadInput("values: no values were given; give numbers, or names with numbers")
    parts, columns, plain, start = [], {}, set(), 0
    for name, entry in named.items():
        given = entry if isinstance(entry, Tensor) else torch.as_tensor(np.asarray(entry))
        given = given.detach().to("cpu", torch.float64)
        if given.ndim not in (1, 2) or len(given) != count or given.numel() == 0:
            raise BadInput(
                f"{name}: {count} points need values of shape ({count},) or ({count}, outputs), "
                f"not {tuple(given.shape)}"
            )
        if not bool(given.isfinite().all()):
            where = int((~given.reshape(count, -1).isfinite().all(1)).nonzero()[0])
            raise BadInput(
                f"{name}: the value at point {where} is not a finite number; no function passes "
                "through it"
            )
        if given.ndim == 1:
            plain.add(name)
        parts.append(given.reshape(count, -1))
        columns[name] = slice(start, start := start + parts[-1].shape[1])
    return Targets(torch.cat(parts, 1), columns, frozenset(plain))


def first_occurrences(points: Tensor) -> np.ndarray:
    """For every point the first point that equals it: its own number unless it is a repetition."""
    rows = np.ascontiguousarray((points.cpu() + 0.0).numpy())  # adding zero turns -0.0 into 0.0
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return np.asarray(first[which])


def check_repetitions(first: np.ndarray, targets: Targets) -> int:
    """How many points only repeat others; conflicting values among them are refused."""
    repeated = np.flatnonzero(first != np.arange(len(first)))
    if not len(repeated):
        return 0
    differ = (targets.matrix[repeated] != targets.matrix[first[repeated]]).numpy()
    conflicts = np.flatnonzero(differ.any(1))
    if len(conflicts):
        other = int(repeated[conflicts[0]])
        own = differ[conflicts[0]]
        name = next(name for name, columns in targets.columns.items() if own[columns].any())
        raise BadInput(
            f"{len(conflicts)} of {len(first)} points equal an earlier point but have other "
            f"values: no function passes through both. The first are points {int(first[other])} "
            f"and {other} under {name!r}. Remove one of each, or make their values agree"
        )
    return len(repeated)


def check_rank(kernel: Kernel, points: Tensor, distinct: int) -> None:
    """Refuse kernels whose functions are too few for so many points."""
    # A coordinate that is the same everywhere adds nothing to a distance, and zero nothing at all.
    idle = points[0] if kernel.based_on == "distances" else torch.zeros_like(points[0])
    coordinates = int((points != idle).any(0).sum())
    if kernel.based_on == "products":
        coordinates = max(1, coordinates)
    limit = kernel.rank_limit(coordinates)
    if limit is not None and distinct > limit:
        raise BadInput(
            f"the {kernel} kernel on {coordinates} coordinates spans at most {limit:,} dimensions: "
            f"it cannot pass through {distinct:,} points whatever their values. Take a kernel "
            "without such a limit (gaussian, laplace), a higher degree, or fewer points"
        )
