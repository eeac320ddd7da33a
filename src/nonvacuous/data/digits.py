"""The 1,797 handwritten digits that come with scikit-learn: data that needs no download."""

from __future__ import annotations

import numpy as np
import torch

from nonvacuous.data.examples import Dataset, Examples

TEST_EXAMPLES = 360


def digits(seed: int = 0) -> Dataset:
    """Images of 8 x 8 pixels in [0, 1]: 1,437 for training and 360 for testing.

    The seed chooses which; the split is random, not stratified.
    """
    # Imported here, because scikit-learn takes a second to load and most callers bring other data.
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(bunch.target))
    everything = Examples(
        inputs=torch.from_numpy(bunch.images).to(torch.float32).div_(16.0)[:, None],
        labels=torch.from_numpy(bunch.target.astype(np.int64)),
        class_names=tuple(str(digit) for digit in range(10)),
        name="digits",
        preprocessing=("pixel/16",),
    )
    return Dataset(
        everything.subset(np.sort(order[TEST_EXAMPLES:])),
        Examples.of(everything.subset(np.sort(order[:TEST_EXAMPLES])), name="digits (test)"),
    )
