"""Files and data of another run, missing and damaged ones: findings, never tracebacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nonvacuous.certificate import Certificate
from nonvacuous.data import Examples
from nonvacuous.data.files import sha256_of_file as file_digest
from nonvacuous.errors import InvalidCertificate
from nonvacuous.records import TwinRecord
from nonvacuous.risk.losses import zero_one
from nonvacuous.rules.arithmetic import statement_of
from nonvacuous.verify import verify
from tests.audit import worlds

from .runs import (
    KINDS,
    evidence_of,
    failed_fields,
    make_run,
    network,
    resealed,
    write_run,
)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_another_run(tmp_path: Path, kind: str) -> None:
    certificate = make_run(tmp_path / "one", kind)
    other = network(seed=9)
    evidence = {
        "stochastic": lambda: worlds.stochastic(module=other),
        "drawn": lambda: worlds.drawn(module=other),
        "holdout": lambda: worlds.holdout(module=other),
    }[kind]()
    write_run(tmp_path / "two", evidence)
    result = verify(certificate, tmp_path / "two")
    assert not result.passed
    assert "certificate" in failed_fields(result)


def test_tensors_are_compared_even_where_no_file_is_listed(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    stripped = resealed(genuine, artifacts={})
    stripped.save(run / "certificate.json")
    assert failed_fields(verify(run)) == ["artifacts"]
    (run / "prior.safetensors").write_bytes((run / "posterior.safetensors").read_bytes())
    assert failed_fields(verify(run)) == ["artifacts", "prior.digest"]


ALWAYS = {
    "stochastic": ["split.npz", "prior.safetensors", "posterior.safetensors"],
    "drawn": ["split.npz", "prior.safetensors", "posterior.safetensors", "drawn.safetensors"],
    "holdout": ["split.npz", "network.safetensors"],
    "sparsity": ["split.npz", "prior.safetensors", "posterior.safetensors", "weights.safetensors"],
    "post-hoc": ["split.npz", "prior.safetensors", "posterior.safetensors", "log_scales.npz"],
}


@pytest.mark.slow_if("sparsity", "post-hoc")
@pytest.mark.parametrize("kind", ALWAYS)
def test_evidence_that_was_removed_is_a_failure(tmp_path: Path, kind: str) -> None:
    genuine = make_run(tmp_path / "run", kind)
    for name in ALWAYS[kind]:
        content = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).unlink()
        # Listed or not: a file that every run of this kind writes has to be there.
        for listed in (
            genuine.artifacts,
            {file: digest for file, digest in genuine.artifacts.items() if file != name},
            {},
        ):
            resealed(genuine, artifacts=listed).save(tmp_path / "run" / "certificate.json")
            result = verify(tmp_path / "run")
            assert not result.passed and not result.verified, name
            named = [f for f in result.failures if f.field.startswith("artifacts")]
            assert any(name in finding.detail for finding in named), str(result)
        (tmp_path / "run" / name).write_bytes(content)
    genuine.save(tmp_path / "run" / "certificate.json")
    assert verify(tmp_path / "run").passed


@pytest.mark.slow_if("post-hoc")
@pytest.mark.parametrize("kind", [*KINDS, "post-hoc"])
def test_verified_is_said_only_where_the_evidence_was_seen(tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    certificate, data = make_run(run, kind), worlds.examples()
    alone = verify(certificate)
    assert alone.passed and not alone.verified
    assert alone.wanted == ("the run folder", "the data")
    assert "CONSISTENT, not verified" in str(alone)
    assert "give the run folder and the data" in str(alone)
    files = verify(run)
    assert files.passed and not files.verified and files.wanted == ("the data",)
    examples = verify(certificate, data=data)
    assert examples.passed and not examples.verified
    assert "the run folder" in examples.wanted
    full = verify(run, data=data, trials=500)
    assert full.passed and full.verified and full.wanted == ()
    assert ": VERIFIED: " in str(full)


def test_a_network_that_is_not_at_hand_leaves_it_unverified(tmp_path: Path) -> None:
    write_run(tmp_path, evidence_of("stochastic"), architecture="own:build")
    result = verify(tmp_path, data=worlds.examples())
    assert result.passed and not result.verified and result.wanted == ("the network",)
    assert verify(tmp_path, data=worlds.examples(), model=network(), trials=500).verified


def test_a_loss_that_is_not_built_in_leaves_it_unverified(tmp_path: Path) -> None:
    own = replace(zero_one, name="my own")
    write_run(tmp_path, worlds.stochastic(module=network(), loss=own))
    result = verify(tmp_path, data=worlds.examples())
    assert result.passed and not result.verified and result.wanted == ()


def test_a_twin_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    genuine, run = make_run(tmp_path, "holdout"), tmp_path
    (run / "twin.safetensors").write_bytes(b"no tensors")
    artifacts = genuine.artifacts | {"twin.safetensors": file_digest(run / "twin.safetensors")}
    twin = TwinRecord(description="it", errors=0, examples=9, failure=0.05, risk_upper=1.0)
    resealed(genuine, artifacts=artifacts, held_out_twin=twin).save(run / "certificate.json")
    assert "held_out_twin.errors" in failed_fields(verify(run, data=worlds.examples()))


def test_a_certificate_that_lists_too_few_files(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    fewer = {name: d for name, d in genuine.artifacts.items() if name != "prior.safetensors"}
    resealed(genuine, artifacts=fewer).save(run / "certificate.json")
    assert "artifacts" in failed_fields(verify(run))


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "sub/file", "..", "a\\b", ""])
def test_names_that_lead_out_of_the_folder(run: Path, name: str) -> None:
    genuine = Certificate.load(run / "certificate.json")
    (run.parent / "outside").write_text("x", encoding="utf-8")
    pointing = resealed(genuine, artifacts={**genuine.artifacts, name: "0" * 64})
    result = verify(pointing, run)
    assert f"artifacts.{name}" in failed_fields(result)
    wrong = next(f for f in result.failures if f.field == f"artifacts.{name}")
    assert "not the name of a file" in wrong.detail


def test_other_data(run: Path) -> None:
    result = verify(run, data=worlds.examples(seed=8))
    assert "data.bound.content_digest" in failed_fields(result)
    assert not any(f.name == "the risk holds in fresh trials" for f in result.findings)


def test_one_label_changed(run: Path) -> None:
    data = worlds.examples()
    labels = data.labels.clone()
    split = evidence_of("stochastic").split
    labels[int(split.bound[0])] = (labels[int(split.bound[0])] + 1) % 3
    changed = Examples(data.inputs, labels, data.class_names, data.name)
    assert failed_fields(verify(run, data=changed)) == ["data.bound.content_digest"]


def test_too_few_examples_and_unreadable_data(run: Path) -> None:
    few = worlds.examples().subset(np.arange(50))
    assert not verify(run, data=few).passed
    for nonsense in ("no-such-data", 3.5, {"a": 1}):
        result = verify(run, data=nonsense)
        assert failed_fields(result) == ["data"]


def test_a_leak_that_the_certificate_denies(tmp_path: Path) -> None:
    evidence = evidence_of("stochastic")
    inputs = evidence.examples.inputs.clone()
    inputs[int(evidence.split.bound[0])] = inputs[int(evidence.split.prior[0])]
    data = Examples(inputs, evidence.examples.labels, ("a", "b", "c"), "world")
    leaking = worlds.stochastic(module=network(), data=data)
    honest = write_run(tmp_path / "honest", leaking)
    assert honest.status == "refused"
    assert verify(tmp_path / "honest", data=data).passed
    # The same run with the refusals painted over.
    painted = tuple(
        a.model_copy(update={"status": "checked", "effect": "none"}) for a in honest.assumptions
    )
    draft = resealed(honest, assumptions=painted, status="valid")
    resealed(draft, statement=statement_of(draft)).save(tmp_path / "honest" / "certificate.json")
    assert "data.prior" in failed_fields(verify(tmp_path / "honest", data=data))


def test_copies_that_the_certificate_does_not_speak_of(tmp_path: Path) -> None:
    evidence = evidence_of("stochastic")
    bound = evidence.split.bound
    inputs = evidence.examples.inputs.clone()
    inputs[bound[: len(bound) // 2].tolist()] = inputs[int(bound[-1])].clone()
    data = Examples(inputs, evidence.examples.labels, ("a", "b", "c"), "world")
    honest = write_run(tmp_path / "run", worlds.stochastic(module=network(), data=data))
    assert honest.status == "conditional"
    question = "the bound examples are no copies of one another"
    result = verify(tmp_path / "run", data=data, trials=500)
    (found,) = (f for f in result.findings if f.name == question)
    assert result.passed and "itself says" in found.detail
    painted = tuple(
        a.model_copy(update={"status": "not checkable", "effect": "none"})
        if a.effect != "none"
        else a
        for a in honest.assumptions
    )
    draft = resealed(honest, assumptions=painted, status="valid")
    resealed(draft, statement=statement_of(draft)).save(tmp_path / "run" / "certificate.json")
    result = verify(tmp_path / "run", data=data, trials=500)
    assert question in [f.name for f in result.failures]
    assert f"{len(bound) // 2} of the {len(bound)}" in result.failures[0].detail


class Remembering(nn.Module):
    """It looks the answer up in a table that belongs to its class, and to no network."""

    table = worlds.examples().inputs

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()
        self.eval()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(inputs.float(), Remembering.table).amin(dim=1, keepdim=True)
        scores: torch.Tensor = self.layers(inputs) + 0.0 * nearest
        return scores


def test_a_table_that_the_network_does_not_own(tmp_path: Path) -> None:
    question = "predicting uses only what the network owns"
    for painted in (False, True):
        folder = tmp_path / str(painted)
        evidence = worlds.stochastic(module=Remembering())
        honest = write_run(folder, evidence, architecture="own")
        assert honest.status == "refused"
        if painted:
            clean = tuple(
                a.model_copy(update={"status": "checked", "effect": "none"})
                for a in honest.assumptions
            )
            draft = resealed(honest, assumptions=clean, status="valid")
            resealed(draft, statement=statement_of(draft)).save(folder / "certificate.json")
        result = verify(folder, data=worlds.examples(), model=Remembering(), trials=500)
        (found,) = (f for f in result.findings if f.name == question)
        if painted:
            assert "model" in failed_fields(result) and "nothing pays" in found.detail
        else:
            assert result.passed and "itself says" in found.detail


def test_data_without_the_run_folder(run: Path, tmp_path: Path) -> None:
    certificate = Certificate.load(run / "certificate.json")
    result = verify(certificate, data=worlds.examples())
    assert result.passed
    assert any("run folder" in f.detail for f in result.unchecked if f.field.startswith("data"))


def test_the_wrong_model(run: Path) -> None:
    for wrong in ("mlp:9", nn.Linear(4, 3), lambda: nn.Linear(4, 3), "mlp:8,8"):
        result = verify(run, data=worlds.examples(), model=wrong, trials=500)
        assert not result.passed
        assert failed_fields(result)[0].startswith("model")
        assert any(f.name == "the risk holds in fresh trials" for f in result.unchecked)


def test_a_model_given_as_module_or_function(run: Path) -> None:
    for model in (network(seed=3), lambda: network(seed=4), "mlp:8", "tests.verify.runs:network"):
        result = verify(run, data=worlds.examples(), model=model, trials=500)
        assert result.passed, str(result)


def test_the_model_given_is_not_changed(run: Path) -> None:
    module = network(seed=3).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert verify(run, data=worlds.examples(), model=module, trials=500).passed
    assert module.training
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())


def test_missing_files_are_findings(run: Path, tmp_path: Path) -> None:
    missing = verify(tmp_path / "nothing.json")
    assert failed_fields(missing) == ["certificate"] and "no file" in missing.failures[0].detail
    assert failed_fields(verify(run / "certificate.json", tmp_path / "nowhere")) == ["artifacts"]
    assert failed_fields(verify(tmp_path)) == ["certificate"]
    (run / "posterior.safetensors").unlink()
    result = verify(run, data=worlds.examples())
    assert failed_fields(result) == ["artifacts.posterior.safetensors"]
    assert any(f.name == "the KL follows from the stored tensors" for f in result.unchecked)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\ufeff{}",
        '{"format": "other"}',
        "[" * 100_000,
        '{"a":1,"a":2}',
    ],
)
def test_files_that_are_no_certificates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(text, encoding="utf-8")
    result = verify(path)
    assert not result.passed and len(result.findings) == 1
    with pytest.raises(InvalidCertificate):
        result.raise_if_failed()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in verify(path).failures[0].detail


def test_the_field_of_a_schema_error_is_named(run: Path) -> None:
    path = run / "certificate.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"trials": 2000', '"trials": -2000'), encoding="utf-8")
    assert failed_fields(verify(path)) == ["empirical.trials"]


def test_white_space_and_key_order(run: Path) -> None:
    path = run / "certificate.json"
    text = path.read_text(encoding="utf-8")
    for changed in (text + " ", text.replace("\n", "\r\n"), text.rstrip("\n"), " " + text):
        path.write_text(changed, encoding="utf-8", newline="")
        assert "certificate" in failed_fields(verify(path))
    path.write_text(text, encoding="utf-8")
    assert verify(path).passed


def test_a_ledger_that_is_a_folder_is_a_finding(run: Path) -> None:
    result = verify(run, ledger=run)
    assert failed_fields(result) == ["attempts"]
    assert "no file that keeps what is written" in result.failures[0].detail
    (run.parent / "attempts.jsonl").mkdir()
    assert failed_fields(verify(run)) == ["attempts"]
