"""The order in which losses are bet on: that of no file."""

from __future__ import annotations

import hashlib

import numpy as np

from nonvacuous.seeds import derived_seed


def in_order_of_betting(losses: np.ndarray, seed: int) -> np.ndarray:
    """The losses, shuffled as the seed and their own values say, wherever they stood before.

    A bet is on the next loss, given those before it: whoever sorts a table by its losses must not
    choose what comes next. Sorted, they are the same losses from any table, and the digest of these
    chooses one of their orders as a die would: all are equally likely, as they are for independent
    draws. (An order fixed by seed and number alone is one of the sorted losses, not a random one.)
    """
    ordered = np.sort(losses.astype("<f8") + 0.0)  # one zero, whatever its sign was
    digest = hashlib.sha256(ordered.tobytes()).hexdigest()
    stream = np.random.PCG64(derived_seed(seed, "order of betting", digest))
    shuffled: np.ndarray = ordered[np.argsort(stream.random_raw(len(ordered)), kind="stable")]
    return shuffled
