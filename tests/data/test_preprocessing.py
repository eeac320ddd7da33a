from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nonvacuous.data import Examples, Standardize
from nonvacuous.errors import BadInput


def test_fit_is_per_channel_and_exact(make_examples):
    examples = make_examples(5000, shape=(3, 2, 2))
    transform = Standardize.fit(examples)
    array = examples.inputs.double().numpy()
    np.testing.assert_allclose(transform.means, array.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(transform.scales, array.std(axis=(0, 2, 3)), rtol=1e-12)
    result = transform(examples)
    assert result.inputs.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert (result.inputs.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-3
    assert result.preprocessing == (f"standardize:{transform.digest()}",)
    assert torch.equal(result.labels, examples.labels)


def test_flat_inputs_are_standardized_per_feature(make_examples):
    transform = Standardize.fit(make_examples(shape=(4,)))
    assert len(transform.means) == 4


def test_constant_features_keep_their_size():
    inputs = torch.full((70, 2), 0.1)
    inputs[:, 1] = torch.arange(70.0)
    examples = Examples(inputs, torch.arange(70) % 2, ("a", "b"), "x")
    transform = Standardize.fit(examples)
    assert transform.scales[0] == 1.0
    assert torch.isfinite(transform(examples).inputs).all()


def test_it_remembers_what_it_was_fitted_on(make_examples):
    examples = make_examples()
    prior = examples.subset(range(30))
    assert Standardize.fit(prior).fitted_on == prior.content_hash()
    assert Standardize((0.0,) * 4, (1.0,) * 4).fitted_on == ""  # given by the caller


def test_digest_covers_all_numbers_and_where_they_come_from(make_examples):
    transform = Standardize.fit(make_examples())
    others = (
        replace(transform, means=tuple(0.0 for _ in transform.means)),
        replace(transform, scales=tuple(1.0 for _ in transform.scales)),
        replace(transform, fitted_on=""),
    )
    assert len({each.digest() for each in (transform, *others)}) == 4


@pytest.mark.parametrize(
    ("means", "scales", "message"),
    [
        ((), (), "0 means"),
        ((0.0,), (1.0, 1.0), "1 means and 2 scales"),
        ((float("nan"),), (1.0,), "finite"),
        ((0.0,), (0.0,), "above 0"),
        ((0.0,), (-1.0,), "above 0"),
        ((0.0,), (float("inf"),), "above 0"),
    ],
)
def test_bad_statistics(means, scales, message):
    with pytest.raises(BadInput, match=message):
        Standardize(means, scales)


def test_bad_uses(make_examples):
    with pytest.raises(BadInput, match="too few"):
        Standardize.fit(make_examples(1))
    with pytest.raises(BadInput, match="do not fit"):
        Standardize((0.0,), (1.0,))(make_examples(shape=(4,)))
