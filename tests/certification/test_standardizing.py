"""Standardized inputs: fitted on the prior part alone, recorded, audited, computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.cli import exits
from nonvacuous.cli.app import main
from nonvacuous.errors import BadInput
from nonvacuous.training_settings import PlainTraining, PosteriorTraining

SIZES = torch.tensor([1.0, 300.0, 0.01])
INPUTS = torch.randn(300, 3, generator=torch.Generator().manual_seed(0)) * SIZES + 50 * SIZES
LABELS = (INPUTS[:, 1] > 15_000).long()
QUICK = {
    "training": PosteriorTraining(epochs=1),
    "plain_training": PlainTraining(epochs=2),
    "twin": False,
    "trials": 2_000,
}


def _certified(folder: Path, **options: bool) -> nv.Certificate:
    network = nv.models.build("mlp:8", (3,), 2, seed=0)
    method = nv.Posterior(**QUICK, **options)
    return nv.certify(network, (INPUTS, LABELS), method=method, folder=folder)


def test_by_the_prior_part_alone_and_the_split_stays(tmp_path: Path) -> None:
    certificate = _certified(tmp_path / "on" / "run", standardize=True)
    _certified(tmp_path / "off" / "run")
    on, off = (nv.data.Split.load(tmp_path / name / "run/split.npz") for name in ("on", "off"))
    assert np.array_equal(on.prior, off.prior) and np.array_equal(on.bound, off.bound)
    prior_part = nv.data.Examples.of((INPUTS, LABELS)).subset(on.prior)
    assert certificate.data.preprocessing == nv.data.Standardize.fit(prior_part).step
    row = next(a for a in certificate.assumptions if "preprocessing saw no" in a.name)
    assert row.status == "checked" and f"fitted on {len(on.prior)} examples" in row.detail
    assert nv.verify(tmp_path / "on" / "run", data=(INPUTS, LABELS)).verified


def test_another_standardization_does_not_verify(tmp_path: Path) -> None:
    _certified(tmp_path / "run", standardize=True)
    everything = nv.data.Examples.of((INPUTS, LABELS))
    leaked = nv.data.Standardize.fit(everything)(everything)
    assert not nv.verify(tmp_path / "run", data=leaked).passed


def test_without_a_prior_part() -> None:
    with pytest.raises(BadInput, match="standardize needs a prior part"):
        nv.Posterior(standardize=True, prior_fraction=0.0)


def test_a_progressive_certificate_is_standardized_by_its_first_part(tmp_path: Path) -> None:
    network = nv.models.build("mlp:8", (3,), 2, seed=0)
    plain = {"batches": 2, "plain_training": PlainTraining(epochs=2)}
    method = nv.Progressive(standardize=True, **plain)
    certificate = nv.certify(network, (INPUTS, LABELS), method=method, folder=tmp_path / "run")
    split = nv.data.Split.load(tmp_path / "run/split.npz")
    first = nv.data.Examples.of((INPUTS, LABELS)).subset(split.prior)
    assert certificate.data.preprocessing == nv.data.Standardize.fit(first).step
    assert nv.verify(tmp_path / "run", data=(INPUTS, LABELS), retrain=True).verified


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--mode", "sparsity"), "inputs of norm 1"),
        (("--weights", "w.safetensors", "--prior", "zero"), "as its first layer"),
        (("--mode", "holdout", "--weights", "w.safetensors"), "as its first layer"),
    ],
)
def test_other_modes_say_why_not(capfd, words: tuple[str, ...], why: str) -> None:
    assert main(["certify", "--data", "digits", "--standardize", *words]) == exits.USAGE
    assert why in capfd.readouterr().err
