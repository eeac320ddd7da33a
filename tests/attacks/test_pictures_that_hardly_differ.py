"""Pictures that were multiplied before the certificate: the prior learns what the bound counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import nonvacuous as nv
from nonvacuous.audit.data_checks import INDEPENDENT
from nonvacuous.audit.gathering import nearly_alike
from nonvacuous.data import Examples


def multiplied(pictures: int = 50, each: int = 8) -> Examples:
    """Labels are chance: nobody can be right about a new picture more than half of the time."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(pictures, 1, 8, 8, generator=generator).repeat(each, 1, 1, 1)
    labels = torch.randint(0, 2, (pictures,), generator=generator).repeat(each)
    light, contrast = torch.rand(2, len(inputs), 1, 1, 1, generator=generator)
    noise = 0.002 * torch.randn(inputs.shape, generator=generator)
    order = torch.randperm(len(inputs), generator=generator)
    inputs = 0.2 * light + (0.5 + contrast) * inputs + noise
    return Examples(inputs[order], labels[order], ("a", "b"), "multiplied")


def test_what_augmentation_made_of_one_picture_counts_once(tmp_path: Path) -> None:
    data = multiplied()
    certificate = nv.certify(
        nv.models.build("mlp:64", (1, 8, 8), 2, seed=0),
        data,
        method=nv.Posterior(twin=False, trials=1_000),
        folder=tmp_path / "runs" / "a",
    )
    assert certificate.risk_upper < 0.3  # where the truth is a half
    (doubt,) = [each for each in certificate.assumptions if each.status == "violated"]
    assert certificate.status == "conditional" and doubt.name == INDEPENDENT
    assert "hardly differ" in doubt.detail


def test_pictures_of_a_kind_are_not_taken_for_one(tmp_path: Path) -> None:
    digits = nv.data.load("digits").train
    assert nearly_alike(digits, np.arange(len(digits))) == (0, len(digits))
    table = multiplied().prepared(multiplied().inputs.flatten(1))  # one large number would do it
    assert nearly_alike(table, np.arange(100)) == (0, 100)


def test_numbers_whose_squares_are_not_finite_are_left_alone() -> None:
    data = multiplied()
    everything = np.arange(len(data))
    assert nearly_alike(data, everything)[0] > 300
    data.inputs[0] = 3e38
    assert nearly_alike(data, everything) == (0, len(data))
