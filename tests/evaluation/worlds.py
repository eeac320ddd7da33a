"""Small tests with known mistakes."""

from __future__ import annotations

import numpy as np


def classes(size: int = 1000, errors: float = 0.05, seed: int = 0, count: int = 5):
    """Labels, predictions that err at a rate, and sites."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, count, size)
    wrong = generator.random(size) < errors
    predictions = np.where(wrong, (labels + 1) % count, labels)
    return predictions, labels, generator.choice(["A", "B", "C"], size)
