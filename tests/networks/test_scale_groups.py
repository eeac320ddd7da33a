"""The shape of the result: indices, powers, slices, reasons."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.networks import ScaleGroups, capture, preservation_error, scale_groups
from tests.networks.attention import Attention
from tests.networks.dense import SquaredRelu, mlp


def groups_of(module: nn.Module, *shape: int) -> ScaleGroups:
    return scale_groups(capture(module.eval(), torch.randn(shape)))


def entries(groups: ScaleGroups, name: str) -> list[tuple[tuple[int, ...], list, float]]:
    return [(e.axes, e.index.tolist(), e.power) for e in groups.exponents[name]]


def test_a_linear_layer_is_written_along_axis_0_and_read_along_axis_1() -> None:
    groups = groups_of(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 2, 4)
    assert entries(groups, "0.weight") == [((0,), [0, 1, 2], 1.0)]
    assert entries(groups, "0.bias") == [((0,), [0, 1, 2], 1.0)]
    assert entries(groups, "2.weight") == [((1,), [0, 1, 2], -1.0)]
    assert groups.exponents["2.bias"] == ()
    (group,) = groups.groups
    assert (group.name, group.layer, group.start, group.size) == ("0", "0", 0, 3)
    assert group.tensors == (
        ("0.weight", (0,), 1.0), ("0.bias", (0,), 1.0), ("2.weight", (1,), -1.0)
    )  # fmt: skip


def test_flatten_repeats_each_channel_at_every_position() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 3)), nn.Flatten(), nn.Linear(6, 2)
    )
    groups = groups_of(module, 2, 1, 6, 6)
    assert entries(groups, "4.weight") == [((1,), [0, 0, 0, 1, 1, 1], -1.0)]
    assert entries(groups, "0.weight") == [((0,), [0, 1], 1.0)]


def test_depthwise_and_grouped_convolutions() -> None:
    module = nn.Sequential(
        nn.Conv1d(1, 4, 1), nn.Conv1d(4, 4, 3, groups=4), nn.Conv1d(4, 2, 3, groups=2)
    )
    groups = groups_of(module, 2, 1, 8)
    assert entries(groups, "1.weight") == [
        ((0,), [0, 1, 2, 3], -1.0),
        ((0,), [4, 5, 6, 7], 1.0),
    ]
    assert entries(groups, "2.weight") == [((0, 1), [[4, 5], [6, 7]], -1.0)]


class Counted(nn.Module):
    """A sum that is cut to a whole number on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).relu() + 1.0
        whole = hidden.detach().sum(1, keepdim=True, dtype=torch.int64)
        return self.last(hidden) * hidden.sum(1, keepdim=True) / (whole * whole)


def test_a_sum_in_whole_numbers_does_not_scale() -> None:
    torch.manual_seed(0)
    module, example = Counted().eval(), 9 * torch.randn(4, 3)
    assert groups_of(module, 2, 3).size == 0
    assert preservation_error(module, example) < 1e-12


def test_a_squared_relu_is_read_with_power_minus_two() -> None:
    groups = groups_of(mlp(SquaredRelu), 2, 4)
    assert entries(groups, "3.weight") == [
        ((0,), [5, 6, 7, 8, 9, 10], 1.0),
        ((1,), [0, 1, 2, 3, 4], -2.0),
    ]


def test_queries_and_keys_have_opposite_powers() -> None:
    groups = groups_of(Attention(), 2, 5, 8)
    weight = {e.power: e.index.tolist() for e in groups.exponents["inner.in_proj_weight"]}
    nothing = [-1] * 8
    assert weight[1.0] == [*range(8), *nothing, *range(8, 16)]
    assert weight[-1.0] == [*nothing, *range(8), *nothing]
    assert entries(groups, "inner.out_proj.weight") == [((1,), [*range(8, 16)], -1.0)]
    assert groups.exponents["inner.out_proj.bias"] == ()


def test_a_layer_in_a_residual_stream_reads_and_writes_one_group() -> None:
    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            return self.c(torch.relu(x + self.b(x)))

    (group,) = groups_of(Stream(), 2, 4).groups
    inside = {(axes, power) for name, axes, power in group.tensors if name == "b.weight"}
    assert inside == {((0,), 1.0), ((1,), -1.0)}


def test_factors_multiply_out_the_exponents() -> None:
    groups = groups_of(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 2, 4)
    scales = np.array([0.5, -1.0, 2.0])
    factors = groups.factors(scales)
    np.testing.assert_allclose(factors["0.weight"], np.exp(scales)[:, None])
    np.testing.assert_allclose(factors["2.weight"], np.exp(-scales)[None, :])
    np.testing.assert_allclose(factors["2.bias"], [1.0])
    assert all(
        np.broadcast_shapes(factor.shape, groups.shapes[name]) == groups.shapes[name]
        for name, factor in factors.items()
    )


@pytest.mark.parametrize(
    ("log_scales", "words"),
    [
        ([0.0, 0.0], r"shape \(2,\).*\(3,\)"),
        ([0.0, 0.0, float("nan")], "not finite"),
        ([0.0, 0.0, 800.0], "range of float64"),
    ],
)
def test_bad_log_scales_are_refused(log_scales: list[float], words: str) -> None:
    groups = groups_of(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 2, 4)
    with pytest.raises(BadInput, match=words):
        groups.factors(log_scales)


def test_a_frozen_weight_pins_every_group_that_touches_it() -> None:
    module = mlp(nn.ReLU).eval()
    graph = capture(module, torch.randn(2, 4))
    assert scale_groups(graph).size == 11
    groups = scale_groups(graph, frozen=["5.weight"])
    assert groups.size == 5
    assert groups.exponents["5.weight"] == ()
    assert preservation_error(module, torch.randn(2, 4), groups=groups) < 1e-12
    assert scale_groups(graph, frozen=["0.bias"]).size == 6
    with pytest.raises(BadInput, match=r"no weight 'nope'"):
        scale_groups(graph, frozen=["nope"])


def test_pinned_channels_come_with_their_reason() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    groups = groups_of(module, 2, 4)
    reasons = {entry.what: entry.reason for entry in groups.pinned}
    assert "tanh" in reasons["0 (5 channels)"]
    assert reasons["4 (3 channels)"] == "it is what the network returns"
    assert "2 (6 channels)" not in reasons
    text = str(groups)
    assert "free: 6, in groups: 1" in text
    assert "tanh" in text
    assert "not touched: 0.weight, 0.bias, 4.bias" in text


def test_unused_weights_are_listed_and_untouched() -> None:
    module = mlp(nn.ReLU)
    module.register_parameter("unused", nn.Parameter(torch.ones(3)))
    assert groups_of(module, 2, 4).exponents["unused"] == ()


def test_a_weight_without_elements_is_untouched() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    module.register_parameter("nothing", nn.Parameter(torch.empty(0, 2)))
    module[0].register_forward_hook(lambda layer, x, y: y + module.nothing.sum())
    assert groups_of(module, 2, 4).exponents["nothing"] == ()


def test_groups_can_be_sent_to_another_process() -> None:
    groups = groups_of(mlp(nn.ReLU), 2, 4)
    again = pickle.loads(pickle.dumps(groups))
    assert str(again) == str(groups)


def test_a_bottleneck_of_width_one_has_one_scale() -> None:
    module = nn.Sequential(
        nn.Linear(4, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)
    ).eval()
    groups = groups_of(module, 2, 4)
    assert groups.size == 2
    assert entries(groups, "2.weight") == [((0,), [1], 1.0), ((1,), [0], -1.0)]
    assert preservation_error(module, torch.randn(2, 4), groups=groups) < 1e-12
