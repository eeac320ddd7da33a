"""What examples look like that were not drawn independently: numbered, or made of one another; and
what test examples say of them."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from nonvacuous.audit.evidence import Evidence
from nonvacuous.bounds import holdout_lower
from nonvacuous.data import Examples
from nonvacuous.records import Observation
from nonvacuous.rules.likeness import NEAR, RICH, bare

#: Values that lie more evenly than so many nats of luck explain number the examples; those of the
#: first examples are looked at before all are put in order.
_UNLIKELY, _FIRST = 20.0, 256
#: The chance of test errors that no promise survives.
_NO_LUCK = 1e-6
#: So many pictures are compared with all others.
_LOOKED_AT = 2048


def numbered(examples: Examples) -> int | None:
    """The first position in the inputs whose values number the examples; None if there is none.

    Of n independent draws, from whatever distribution, no two fall into the same of k cells with
    chance at most exp(-n(n - 1) / 2k). The cells are as wide as the least distance of two values.
    """
    rows, count = examples.inputs.flatten(1).cpu().numpy(), len(examples)
    few = np.diff(np.sort(rows[:_FIRST], axis=0), axis=0)
    for column in np.flatnonzero((few > 0).all(axis=0)):  # none in pictures
        values = np.sort(rows[:, column]).astype(np.float64)
        distance, reach = np.diff(values).min(), values[-1] - values[0]
        if distance * count * (count - 1) > 2 * _UNLIKELY * (reach + distance):
            return int(column)
    return None


def nearly_alike(examples: Examples, indices: np.ndarray) -> tuple[int, int]:
    """How many of some pictures at these positions hardly differ from another one, and of how many.

    Not asked of other inputs: where one number is far larger than the others, all are alike.
    """
    if len(examples.example_shape) != 3 or examples.inputs[0].numel() < RICH:
        return 0, len(indices)
    parts = examples.inputs.flatten(1).cpu().split(512)  # few enough to stay in the cache
    points = np.concatenate([bare(part.numpy()) for part in parts])
    if len(points) < len(examples):  # numbers whose squares leave the finite ones
        return 0, len(indices)
    some = np.random.default_rng(0).permutation(indices)[:_LOOKED_AT]
    distances = cKDTree(points).query(points[some], k=2, distance_upper_bound=NEAR)[0]
    return int(np.isfinite(distances[:, 1]).sum()), len(some)


def contradicted(evidence: Evidence) -> Observation | None:
    """Errors of the certified predictor on test examples that belie the promise, if they do."""
    tests = [each for each in evidence.observed if each.name.endswith("on the test examples")]
    others = ("mean weights", "last checkpoint")
    own = [each for each in tests if not any(words in each.name for words in others)]
    if not own or evidence.risk_upper is None or not evidence.loss.binary:
        return None
    # The randomized network meets test examples more than once: they count as one each.
    examples = min(each.trials for each in tests)
    errors = own[0].errors * examples // own[0].trials
    lower = holdout_lower(errors=errors, examples=examples, failure=_NO_LUCK)
    return own[0] if lower > evidence.risk_upper else None
