"""What capture writes down, and the sentences with which it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput, NotYetSupported, WrongMode
from nonvacuous.networks import capture, preservation_error, scale_groups

X = torch.randn(2, 4)


class Small(nn.Module):
    """Two linear layers with something in between that a test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.register_buffer("calls", torch.zeros(1))
        self.eval()

    def between(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(self.first(x)))


class Branching(Small):
    def between(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Noisy(Small):
    def between(self, x: Tensor) -> Tensor:
        return x + torch.randn(5)


class AlwaysDropping(Small):
    def between(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5)


class Counting(Small):
    def between(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.relu(x) * self.calls


class Masking(Small):
    def between(self, x: Tensor) -> Tensor:
        return x[x > 0].sum() * x


class Renormalizing(Small):
    def between(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.second.bias.mul_(2.0)
        return x


class Unknown(Small):
    def between(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class Foreign(Small):
    def between(self, x: Tensor) -> Tensor:
        return torch.frombuffer(x.detach().numpy().tobytes(), dtype=torch.float32).view(2, 5)


class InPlace(Small):
    def between(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x.clone().relu_()
        y[:, 0] = 0
        y += 2 * x.relu()
        return y


class SharedMemory(Small):
    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Linear(4, 5)
        self.third.weight = nn.Parameter(self.first.weight.data)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.third(x).sum()


class PlainView(Small):
    def __init__(self) -> None:
        super().__init__()
        self.view = self.first.weight.data

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x @ self.view.T).sum()


def test_the_graph_names_layers_operators_shapes_and_weights() -> None:
    graph = capture(Small(), X)
    first, relu, second = graph.nodes
    assert (first.op, first.layer, first.shape) == ("aten.linear.default", "first", (2, 5))
    assert first.parameters == ("first.weight", "first.bias")
    assert first.inputs == tuple(graph.inputs)
    assert relu.inputs == (first.name,)
    assert [reference.name for reference in second.references][1:] == list(second.parameters)
    assert graph.node(second.name) is second
    assert [reference.name for reference in graph.outputs] == [second.name]
    assert dict(graph.parameters) == {
        "first.weight": (5, 4), "first.bias": (5,), "second.weight": (3, 5), "second.bias": (3,)
    }  # fmt: skip
    assert graph.support == ()
    assert "first.weight, first.bias" in str(graph)


def test_every_argument_has_a_name_and_defaults_are_filled_in() -> None:
    graph = capture(nn.Conv2d(1, 2, 3, groups=1).eval(), torch.randn(2, 1, 5, 5))
    (node,) = graph.nodes
    assert list(node.arguments)[:3] == ["input", "weight", "bias"]
    assert node.arguments["groups"] == 1
    assert node.arguments["stride"] == (1, 1)


def test_training_mode_is_refused_and_names_the_part() -> None:
    module = Small()
    module.second.train()
    with pytest.raises(WrongMode, match=r"second.*module\.eval\(\)"):
        capture(module, X)


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (Branching(), NotYetSupported, r"depends on the values.*test_capture\.py.*torch\.where"),
        (Noisy(), WrongMode, r"draws random numbers"),
        (AlwaysDropping(), WrongMode, r"aten\.dropout.*draws random numbers"),
        (Counting(), WrongMode, r"changes calls when it is called"),
        (Renormalizing(), WrongMode, r"changes second\.bias when it is called"),
        (Masking(), NotYetSupported, r"depends on the values of tensors"),
        (Foreign(), NotYetSupported, r"Foreign.*test_capture\.py"),
        (SharedMemory(), NotYetSupported, r"first\.weight and third\.weight.*same memory"),
        (PlainView(), NotYetSupported, r"first\.weight and .*view.*same memory"),
        (nn.Linear(3, 2).eval(), BadInput, r"cannot be called on the example of shape \(2, 4\)"),
        (nn.LazyLinear(3).eval(), BadInput, r"no shape yet"),
        (
            nn.BatchNorm1d(4, track_running_stats=False).eval(),
            WrongMode,
            r"statistics of the batch",
        ),
        ("not a module", BadInput, r"torch\.nn\.Module"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_refusals_say_what_where_and_what_to_do(
    module: nn.Module, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        capture(module, X)


@pytest.mark.slow
def test_capture_leaves_the_module_and_the_terminal_alone(capfd: pytest.CaptureFixture) -> None:
    module = Counting()
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(WrongMode):
        capture(module, X)
    with pytest.raises(NotYetSupported):
        capture(Branching(), X)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert capfd.readouterr() == ("", "")


def test_an_unknown_operator_pins_what_it_touches_and_is_reported() -> None:
    module = Unknown()
    graph = capture(module, X)
    (entry,) = graph.support
    assert entry.op == "aten.special_bessel_j0.default"
    assert "register_operator" in entry.remedy
    groups = scale_groups(graph)
    assert groups.size == 0
    assert preservation_error(module, X, groups=groups) == 0
    with pytest.raises(NotYetSupported, match=r"bessel_j0.*register_operator"):
        capture(module, X, strict=True)


def test_a_bounded_activation_is_reported_but_no_error_even_when_strict() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)).eval()
    (entry,) = capture(module, X, strict=True).support
    assert (entry.layer, entry.op) == ("1", "aten.gelu.default")


@pytest.mark.slow
def test_in_place_operations_and_blocks_without_gradient_are_followed() -> None:
    module = InPlace()
    groups = scale_groups(capture(module, X))
    assert groups.size == 4  # the channel that is overwritten by a constant is pinned
    assert preservation_error(module, X, groups=groups) < 1e-12


def test_a_weight_under_two_names_appears_once_and_is_listed() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    module[2].weight = module[0].weight
    graph = capture(module, X)
    assert graph.ties == (("0.weight", "2.weight"),)
    assert "2.weight" not in graph.parameters
    assert [node.parameters[0] for node in graph.nodes if node.parameters] == ["0.weight"] * 2
    assert "0.weight, 2.weight" in str(graph)


def test_several_inputs_and_several_outputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 5), nn.Linear(3, 5), nn.Linear(5, 2)

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            hidden = torch.relu(self.a(x) + self.b(y))
            return {"scores": self.c(hidden), "input": x}

    module, example = Two().eval(), (X, torch.randn(2, 3))
    graph = capture(module, example)
    assert list(graph.inputs.values()) == [(2, 4), (2, 3)]
    groups = scale_groups(graph)
    assert groups.size == 5
    assert preservation_error(module, example, groups=groups) < 1e-12
