"""Guess the end of a slow sequence of sweeps from its last steps.

Where a few channels hang together tightly (chains of depthwise layers, recurrence), sweeps still
converge, but slowly and along few directions. Anderson's method combines the last points such
that their steps cancel as well as they can. It is a guess: the caller takes it only if the KL is
lower there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_WINDOW = 5


class Extrapolation:
    """The last few pairs of a point and where one sweep took it."""

    def __init__(self) -> None:
        self._starts: list[Tensor] = []
        self._ends: list[Tensor] = []

    def note(self, start: Tensor, end: Tensor) -> None:
        """Remember that a sweep led from ``start`` to ``end``."""
        self._starts = [*self._starts[-_WINDOW:], start]
        self._ends = [*self._ends[-_WINDOW:], end]

    def forget(self) -> None:
        """Keep only the last pair: the earlier ones misled."""
        self._starts, self._ends = self._starts[-1:], self._ends[-1:]

    def guess(self) -> Tensor | None:
        """A point at which the next step should be small, or None while too little is known."""
        if len(self._ends) < 3:
            return None
        ends = torch.stack(self._ends)
        steps = ends - torch.stack(self._starts)
        turns = steps[1:] - steps[:-1]
        # A handful of unknowns: the small system is solved on the processor.
        gram = (turns @ turns.T).cpu().numpy()
        right = (turns @ steps[-1]).cpu().numpy()
        size = np.sqrt(np.diag(gram))
        if not (np.isfinite(gram).all() and (size > 0).all()):
            return None
        mixture = np.linalg.lstsq(gram / np.outer(size, size), right / size, rcond=1e-12)[0] / size
        mixed = torch.from_numpy(mixture).to(ends.device)
        return ends[-1] - mixed @ (ends[1:] - ends[:-1])
