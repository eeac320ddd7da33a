"""Bounds as pure functions of plain numbers: the part whose mistakes would make certificates false.

Every function takes keyword-only floats and ints, checks them, returns a number in [0, 1] rounded
outward, and names its theorem. Nothing here knows about networks; nothing here imports torch.
"""

from nonvacuous.bounds.binary_kl import binary_kl, kl_inverse_lower, kl_inverse_upper
from nonvacuous.bounds.budget import ConfidenceBudget, Spend
from nonvacuous.bounds.capacity import hoeffding_radius, rademacher_gap, vc_lower, vc_upper
from nonvacuous.bounds.disintegrated import disintegrated, disintegrated_renyi
from nonvacuous.bounds.holdout import holdout, holdout_lower
from nonvacuous.bounds.memorization_capacity import (
    MemorizationSizes,
    MemorizationVerdict,
    memorization_sizes,
    memorization_verdict,
)
from nonvacuous.bounds.moment import maurer_moment
from nonvacuous.bounds.norms import (
    bartlett_gap,
    golowich_gap,
    margin_risk,
    neyshabur_gap,
)
from nonvacuous.bounds.pac_bayes import (
    best_trade_off,
    catoni,
    catoni_union,
    mcallester,
    quadratic,
    seeger,
    thiemann,
    thiemann_union,
)
from nonvacuous.bounds.refined import empirical_bernstein, split_kl
from nonvacuous.bounds.sampling import sampling, sampling_bounded
from nonvacuous.bounds.sparsity import derandomized

__all__ = [
    "ConfidenceBudget",
    "MemorizationSizes",
    "MemorizationVerdict",
    "Spend",
    "bartlett_gap",
    "best_trade_off",
    "binary_kl",
    "catoni",
    "catoni_union",
    "derandomized",
    "disintegrated",
    "disintegrated_renyi",
    "empirical_bernstein",
    "golowich_gap",
    "hoeffding_radius",
    "holdout",
    "holdout_lower",
    "kl_inverse_lower",
    "kl_inverse_upper",
    "margin_risk",
    "maurer_moment",
    "mcallester",
    "memorization_sizes",
    "memorization_verdict",
    "neyshabur_gap",
    "quadratic",
    "rademacher_gap",
    "sampling",
    "sampling_bounded",
    "seeger",
    "split_kl",
    "thiemann",
    "thiemann_union",
    "vc_lower",
    "vc_upper",
]
