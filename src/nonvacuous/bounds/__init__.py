"""Bounds as pure functions of plain numbers: the part whose mistakes would make certificates false.

Every function takes keyword-only floats and ints, checks them, returns a number in [0, 1] rounded
outward, and names its theorem. Nothing here knows about networks; nothing here imports torch.
"""

from nonvacuous.bounds.baseline import constant_lower
from nonvacuous.bounds.betting import betting, betting_lower
from nonvacuous.bounds.binary_kl import binary_kl, kl_inverse_lower, kl_inverse_upper
from nonvacuous.bounds.budget import ConfidenceBudget, Spend
from nonvacuous.bounds.capacity import hoeffding_radius, rademacher_gap, vc_lower, vc_upper
from nonvacuous.bounds.classes import (
    balanced,
    balanced_tilt,
    balanced_tilted,
    f1_lower,
    jaccard_lower,
)
from nonvacuous.bounds.compression import compression
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
    best_temperature,
    best_trade_off,
    catoni,
    catoni_union,
    mcallester,
    quadratic,
    seeger,
    thiemann,
    thiemann_union,
)
from nonvacuous.bounds.paired import constant_margin, paired_lower, rectangle_lower, sign_test
from nonvacuous.bounds.planning import allowed_errors, chance_to_promise, examples_needed
from nonvacuous.bounds.progressive import gate_failure, progressive
from nonvacuous.bounds.refined import empirical_bernstein, split_kl
from nonvacuous.bounds.sampling import sampling, sampling_bounded
from nonvacuous.bounds.sequential import sequence_lower, sequence_upper
from nonvacuous.bounds.sparsity import derandomized

__all__ = [
    "ConfidenceBudget",
    "MemorizationSizes",
    "MemorizationVerdict",
    "Spend",
    "allowed_errors",
    "balanced",
    "balanced_tilt",
    "balanced_tilted",
    "bartlett_gap",
    "best_temperature",
    "best_trade_off",
    "betting",
    "betting_lower",
    "binary_kl",
    "catoni",
    "catoni_union",
    "chance_to_promise",
    "compression",
    "constant_lower",
    "constant_margin",
    "derandomized",
    "disintegrated",
    "disintegrated_renyi",
    "empirical_bernstein",
    "examples_needed",
    "f1_lower",
    "gate_failure",
    "golowich_gap",
    "hoeffding_radius",
    "holdout",
    "holdout_lower",
    "jaccard_lower",
    "kl_inverse_lower",
    "kl_inverse_upper",
    "margin_risk",
    "maurer_moment",
    "mcallester",
    "memorization_sizes",
    "memorization_verdict",
    "neyshabur_gap",
    "paired_lower",
    "progressive",
    "quadratic",
    "rademacher_gap",
    "rectangle_lower",
    "sampling",
    "sampling_bounded",
    "seeger",
    "sequence_lower",
    "sequence_upper",
    "sign_test",
    "split_kl",
    "thiemann",
    "thiemann_union",
    "vc_lower",
    "vc_upper",
]
