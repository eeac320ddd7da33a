"""verify: honest runs pass in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.certificate import Certificate
from nonvacuous.certification import assemble
from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.risk.losses import bounded_cross_entropy
from nonvacuous.risk.watched import WatchedPass
from nonvacuous.seeds import DRAWS
from nonvacuous.verify import verify
from tests.audit import worlds

from .runs import (
    KINDS,
    evidence_of,
    make_run,
    network,
    write_run,
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_run_passes_in_full(tmp_path: Path, kind: str) -> None:
    make_run(tmp_path, kind)
    result = verify(tmp_path / "certificate.json", tmp_path, data=worlds.examples())
    assert result.passed, str(result)
    result.raise_if_failed()
    reasons = {finding.name: finding.detail for finding in result.unchecked}
    allowed = {
        "the rescaling columns follow from their KL",
        "the ledger of attempts knows this certificate",
        *(name for name in reasons if name.endswith("on the test examples")),
    }
    if kind == "holdout":
        allowed |= {
            "the KL is the sum of its terms",
            "the sampling seed is the derived one",
            "the held-out twin follows from its counts",
        }
    assert set(reasons) <= allowed, reasons
    assert str(result).startswith(f"{tmp_path / 'certificate.json'}: VERIFIED: ")


def test_the_public_name(run: Path) -> None:
    assert nv.verify is verify
    assert nv.verify(run / "certificate.json", run).passed
    assert not nv.verify(run / "certificate.json", run).verified


def test_a_folder_may_stand_for_its_certificate(run: Path) -> None:
    result = verify(run)
    assert result.passed
    assert any(f.name == "posterior.safetensors is untouched" for f in result.findings)


def test_a_certificate_in_memory(run: Path) -> None:
    certificate = Certificate.load(run / "certificate.json")
    result = verify(certificate)
    assert result.passed
    assert {"artifacts", "data", "certificate"} <= {f.field for f in result.unchecked}
    assert verify(certificate, run, data=worlds.examples()).passed


@pytest.mark.parametrize(
    "data",
    [
        worlds.examples(),
        Dataset(worlds.examples()),
        (worlds.examples().inputs, worlds.examples().labels),
    ],
)
def test_data_in_any_form(run: Path, data: Any) -> None:
    result = verify(run, data=data, trials=500)
    assert result.passed, str(result)
    assert any(f.name == "the risk holds in fresh trials" and f.passed for f in result.findings)


def test_data_by_path(run: Path, tmp_path: Path) -> None:
    data = worlds.examples()
    np.savez(tmp_path / "data.npz", inputs=data.inputs.numpy(), labels=data.labels.numpy())
    result = verify(run, data=tmp_path / "data.npz", trials=500)
    assert result.passed, str(result)


def test_a_refused_certificate_can_be_genuine(tmp_path: Path) -> None:
    evidence = worlds.changed(evidence_of("stochastic"), risk_transform="flipped")
    certificate = write_run(tmp_path, evidence)
    result = verify(tmp_path)
    assert certificate.status == "refused"
    assert result.passed and result.status == "refused"
    assert "the certificate calls itself refused" in str(result)


def test_losses_between_0_and_1(tmp_path: Path) -> None:
    loss = bounded_cross_entropy()
    write_run(tmp_path, worlds.stochastic(module=network(), loss=loss))
    result = verify(tmp_path, data=worlds.examples(), trials=2_000)
    assert result.passed, str(result)
    assert any(f.name == "the risk holds in fresh trials" and f.passed for f in result.findings)


def test_shared_draws(tmp_path: Path) -> None:
    write_run(tmp_path, worlds.stochastic(module=network()))
    path = tmp_path / "certificate.json"
    path.write_text(path.read_text().replace('"pairs"', '"shared draws"'))
    # No run counts like this, so no seed of theirs can be replayed.
    assert "empirical.scheme" in [finding.field for finding in verify(tmp_path).failures]


def test_a_network_with_buffers(tmp_path: Path) -> None:
    write_run(tmp_path, worlds.stochastic(module=worlds.WithBuffer()), architecture="WithBuffer")
    module = worlds.WithBuffer()
    result = verify(tmp_path, data=worlds.examples(), model=module, trials=500)
    assert result.passed, str(result)
    # The stored buffers count, not those of the module that was given; it stays as it is.
    module.get_buffer("center").fill_(3.0)
    assert verify(tmp_path, data=worlds.examples(), model=module, trials=500).passed
    assert float(module.get_buffer("center")[0]) == 3.0


def test_progress_is_reported(run: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    verify(
        run,
        data=worlds.examples(),
        trials=1_000,
        progress=lambda phase, done, total, message: seen.append((phase, done, total)),
    )
    assert seen[-1] == ("fresh trials", 1_000, 1_000)


def test_the_same_verification_twice(run: Path) -> None:
    once = verify(run, data=worlds.examples(), trials=1_000, seed=5)
    assert verify(run, data=worlds.examples(), trials=1_000, seed=5) == once
    other = verify(run, data=worlds.examples(), trials=1_000, seed=6)
    assert other != once and other.passed


def test_bad_arguments(run: Path) -> None:
    certificate = Certificate.load(run / "certificate.json")
    with pytest.raises(BadInput, match="trials"):
        verify(run, trials=0)
    with pytest.raises(BadInput, match="seed"):
        verify(run, seed=-1)
    with pytest.raises(BadInput, match="examples are given as data="):
        verify(run, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="fresh trials need another"):
        verify(run, seed=certificate.empirical.seed)


@pytest.mark.parametrize("draws", ["1", DRAWS])
def test_trials_that_an_earlier_library_drew_otherwise_are_compared_within_their_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: str
) -> None:
    drawn = WatchedPass.noise
    monkeypatch.setattr(WatchedPass, "noise", lambda *args: -drawn(*args))
    monkeypatch.setattr(assemble, "DRAWS", draws)
    make_run(tmp_path, "stochastic")
    monkeypatch.undo()
    result = verify(tmp_path / "certificate.json", tmp_path, data=worlds.examples())
    replay = next(f for f in result.findings if f.name.startswith("the recorded trials"))
    if draws == DRAWS:
        assert replay.passed is False and "the recorded seed gives" in replay.detail
    else:
        assert replay.passed and f"draws 1 there, {DRAWS} here" in replay.detail
