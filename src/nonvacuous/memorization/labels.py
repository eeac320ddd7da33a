"""Labels that have nothing to do with the examples."""

from __future__ import annotations

import numpy as np

from nonvacuous.data import Examples
from nonvacuous.seeds import derived_seed


def random_labels(examples: Examples, *, seed: int) -> np.ndarray:
    """Labels drawn independently and uniformly from the classes."""
    generator = np.random.default_rng(derived_seed(seed, "random labels"))
    return generator.integers(0, examples.classes, size=len(examples))
