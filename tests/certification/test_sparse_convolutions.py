"""nv.certify(mode="sparsity") of convolutional networks: trained here, given, resumed, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.certificate import Certificate
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import at_initialization, zero_mean
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.kinds import prior_kind
from nonvacuous.models import build
from nonvacuous.verify import verify
from tests.audit.sparse_conv_worlds import QUICK, examples, near, network, run
from tests.sparsity.calls import certify_sparse


@pytest.mark.slow
def test_digits_end_to_end(tmp_path: Path) -> None:
    """A small network is trained, certified below guessing, and verified in full."""
    digits = nv.data.load("digits")
    settings = QUICK.changed(steps=300, prior_steps=600, search_examples=300)
    certificate = nv.certify(
        build("cnn:8/no-bias", digits.train.example_shape, 10, seed=0),
        digits.train,
        method=settings,
        test=digits.test,
        folder=nv.Run(folder=tmp_path / "run", architecture="cnn:8/no-bias", source="digits"),
    )
    assert certificate.status == "valid" and not certificate.is_vacuous, str(certificate)
    record, observed = certificate.sparsity, certificate.observed
    assert record is not None and record.images == (1, 8, 8) and record.theorem == "E"
    assert all(o.errors / o.trials <= certificate.risk_upper for o in observed)
    result = verify(tmp_path / "run", data=digits.train)
    assert result.passed and result.verified, str(result)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["learned:0.2", "initialization", "zero"])
def test_a_network_that_is_trained_here(tmp_path: Path, prior: str) -> None:
    certificate = run(tmp_path / "run", method=QUICK.changed(prior=prior))
    kind, fraction = prior_kind(prior)
    record = certificate.sparsity
    assert record is not None and record.prior == kind
    assert certificate.status == "valid", str(certificate)
    assert certificate.predictor == "deterministic"
    assert certificate.data.bound.examples == (192 if fraction else 240)
    assert certificate.data.preprocessing.endswith("norm 1")
    twin = certificate.held_out_twin
    assert twin is not None and twin.examples == (192 if fraction else 48)
    assert verify(tmp_path / "run", data=examples()).passed
    center = DiagonalGaussian.load(tmp_path / "run" / "prior.safetensors")
    assert all(not bool(m.any()) for m in center.means.values()) == (kind == "zero")


@pytest.mark.slow
def test_the_number_is_that_of_the_library(tmp_path: Path) -> None:
    """Certified once more by the theorem's own function, from the stored weights."""
    certificate = run(tmp_path / "run")
    record = certificate.sparsity
    assert record is not None
    modules = []
    for name in ("posterior", "prior"):
        modules.append(build("cnn:3/no-bias", (1, 5, 5), 3, seed=1).eval())
        means = DiagonalGaussian.load(tmp_path / "run" / f"{name}.safetensors").means
        modules[-1].load_state_dict({key: mean.float() for key, mean in means.items()})
    parts = nv.data.Split.load(tmp_path / "run" / "split.npz")
    from nonvacuous.sparsity.training import scaled

    found = certify_sparse(
        *modules,
        scaled(examples()).subset(parts.bound),
        confidence=1 - 0.04,
        sampling_failure=0.01,
        passes=1,
        subset=100,
        seed=3,
    )
    assert (found.errors, found.trials) == (certificate.empirical.errors, 192)
    assert found.risk_upper == pytest.approx(certificate.risk_upper, rel=1e-6)
    assert list(record.setting.values()) == [
        tuple(v) if isinstance(v, list) else v for v in found.details["setting"].values()
    ]


def run_given(model: nn.Module, prior: Any, **changes: Any) -> Certificate:
    folder = nv.Run(folder=changes.pop("folder", None), architecture="own")
    method = QUICK.changed(prior=prior, twin=False, **changes)
    return nv.certify(model, examples(), method=method, folder=folder)


@pytest.mark.slow
def test_a_given_network_with_biases_and_both_poolings(tmp_path: Path) -> None:
    center = network()
    trained = near(center)
    for name, prior in (("zero", zero_mean()), ("initialization", at_initialization(center))):
        certificate = run_given(trained, prior, folder=tmp_path / name / "run")
        record = certificate.sparsity
        assert certificate.status == "valid" and record is not None and record.prior == name
        kinds = [
            None if shape is None or shape.pooling is None else shape.pooling.kind
            for shape in (layer.convolution for layer in record.layers)
        ]
        assert kinds == ["max", "average", None]
        assert verify(tmp_path / name / "run", data=examples(), model=trained).passed
        alone = verify(tmp_path / name / "run", data=examples())
        assert alone.passed and "model" in {finding.field for finding in alone.unchecked}
        posterior = DiagonalGaussian.load(tmp_path / name / "run" / "posterior.safetensors")
        ratio = posterior.scales["0.weight"].max() / posterior.scales["0.bias"].max()
        assert float(ratio) == pytest.approx(6.0), "the root of 36 positions"


class Stop(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["network", "fresh noise"])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path: Path, phase: str) -> None:
    def stopping(name: str, done: int, total: int, message: str) -> None:
        if name == phase:
            raise Stop

    whole, stopped = tmp_path / "whole" / "run", tmp_path / "stopped" / "run"
    run(whole)
    with pytest.raises(Stop):
        run(stopped, progress=stopping)
    assert (stopped / "sparsity-prior.checkpoint").exists()
    run(stopped, resume=True)
    names = {path.name for path in whole.iterdir()}
    assert names == {path.name for path in stopped.iterdir()}
    for name in names - {"events.jsonl"}:
        assert (whole / name).read_bytes() == (stopped / name).read_bytes(), name


class Branched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 1, 3, padding=1, bias=False), nn.Linear(25, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last((inputs + torch.relu(self.first(inputs))).flatten(1))
        return scores


@pytest.mark.parametrize(
    ("make", "changes", "error", "words"),
    [
        (lambda: build("cnn:3", (1, 5, 5), 3, seed=0), {}, BadInput, "cnn:16/no-bias"),
        (lambda: build("cnn:3/no-bias", (1, 5, 5), 3), {"theorem": "D"}, BadInput, "theorem E"),
        (lambda: build("cnn:3/no-bias", (1, 5, 5), 3), {"theorem": "A"}, BadInput, "theorem E"),
        (Branched, {}, NotYetSupported, "one line"),
        (
            lambda: nn.Sequential(
                nn.Conv2d(1, 2, 3, bias=False),
                nn.BatchNorm2d(2, affine=False),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(18, 3, bias=False),
            ),
            {},
            NotYetSupported,
            "only linear layers, convolutions",
        ),
    ],
)
def test_what_is_refused(make: Any, changes: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        nv.certify(make(), examples(), method=QUICK.changed(**changes))
