"""A user's own operator, as docs/operators.md shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.networks import (
    LogScale,
    Passage,
    capture,
    preservation_error,
    register_operator,
    registered_operators,
    scale_groups,
    unregister_operator,
)


@torch.library.custom_op("nonvacuous_tests::signed_square", mutates_args=())
def signed_square(x: Tensor) -> Tensor:
    return x * x.abs()


@signed_square.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class SignedSquare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return signed_square(x)


NAME = "nonvacuous_tests.signed_square.default"
X = torch.randn(3, 4, dtype=torch.float64)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), SignedSquare(), nn.Linear(5, 3)).double().eval()


@pytest.fixture
def registered() -> Iterator[None]:
    @register_operator(NAME)
    def rule(passage: Passage) -> LogScale:
        return passage.scale("x").power(2)

    yield
    unregister_operator(NAME)


def test_without_a_rule_nothing_passes_and_the_operator_is_named() -> None:
    graph = capture(network(), X)
    assert [entry.op for entry in graph.support] == [NAME]
    assert scale_groups(graph).size == 0


def test_with_a_rule_the_scales_pass(registered: None) -> None:
    module = network()
    graph = capture(module, X)
    assert graph.support == ()
    groups = scale_groups(graph)
    assert groups.size == 5
    assert groups.exponents["2.weight"][0].power == -2.0
    assert preservation_error(module, X, groups=groups) < 1e-12


def test_a_rule_for_the_name_serves_all_overloads() -> None:
    register_operator(NAME.rpartition(".")[0])(lambda passage: passage.scale("x").power(2))
    try:
        assert scale_groups(capture(network(), X)).size == 5
    finally:
        unregister_operator(NAME.rpartition(".")[0])


def test_a_wrong_rule_shows_in_the_preservation_error() -> None:
    register_operator(NAME)(lambda passage: passage.scale("x"))
    try:
        assert preservation_error(network(), X) > 0.1
    finally:
        unregister_operator(NAME)


def test_a_rule_is_not_replaced_by_accident(registered: None) -> None:
    with pytest.raises(BadInput, match="replace=True"):
        register_operator(NAME)(lambda passage: passage.scale("x"))
    with pytest.raises(BadInput, match="has no rule"):
        unregister_operator("nowhere.nothing")
    with pytest.raises(BadInput, match="at least one"):
        register_operator()
    assert NAME in registered_operators()
