"""The VC dimension that a study tells, for networks that are no perceptrons too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nonvacuous.bounds.capacity import vc_upper
from nonvacuous.data import Examples
from nonvacuous.models import build
from nonvacuous.randomization.capacity_numbers import capacity_of


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
