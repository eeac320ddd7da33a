"""Attacked: a certificate that is issued with a large share, and once more with a tiny one.

The ledger kept the last number of certificates to share with, so that each certificate could be
issued with half of the confidence and then be made to look as if it had taken next to nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nonvacuous as nv

from . import forging

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


FIXED = "what the theorem wants fixed was fixed before the data"


@pytest.mark.parametrize("first", [0.7, None])
def test_a_threshold_is_not_read_off_another_certificate(
    tmp_path: Path, first: float | None
) -> None:
    """Two certificates share the confidence; what the first counted decides where the second is."""

    def gate(name: str, threshold: float | None, seed: int) -> nv.Certificate:
        more = {"threshold": threshold, "seed": seed, "attempts": 3}
        return forging.progressive_run(tmp_path / name, **more)

    assert gate("first", first, 0).status == "valid"
    # The same once more, with another seed, is what the share was kept for.
    assert gate("again", first, 1).status == "valid"
    second = gate("second", 0.55, 0)
    (row,) = (a for a in second.assumptions if a.name == FIXED)
    assert second.status == row.effect == "conditional"
    assert ("0.7" if first else "no gate") in row.detail
    assert nv.verify(tmp_path / "second", data=forging.data()).verified
    silent = forging.rewritten(
        second,
        lambda a: a.name == FIXED,
        status="asserted",
        effect="none",
        detail="threshold of gate was fixed before the bound examples were seen, as stated by the "
        "one who chose it.",
    )
    forging.forged(tmp_path / "second", **silent)
    failures = nv.verify(tmp_path / "second", data=forging.data()).failures
    assert any(f.field.startswith("assumptions") for f in failures)
