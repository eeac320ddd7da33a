"""Randomization tests: does a network learn, or would it fit anything?

A data set is corrupted (labels or inputs replaced by noise), the same network is trained in the
same way, and what changes is compared. Capacity is what the network can fit after the corruption.
"""

from __future__ import annotations

from nonvacuous.randomization.classical import (
    Rademacher,
    UniformStability,
    rademacher_estimate,
    sign_vectors,
    uniform_stability,
)
from nonvacuous.randomization.corruptions import (
    Corrupted,
    CorruptedDataset,
    corrupt,
    corruption_findings,
)
from nonvacuous.randomization.registry import (
    CORRUPTIONS,
    Corruption,
    Setting,
    Spec,
    parse_corruption,
    register_corruption,
)
from nonvacuous.randomization.results import Study
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.randomization.study import study

__all__ = [
    "CORRUPTIONS",
    "Corrupted",
    "CorruptedDataset",
    "Corruption",
    "Rademacher",
    "Setting",
    "Spec",
    "Study",
    "StudySettings",
    "UniformStability",
    "corrupt",
    "corruption_findings",
    "parse_corruption",
    "rademacher_estimate",
    "register_corruption",
    "sign_vectors",
    "study",
    "uniform_stability",
]
