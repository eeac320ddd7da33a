"""Layers that a posterior leaves out, trained on everything, as if they were fixed and free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nonvacuous as nv
from nonvacuous.data import Examples, Split
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.verification.findings import Disagreement
from nonvacuous.verification.inquiry import Contents, Inquiry, Known
from nonvacuous.verification.network import network_of
from tests.methods.test_tilted_posterior import QUICK, blobs, build


def forged(run: Path, network: Any, settings: dict[str, Any]) -> Inquiry:
    """The verification of a run whose posterior names the last layer alone."""
    whole = nv.DiagonalGaussian.load(run / "posterior.safetensors")
    last = [name for name in whole.names if name.startswith("layers.2")]
    posterior = nv.DiagonalGaussian(
        {name: whole.means[name] for name in last}, {name: whole.scales[name] for name in last}
    )
    fixed = {n: t for n, t in fixed_tensors(network).items() if not n.startswith("layers.2")}
    genuine = nv.Certificate.load(run / "certificate.json")
    size = sum(posterior.means[name].numel() for name in last)
    model = genuine.model.model_copy(
        update={"parameters": size, "fixed_digest": tensors_digest(fixed)}
    )
    contents = Contents(posterior=posterior, fixed=fixed, settings={"method": settings})
    data = Examples.of(blobs())
    split = Split.load(run / "split.npz")
    return Inquiry(
        genuine.model_copy(update={"model": model}),
        model=network,
        contents=contents,
        examples=Known(data, split, None),
    )


@pytest.mark.parametrize(
    ("fraction", "settings"),
    [(0.0, {}), (0.0, {"random": "last"}), (0.5, {}), (0.5, {"random": "all"})],
)
def test_what_nobody_paid_for_is_not_fixed(
    tmp_path: Path, fraction: float, settings: dict[str, Any]
) -> None:
    network = build("mlp:8", (6,), 3, seed=0)
    run = tmp_path / "run"
    nv.certify(
        network,
        blobs(),
        method=nv.Posterior(**QUICK, prior_fraction=fraction, twin=False),
        folder=run,
    )
    inquiry = forged(run, network, settings)
    with pytest.raises(Disagreement, match="27, recomputed 83"):
        network_of(inquiry)
    if fraction:  # the same is right where settings and a learned prior stand behind it
        inquiry.contents.settings = {"method": {"random": "last"}}
        assert len(list(network_of(inquiry).parameters())) == 2
