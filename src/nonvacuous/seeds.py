"""Seeds derived from seeds: one number from the user, an independent stream for every purpose."""

from __future__ import annotations

import hashlib

#: Which numbers a seed gives in trials and in training. Counted up whenever a change of this
#: library makes them others: ``verify`` then takes no earlier certificate for a false one.
DRAWS = "3"


def derived_seed(seed: int, *purpose: object) -> int:
    """A 63-bit seed that depends on ``seed`` and on what it is for, and on nothing else.

    The seed of the final Monte-Carlo estimate is derived from the digest of the frozen posterior:
    it does not exist before the posterior does, and cannot be drawn again.
    """
    text = "|".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
