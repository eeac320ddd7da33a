"""The VC dimension that a study tells, for networks that are no perceptrons too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nonvacuous.bounds.capacity import vc_upper
from nonvacuous.data import Examples
from nonvacuous.errors import NotYetSupported
from nonvacuous.models import build
from nonvacuous.networks import capture
from nonvacuous.randomization.classical import capacity_of, perceptron_widths


def _examples(*shape: int) -> Examples:
    labels = torch.arange(6) % 3
    return Examples(torch.randn(6, *shape), labels, ("a", "b", "c"), "made up")


def _vc(module: nn.Module, examples: Examples) -> tuple[str, str]:
    (found,) = (line[1:] for line in capacity_of(module, examples).lines if "VC" in line[0])
    return found


def test_a_convolutional_network_is_counted_by_hand() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(2 * 3 * 3, 3),
    )  # fmt: skip
    # 2 x 9 weights and 2 biases, once folded; 2 x 6 x 6 ReLUs; 6 comparisons in each of 2 x 3 x 3
    # windows; 18 weights and a bias for the difference of two scores, one sign.
    by_hand = vc_upper(parameters=[20, 0, 0, 19], comparisons=[0, 72, 108, 1])
    assert _vc(module, _examples(1, 8, 8))[0] == f"at most {by_hand:,}"


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["inception", "inception:no-bn", "cnn:4,8"])
def test_branches_and_poolings_are_counted(spec: str) -> None:
    examples = _examples(3, 28, 28)
    told, note = _vc(build(spec, (3, 28, 28), 3, seed=0), examples)
    assert told.startswith("at most "), note


def test_a_network_that_bends_smoothly_says_why_not() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    told, note = _vc(module, _examples(2, 2))
    assert told == "not counted"
    assert "tanh" in note.lower()


class _Chain(nn.Module):
    """Two linear layers and a ReLU are listed, whatever the forward pass makes of them."""

    def __init__(self, inner: str = "relu", *, inputs: int = 4, width: int = 2_000) -> None:
        super().__init__()
        self.a, self.activation = nn.Linear(inputs, width), nn.ReLU()
        self.b, self.inner = nn.Linear(width, 3), inner

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.a(inputs.flatten(1))
        return self.b({
            "relu": lambda: self.activation(hidden),
            "none": lambda: hidden,
            "sin": lambda: torch.sin(hidden),
            "skip": lambda: self.activation(hidden) + hidden,
            "minus": lambda: -self.activation(hidden),
            "part": lambda: self.activation(hidden).cumsum(1),
        }[self.inner]())  # fmt: skip


def _theorem(module: nn.Module, examples: Examples) -> tuple[str, str]:
    (found,) = (line[1:] for line in capacity_of(module, examples).lines if "theorem" in line[0])
    return found


@pytest.mark.slow
def test_a_perceptron_in_any_dress_is_read_from_its_forward_pass() -> None:
    examples = _examples(2, 2)
    assert _theorem(_Chain(), examples)[0] == "memorizes any distinct inputs"
    dressed = nn.Sequential(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 7), nn.Identity(), nn.ReLU(inplace=True),
        nn.Linear(7, 5), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5, 3),
    )  # fmt: skip
    assert perceptron_widths(capture(dressed.eval(), torch.zeros(2, 2, 2))) == (7, 5)
    assert perceptron_widths(capture(nn.Linear(4, 3).eval(), torch.zeros(2, 4))) == ()


@pytest.mark.parametrize("inner", ["none", "sin", "skip", "minus", "part"])
def test_the_list_of_modules_proves_nothing(inner: str) -> None:
    module = _Chain(inner)
    assert [type(m).__name__ for m in module.children()] == ["Linear", "ReLU", "Linear"]
    told, why = _theorem(module, _examples(4))
    assert told == "no theorem here covers it"
    assert "not a perceptron" in why
    told, why = _vc(module, _examples(4))
    assert not told[0].isdigit(), "there is no lower bound without the construction"
    if inner == "sin":
        assert told == "not counted" and "sin" in why


def test_a_linear_map_has_few_dimensions_however_wide_it_is_inside() -> None:
    # Counted with the comparisons that are made: one, of the two scores.
    by_hand = vc_upper(parameters=[5 * 50, 51], comparisons=[0, 1])
    assert _vc(_Chain("none", width=50), _examples(4))[0] == f"at most {by_hand:,}"


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(torch.relu(self.a(inputs)))))


class _Scaled(_Chain):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        weight = self.a.weight / self.a.weight.norm()
        return self.b(torch.relu(nn.functional.linear(inputs, weight, self.a.bias)))


class _Reader(_Chain):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(inputs))).mean(1)


@pytest.mark.parametrize(
    ("module", "shape", "why"),
    [
        (_Twice(), (4,), "repeats the weights"),
        (_Scaled(), (4,), "does not read the layer before"),
        (_Reader(), (6, 4), "parts of an example"),
        (nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)), (4,), "has none"),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (4,), "does not return the scores"),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), (4,), "take turns"),
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), (4,), "1 "),
    ],
)
def test_what_is_no_perceptron_says_why(
    module: nn.Module, shape: tuple[int, ...], why: str
) -> None:
    with pytest.raises(NotYetSupported, match=why):
        perceptron_widths(capture(module.eval(), torch.randn(2, *shape)))


def test_the_count_on_the_graph_is_that_of_the_formula() -> None:
    from nonvacuous.bounds.capacity import memorization_verdict

    found = memorization_verdict(examples=6, inputs=4, widths=[7, 5])
    module = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    assert _vc(module, _examples(4))[0].endswith(f" to {found.vc_upper:,}")
