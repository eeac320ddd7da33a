"""What every rule for an operator must satisfy: random scales leave the function alone.

A rule is put between something that writes channels and something that reads them, captured, and
tried with random scales in float64. A rule that says that scales pass must also let them pass,
so that "everything pinned" is no way to succeed. A new rule inherits all this with one line in
tests/networks/operator_cases.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.networks import (
    LogScale,
    Passage,
    capture,
    preservation_error,
    register_operator,
    registered_operators,
    scale_groups,
)
from nonvacuous.networks.operators.registry import lookup
from tests.networks.operator_cases import CASES, Case


class Embedded(nn.Module):
    """written = x · a + b per channel; result = sum of operator(written) · r."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        channel = (case.shape[1], *(1 for _ in case.shape[2:]))
        self.case = case
        self.a = nn.ParameterList(nn.Parameter(torch.empty(channel)) for _ in range(case.tensors))
        self.b = nn.ParameterList(nn.Parameter(torch.empty(channel)) for _ in range(case.tensors))
        self.extra = nn.ParameterList(nn.Parameter(torch.empty(s)) for s in case.weights)
        self.double()
        self.randomize()
        self.r = nn.Parameter(torch.randn(self.operated(example(case)).shape[1:]).double())

    def randomize(self) -> None:
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_()
                if self.case.positive:
                    parameter.abs_()

    def operated(self, x: Tensor) -> Tensor:
        written = [x * a + b for a, b in zip(self.a, self.b, strict=True)]
        return self.case.function(*written, *self.extra)

    def forward(self, x: Tensor) -> Tensor:
        return (self.operated(x) * self.r).flatten(1).sum(1)


def example(case: Case) -> Tensor:
    x = torch.randn(case.shape, generator=torch.Generator().manual_seed(1)).double()
    return x.abs() + 0.1 if case.positive else x


def test_every_registered_operator_has_a_case() -> None:
    assert set(registered_operators()) == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_random_scales_keep_the_function(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    module = Embedded(case).eval()
    graph = capture(module, example(case))
    ops = {node.op for node in graph.nodes}
    assert any(op == name or op.rpartition(".")[0] == name for op in ops), ops
    groups = scale_groups(graph)
    assert bool(groups.exponents["a.0"]) == case.passes, str(groups)
    assert preservation_error(module, example(case), groups=groups) < 1e-12


@pytest.mark.parametrize(
    "name",
    [
        "aten.layer_norm",
        "aten.rms_norm",
        "aten.group_norm",
        "aten.instance_norm",
        "aten.batch_norm",
        "aten._weight_norm",
    ],
)
def test_a_gain_is_free_where_its_input_is_not(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    graph = capture(Embedded(case).eval(), example(case))
    groups = scale_groups(graph)
    gain = "extra.1" if name == "aten._weight_norm" else "extra.0"
    assert groups.exponents[gain]
    assert any(entry.op.startswith(name) for entry in graph.support)


@pytest.mark.parametrize("name", ["aten.tanh", "aten.relu6", "aten.layer_norm"])
def test_a_wrong_rule_is_found_out(name: str) -> None:
    """The suite has teeth: these operators do not pass scales, and saying so changes outputs."""
    torch.manual_seed(0)
    case = CASES[name]
    module = Embedded(case).eval()
    rule = lookup(name)
    assert rule is not None

    @register_operator(name, replace=True)
    def wrong(passage: Passage) -> LogScale:
        first = passage.scale(next(iter(passage.node.arguments)))
        return LogScale(passage.shape, first.terms)

    try:
        assert preservation_error(module, example(case)) > 1e-3
    finally:
        register_operator(name, replace=True)(rule)
