"""The last digits of the best point of an orbit.

A descent that watches the KL cannot see the best scales to more than half the digits of a number:
the KL is flat where it is smallest. The slope is not. A few Newton steps on it, each solved by
conjugate gradients, give nearly all digits, so that a network has the same best point to many
digits in whatever gauge its weights are given.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, cg

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.reading import check_covered
from nonvacuous.rescaling.sweeps import Descent
from nonvacuous.rescaling.terms import Terms

_NEWTON_STEPS = 3
_SOLVER_STEPS = 60
# A step that is right to four digits is followed by another one; differences over the second of
# these tell the curvature to seven.
_ENOUGH, _APART = 1e-4, 1e-7


def polished(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups, log_scales: np.ndarray
) -> np.ndarray:
    """Log-scales near the given ones at which the slope of KL(Q moved || P) is smaller.

    Meant for the end of ``rescale``. Every log-scales are valid; where a step does not help, what
    was given comes back.
    """
    check_covered(Q, P, groups)
    best = groups.checked(log_scales)
    if groups.size == 0:
        return best
    terms = collapse(Q, P, groups).merged()
    slope, curvature = _derivatives(terms, best)
    for _ in range(_NEWTON_STEPS):
        moved = best - _newton_step(terms, best, slope, curvature)
        new, curvature = _derivatives(terms, moved)
        if not np.linalg.norm(new) < np.linalg.norm(slope):
            break
        best, slope = moved, new
    return best


def _derivatives(terms: Terms, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first derivative of the KL by every log-scale, and the second by each one alone."""
    return Descent(terms, torch.from_numpy(point)).derivatives()


def _newton_step(
    terms: Terms, point: np.ndarray, slope: np.ndarray, curvature: np.ndarray
) -> np.ndarray:
    """Conjugate gradients on the curvature, which is positive near a minimum.

    The curvature of each scale alone makes them fast: scales of one layer do not meet.
    """

    def curved(direction: np.ndarray) -> np.ndarray:
        apart = _APART / np.abs(direction).max()
        there, _ = _derivatives(terms, point + apart * direction)
        return np.asarray((there - slope) / apart)

    alone = np.maximum(curvature, 1e-6 * np.abs(curvature).max() + 1e-300)
    shape = (len(point), len(point))
    step, _ = cg(
        LinearOperator(shape, matvec=curved, dtype=np.float64),
        slope,
        rtol=_ENOUGH,
        maxiter=_SOLVER_STEPS,
        M=LinearOperator(shape, matvec=lambda residual: residual / alone, dtype=np.float64),
    )
    return np.asarray(step)
