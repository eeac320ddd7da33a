"""The order in which losses are bet on: drawn by a die, not by the file."""

from __future__ import annotations

import hashlib

import numpy as np

from nonvacuous.seeds import derived_seed


def in_order_of_betting(losses: np.ndarray, seed: int, rows: str) -> np.ndarray:
    """The losses, shuffled as the seed and the digests of all columns, ``rows``, say.

    A bet is on the next loss, given those before it: whoever sorts a table by its losses must not
    choose what comes next, and an order that rests on the number of rows alone would be one fixed
    order of sorted losses. The digests stand for the die that draws one of all orders. It takes
    columns that could have been otherwise, as rows in the order in which they were drawn are. A
    sorted file of losses with two values has few: ``sample.py`` asks more of these.
    """
    ordered = np.sort(losses.astype("<f8") + 0.0)  # one zero, whatever its sign was
    digest = hashlib.sha256(ordered.tobytes() + rows.encode()).hexdigest()
    stream = np.random.PCG64(derived_seed(seed, "order of betting", digest))
    shuffled: np.ndarray = ordered[np.argsort(stream.random_raw(len(ordered)), kind="stable")]
    return shuffled
