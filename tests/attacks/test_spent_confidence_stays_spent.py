"""Attacked: a certificate that is issued with a large share, and once more with a tiny one.

The ledger kept the last number of certificates to share with, so that each certificate could be
issued with half of the confidence and then be made to look as if it had taken next to nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nonvacuous as nv

QUICK = nv.Posterior(trials=500, twin=False, plain_training={"epochs": 2}, training={"epochs": 2})


def run(folder: Path, *, seed: int, attempts: int, **settings: Any) -> str:
    data = nv.data.digits().train
    network = nv.models.build("mlp:8", data.example_shape, 10, seed=0)
    arguments = {"method": QUICK, "seed": seed, "attempts": attempts, **settings}
    return nv.certify(network, data, folder=folder, **arguments).status


@pytest.mark.slow
def test_a_share_is_not_laundered(tmp_path: Path) -> None:
    statuses = []
    for seed in range(3):
        statuses.append(run(tmp_path / f"{seed}", seed=seed, attempts=2))
        run(tmp_path / f"{seed}-washed", seed=seed, attempts=1_000_000)
    assert statuses == ["valid", "valid", "conditional"], "two halves are all there is"


@pytest.mark.slow
def test_an_early_place_is_no_license_to_take_more(tmp_path: Path) -> None:
    assert run(tmp_path / "first", seed=0, attempts=1_000_000) == "valid"
    assert run(tmp_path / "second", seed=1, attempts=2) == "valid"
    # It was the first, but what it takes now was not left over by the second.
    assert run(tmp_path / "first", seed=0, attempts=1, force=True) == "conditional"
