from __future__ import annotations

import json

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


def test_digest_and_record(make_examples):
    transform = Standardize.fit(make_examples())
    record = json.loads(json.dumps(transform.to_dict()))
    assert Standardize.from_dict(record) == transform
    for key, value in (("means", [0.0] * 4), ("fitted_on", "")):
        with pytest.raises(BadInput, match="changed"):
            Standardize.from_dict(record | {key: value})
    del record["scales"]
    with pytest.raises(BadInput, match="not the record"):
        Standardize.from_dict(record)


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
