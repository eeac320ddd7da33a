"""Grids of made-up networks in which the right answer is known."""

from __future__ import annotations

from itertools import product

import numpy as np

from nonvacuous.measures.correlation import Trials


def grid(
    levels: dict[str, int], *, repetitions: int = 1
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every combination of so many values per axis; the columns by name, and the seeds."""
    rows = np.array(list(product(*map(range, levels.values()), range(repetitions))))
    return {name: rows[:, place] for place, name in enumerate(levels)}, rows[:, -1]


def world(
    *,
    levels: dict[str, int] | None = None,
    effects: dict[str, float] | None = None,
    repetitions: int = 2,
    spread: float = 0.02,
    noise: float = 0.0,
    seed: int = 0,
) -> Trials:
    """Gaps that grow with each axis by its effect, and by something of each network's own."""
    levels = levels or {"width": 3, "rate": 2, "noise": 2, "decay": 2}
    axes, seeds = grid(levels, repetitions=repetitions)
    generator = np.random.default_rng(seed)
    gaps = 0.1 + spread * generator.normal(size=len(seeds))
    for name, effect in (effects or {"width": 0.03, "noise": 0.1}).items():
        gaps = gaps + effect * axes[name]
    return Trials.of(gaps, axes, seeds=seeds, noise=np.full(len(seeds), noise))
