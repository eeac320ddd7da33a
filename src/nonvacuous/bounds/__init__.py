"""Bounds as pure functions of plain numbers: the part whose mistakes would make certificates false.

Every function takes keyword-only floats and ints, checks them, returns a number in [0, 1] rounded
outward, and names its theorem. Nothing here knows about networks; nothing here imports torch. What
a module lists in its ``__all__`` is exported here; :mod:`nonvacuous.bounds.table` has the theorems.
"""

import sys
from typing import TYPE_CHECKING

from nonvacuous.bounds.betting import *
from nonvacuous.bounds.binary_kl import *
from nonvacuous.bounds.budget import *
from nonvacuous.bounds.capacity import *
from nonvacuous.bounds.classes import *
from nonvacuous.bounds.compression import *
from nonvacuous.bounds.holdout import *
from nonvacuous.bounds.norms import *
from nonvacuous.bounds.pac_bayes import *
from nonvacuous.bounds.paired import *
from nonvacuous.bounds.refined import *
from nonvacuous.bounds.sequential import *
from nonvacuous.bounds.sparsity import *

if not TYPE_CHECKING:  # a type checker follows the stars
    __all__ = sorted(
        name
        for path, module in sys.modules.items()
        if path.startswith(f"{__name__}.")
        for name in getattr(module, "__all__", ())
    )
