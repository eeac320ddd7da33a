"""Fingerprints: equal exactly when what they stand for is equal."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.data import Examples
from nonvacuous.data.files import sha256_of_file as file_digest
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import indices_digest
from nonvacuous.errors import BadInput
from nonvacuous.rules.digests import (
    all_examples_digest,
    content_digest,
    example_set,
    fixed_tensors,
    index_digest,
    tensors_digest,
)
from nonvacuous.rules.drawing import draw_network, sampling_seed
from nonvacuous.seeds import derived_seed
from tests.audit import worlds


@given(st.sets(st.integers(0, 119), min_size=1))
def test_the_order_of_indices_does_not_matter(indices: set[int]) -> None:
    data = worlds.examples()
    forward, backward = sorted(indices), sorted(indices, reverse=True)
    assert example_set(data, forward) == example_set(data, np.array(backward))
    expected = hashlib.sha256(np.array(forward, dtype="<i8").tobytes()).hexdigest()
    assert example_set(data, backward).index_digest == expected


def test_what_a_prior_records_is_the_same_digest() -> None:
    assert indices_digest([5, 1, 3]) == index_digest(np.array([1, 3, 5]))


def test_the_content_is_inputs_and_labels_in_the_order_of_the_indices() -> None:
    data = worlds.examples()
    hashes = data.content_hashes()[[2, 7]]
    assert content_digest(data, [7, 2]) == hashlib.sha256(hashes.tobytes()).hexdigest()
    labels = data.labels.clone()
    labels[7] = (labels[7] + 1) % 3
    relabeled = Examples(data.inputs, labels, data.class_names, data.name)
    assert content_digest(relabeled, [2, 7]) != content_digest(data, [2, 7])
    assert content_digest(relabeled, [2, 8]) == content_digest(data, [2, 8])


@pytest.mark.parametrize("indices", [[], [3, 3], [-1], [120], [[1, 2]], [0.5]])
def test_indices_that_name_no_examples(indices: list[int]) -> None:
    with pytest.raises(BadInput):
        example_set(worlds.examples(), indices)


def test_fixed_tensors_are_all_that_is_not_random() -> None:
    module = worlds.WithBuffer()
    names = [name for name, _ in module.named_parameters()]
    assert list(fixed_tensors(module, names)) == ["center"]
    assert set(fixed_tensors(module)) == {*names, "center"}


def test_attributes_are_fixed_and_change_the_digest_of_nobody_else() -> None:
    module = worlds.WithBuffer()
    digest = tensors_digest(fixed_tensors(module))
    assert digest == tensors_digest(dict(module.state_dict()))
    module.layers[0].table = np.zeros(3)
    fixed = fixed_tensors(module)
    assert "layers.0.table" in fixed and tensors_digest(fixed) != digest
    before = tensors_digest(fixed)
    module.layers[0].table[1] = 1.0
    assert tensors_digest(fixed_tensors(module)) != before


def test_all_examples_have_one_digest_in_any_order() -> None:
    data = worlds.examples()
    digest = all_examples_digest(data)
    assert all_examples_digest(data.subset(np.arange(120)[::-1])) == digest
    assert all_examples_digest(data.subset(np.arange(119))) != digest
    doubled = data.subset(np.append(np.arange(120), 5))
    assert all_examples_digest(doubled) != digest
    labels = (data.labels + 1) % 3
    relabeled = Examples(data.inputs, labels, data.class_names, data.name)
    assert all_examples_digest(relabeled) != digest


def test_a_tensor_digest_sees_names_dtypes_shapes_and_bits() -> None:
    base = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    digest = tensors_digest(base)
    assert tensors_digest(dict(reversed(base.items()))) == digest
    for other in (
        {"a": torch.zeros(3, 2), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3, dtype=torch.float64), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3), "c": torch.ones(1)},
        {"a": -torch.zeros(2, 3), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3)},
    ):
        assert tensors_digest(other) != digest


def test_scalars_booleans_and_nothing_have_digests() -> None:
    assert tensors_digest({"n": torch.tensor(3)}) != tensors_digest({"n": torch.tensor(4)})
    assert tensors_digest({"n": torch.tensor([True])}) != tensors_digest({})
    assert tensors_digest({}) == hashlib.sha256().hexdigest()


def test_file_digest(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert file_digest(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()


def test_a_network_is_drawn_from_its_seed_alone() -> None:
    posterior = DiagonalGaussian.around(worlds.network(), scale=0.1)
    torch.manual_seed(0)
    first = draw_network(posterior, 5)
    torch.manual_seed(1)
    again, other = draw_network(posterior, 5), draw_network(posterior, 6)
    assert all(torch.equal(first[name], again[name]) for name in posterior.names)
    assert not torch.equal(first["0.weight"], other["0.weight"])
    assert sampling_seed(3, "ab") == derived_seed(3, "sampling", "ab")
