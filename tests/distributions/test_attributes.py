"""Numbers outside parameters and buffers: all found, under stable names, and nothing else."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune, spectral_norm, weight_norm

import nonvacuous as nv
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.models import build


def keeping(value: Any) -> nn.Module:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    network[0].kept = value
    return network


T = torch.arange(3.0)
A = np.arange(3)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (T, ["0.kept"]),
        (A, ["0.kept"]),
        ([T, (A, "text", 3)], ["0.kept[0]", "0.kept[1][0]"]),
        ({"a": T, 7: {"b": A}, T: T}, ["0.kept['a']", "0.kept[7]['b']", "0.kept[2]"]),
        (OrderedDict(a=deque([A])), ["0.kept['a'][0]"]),
        ({T}, ["0.kept{0}"]),
        (np.array([T, None, A], dtype=object), ["0.kept[0]", "0.kept[2]"]),
        (b"memorized", ["0.kept"]),
        ([nn.Linear(1, 1, bias=False)], ["0.kept[0].weight"]),
        ([nn.BatchNorm1d(1, affine=False)], [
            "0.kept[0].running_mean", "0.kept[0].running_var", "0.kept[0].num_batches_tracked"]),
        ([keeping(T)[0]], ["0.kept[0].weight", "0.kept[0].bias", "0.kept[0].kept"]),
        (torch.eye(3).to_sparse(), ["0.kept"]),
        (torch.empty(3, device="meta"), []),
        ((0.5, 3, "relu", None, torch.float32, lambda x: x), []),
    ],
)  # fmt: skip
def test_every_place_is_looked_at(value: Any, names: list[str]) -> None:
    assert list(attribute_tensors(keeping(value))) == names


leaves = st.sampled_from(["tensor", "array", "number", "text"])
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(nested)
def test_as_many_as_were_put_there(shape: Any) -> None:
    count = 0

    def filled(part: Any) -> Any:
        nonlocal count
        if isinstance(part, str):
            count += part in ("tensor", "array")
            return {"tensor": torch.full((1,), count), "array": np.full(1, count)}.get(part, part)
        if isinstance(part, dict):
            return {key: filled(entry) for key, entry in part.items()}
        return type(part)(filled(entry) for entry in part)

    found = attribute_tensors(keeping(filled(shape)))
    assert sorted(int(tensor) for tensor in found.values()) == list(range(1, count + 1))


def test_what_is_registered_is_not_kept_twice() -> None:
    network = keeping(None)
    network.parts = [network[0], network[0].weight, network[1].running_mean]
    network.__dict__["alias"] = network[1]
    network[0].__dict__["parent"] = network
    assert attribute_tensors(network) == {}


def test_a_circle_ends() -> None:
    circle: list[Any] = [T]
    circle.append(circle)
    assert list(attribute_tensors(keeping(circle))) == ["0.kept[0]"]


def test_a_set_has_the_same_names_whatever_its_order() -> None:
    tensors = [torch.full((2,), float(value)) for value in range(20)]
    first = attribute_tensors(keeping(set(tensors)))
    again = attribute_tensors(keeping({tensor.clone() for tensor in reversed(tensors)}))
    assert len(first) == 20 and first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_they_share_memory_with_the_network() -> None:
    network = keeping([torch.zeros(2), np.zeros(2)])
    for tensor in attribute_tensors(network).values():
        tensor += 1
    assert float(network[0].kept[0].sum()) == float(network[0].kept[1].sum()) == 2.0


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.arange(4, dtype=np.longdouble),
        np.arange(4, dtype=">f4"),
        np.arange(4)[::-1],
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
)
def test_arrays_that_torch_does_not_know_are_compared_by_their_bytes(array: np.ndarray) -> None:
    found = attribute_tensors(keeping(array))["0.kept"]
    assert found.dtype == torch.uint8 and bytes(found.numpy()) == array.tobytes()


def test_ordinary_networks_keep_nothing() -> None:
    for spec, shape in (("mlp:5", (4,)), ("cnn:2", (1, 8, 8))):
        assert attribute_tensors(build(spec, shape, 10, seed=0)) == {}
    for kind in (nn.LSTM, nn.GRU, nn.MultiheadAttention):
        network = kind(4, 2)
        assert attribute_tensors(copy.deepcopy(network)) == {}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_weights_that_a_hook_of_torch_computes_belong_to_what_it_computes_them_from() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    weight_norm(network[0])
    spectral_norm(network[1])
    prune.l1_unstructured(network[2], "weight", 0.5)
    assert isinstance(vars(network[2])["weight"], torch.Tensor)
    assert attribute_tensors(network) == {}


def test_a_prior_keeps_copies_of_them() -> None:
    network = keeping(torch.zeros(2))
    prior = nv.priors.at_initialization(network)
    network[0].kept.add_(1)
    assert prior.fixed is not None and float(prior.fixed["0.kept"].sum()) == 0.0
    assert "1.running_mean" in prior.fixed
