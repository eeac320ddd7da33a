"""On every architecture: the function is kept, and nothing that is free is missing."""

from __future__ import annotations

import numpy as np
import pytest

from nonvacuous.networks import ScaleGroups, capture, exporting, preservation_error, scale_groups
from tests.networks.architecture import Architecture
from tests.networks.architectures import ARCHITECTURES, BY_NAME


def check(architecture: Architecture) -> None:
    module, example = architecture.made()
    groups = scale_groups(capture(module, example))
    assert groups.size == architecture.free, str(groups)
    assert set(groups.exponents) == {name for name, _ in module.named_parameters()}
    assert preservation_error(module, example, groups=groups) < 1e-12
    check_slices(groups)


def check_slices(groups: ScaleGroups) -> None:
    """Groups are consecutive slices with names of their own, and every scale touches a weight."""
    ends = np.cumsum([group.size for group in groups.groups]).tolist()
    assert [group.start + group.size for group in groups.groups] == ends
    assert sum(group.size for group in groups.groups) == groups.size
    assert len({group.name for group in groups.groups}) == len(groups.groups)
    assert all(group.tensors for group in groups.groups)
    touched: set[int] = set()
    for name, entries in groups.exponents.items():
        for entry in entries:
            assert entry.index.shape == tuple(groups.shapes[name][a] for a in entry.axes)
            touched.update(np.unique(entry.index).tolist())
    assert touched - {-1} == set(range(groups.size))


@pytest.mark.slow_if(
    "resnet50 folded", "resnet18 folded", "resnet18 unfolded", "resnet18", "vgg folded", "vgg"
)
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_random_scales_keep_the_function_and_all_free_scales_are_found(
    architecture: Architecture,
) -> None:
    check(architecture)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg folded", "resnet18 unfolded", "transformer glu", "llama"])
def test_the_same_after_in_place_operations_are_rewritten(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in-place operation makes torch rewrite the whole program into other operators."""
    monkeypatch.setattr(exporting, "_needs_rewriting", lambda node: True)
    check(BY_NAME[name])
