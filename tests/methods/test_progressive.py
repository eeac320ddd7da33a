"""Progressive certificates: tests along a training, their predictor, their evidence."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.audit.method_checks import BUILT_IN
from nonvacuous.certificate import Certificate
from nonvacuous.data import Examples
from nonvacuous.distributions.copying import CheckpointMixture
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.models import build
from nonvacuous.records import BoundRecord, Observation
from nonvacuous.risk.losses import bounded_cross_entropy
from nonvacuous.rules.drawing import FIRST_OBSERVED, batches_of, tilt_of, trained_on, twin_number

FIXED = "what the theorem wants fixed was fixed before the data"
FIRST = "each checkpoint met its batch before training on it"
COUNTED = "the errors of every batch can be counted again"
QUICK = {"plain_training": nv.PlainTraining(epochs=3, batch_size=32, learning_rate=0.1)}
making = importlib.import_module("nonvacuous.methods.progressive.making")


def blobs(count: int = 600, seed: int = 0) -> Examples:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    inputs = 2.0 * np.eye(6)[labels] + generator.standard_normal((count, 6))
    return Examples(
        torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels), ("a", "b", "c"), "blobs"
    )


def model() -> nn.Module:
    return build("mlp:8", (6,), 3, seed=0)


def certified(folder: Path | None = None, **options: object) -> Certificate:
    method = nv.Progressive(**{"batches": 3, **QUICK, **options})
    run = nv.Run(folder=folder, architecture="mlp:8")
    return nv.certify(model(), blobs(), method=method, test=blobs(300, 1), folder=run)


def row(certificate: Certificate, name: str):
    return next(a for a in certificate.assumptions if a.name == name)


def test_the_number_is_the_theorems(tmp_path: Path) -> None:
    certificate = certified(tmp_path / "run")
    record = certificate.progressive
    assert certificate.status == "valid", str(certificate)
    assert record.training == BUILT_IN
    assert sum(b.examples.examples for b in record.batches) == certificate.data.bound.examples
    assert sum(b.errors for b in record.batches) == certificate.empirical.errors
    aside = next(o for o in certificate.observed if o.name == FIRST_OBSERVED)
    tests = certificate.data.bound.examples
    tilt = tilt_of(aside, examples=tests, failure=0.05)
    call = {"errors": certificate.empirical.errors, "trials": tests, "failure": 0.05}
    assert certificate.risk_upper == nv.bounds.progressive(**call, tilt=tilt)
    assert row(certificate, FIXED).status == "checked"
    assert row(certificate, FIRST).status == "checked"
    assert "not the last checkpoint" in certificate.statement
    # The pooled counts under other theorems would be false claims.
    from nonvacuous.comparison import compare

    assert [b.key for b in compare(certificate).bounds] == ["progressive"]


@pytest.mark.slow
def test_it_is_verified_from_its_checkpoints(tmp_path: Path) -> None:
    run = tmp_path / "run"
    certified(run)
    checked = nv.verify(run, data=blobs())
    assert checked.verified, str(checked)
    nv.report(nv.Certificate.load(run / "certificate.json"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "draws, for each input, one of the checkpoints" in page
    assert "Nothing about the last checkpoint" in page


def forged(run: Path, change) -> Path:
    """The certificate with something changed, and sealed again."""
    found = Certificate.load(run / "certificate.json")
    fields = {name: getattr(found, name) for name in Certificate.model_fields if name != "digest"}
    path = run / "certificate.json"
    Certificate.sealed(**(fields | change(found))).save(path)
    return path


def test_forged_counts_are_found(tmp_path: Path) -> None:
    run = tmp_path / "run"
    certified(run)

    def moved(found: Certificate) -> dict:
        first, second, *rest = found.progressive.batches
        shifted = (
            first.model_copy(update={"errors": first.errors + 3}),
            second.model_copy(update={"errors": second.errors - 3}),
            *rest,
        )
        return {"progressive": found.progressive.model_copy(update={"batches": shifted})}

    forged(run, moved)
    assert nv.verify(run).passed  # consistent with itself
    failed = {f.field for f in nv.verify(run, data=blobs()).failures}
    assert any(field.startswith("progressive.batches") for field in failed)


def test_a_forged_tilt_is_found_without_data(tmp_path: Path) -> None:
    run = tmp_path / "run"
    certified(run)

    def better(found: Certificate) -> dict:
        inputs = found.bound.inputs | {"tilt": found.bound.inputs["tilt"] * 1.1}
        bound = found.bound.model_copy(update={"inputs": inputs})
        from nonvacuous.rules.arithmetic import recompute_bound, statement_of

        value = recompute_bound(bound)
        changed = found.model_copy(update={"risk_upper": value})
        return {"bound": bound, "risk_upper": value, "statement": statement_of(changed)}

    forged(run, better)
    assert "bound.inputs.tilt" in {f.field for f in nv.verify(run).failures}


@pytest.mark.parametrize("lie", ["the best tilt for the counts", "counts that never were"])
def test_a_tilt_that_looked_at_the_tests_is_refused(lie: str, monkeypatch) -> None:
    if lie.startswith("the best"):
        monkeypatch.setattr(
            making.rule,
            "tilt_of",
            lambda _aside, **facts: nv.bounds.best_temperature(
                empirical_risk=0.06, kl_nats=0.0, **facts
            ),
        )
    else:
        counted = Observation(name=FIRST_OBSERVED, errors=27, trials=50)
        monkeypatch.setattr(making.measurement, "observation", lambda *_: counted)
    certificate = certified()
    assert certificate.status == "refused"
    assert row(certificate, FIXED).effect == "refused"


def test_training_on_a_batch_before_its_test_is_refused(monkeypatch) -> None:
    honest = making.rule.trained_on

    def early(split, batches, seed, **options):
        first, *rest = honest(split, batches, seed, **options)
        return (np.sort(np.concatenate([first, batches[0][:1]])), *rest)

    monkeypatch.setattr(making.rule, "trained_on", early)
    assert row(certified(), FIRST).effect == "refused"


def test_batches_in_another_order_are_refused(monkeypatch) -> None:
    honest = making.rule.batches_of
    monkeypatch.setattr(making.rule, "batches_of", lambda *a: honest(*a)[::-1])
    assert row(certified(), FIRST).effect == "refused"


def test_copies_stay_in_one_batch() -> None:
    plain = blobs(60)
    doubled = Examples(plain.inputs.repeat(2, 1), plain.labels.repeat(2), ("a", "b", "c"), "twice")
    split = nv.Progressive().split_of(doubled, 0)
    batches = batches_of(doubled, split, 3, 0)
    hashes = doubled.input_hashes()
    assert sorted(np.concatenate(batches)) == sorted(split.bound)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not set(hashes[batches[first]]) & set(hashes[batches[second]])


def test_every_example_but_the_last_batch_trains() -> None:
    examples = blobs()
    split = nv.Progressive().split_of(examples, 0)
    batches = batches_of(examples, split, 4, 0)
    trained = trained_on(split, batches, 0, tilted=True)
    assert len(trained[0]) == len(split.prior) - 50  # set aside for the tilt
    assert set(trained[1]) == set(split.prior) | set(batches[0])
    assert set(trained[-1]) | set(batches[-1]) == set(range(600))
    assert twin_number(trained, 600) == 3


@pytest.mark.slow
def test_the_gate_passes_or_says_nothing(tmp_path: Path) -> None:
    passed = certified(tmp_path / "a" / "run", threshold=0.5)
    assert passed.risk_upper == 0.5 and passed.gate == 0.5 and not passed.is_vacuous
    assert "is below 0.5." in passed.statement and "< 0.5" in str(passed)
    assert nv.verify(tmp_path / "a" / "run", data=blobs()).verified
    failed = certified(tmp_path / "b" / "run", threshold=0.02)
    assert failed.risk_upper == 1.0 and failed.is_vacuous and failed.status == "valid"
    assert str(failed).startswith("GATE NOT PASSED (VALID)")
    assert failed.statement.startswith("The gate was not passed")
    assert nv.verify(tmp_path / "b" / "run", data=blobs()).verified
    for certificate, words in ((passed, "less than 50%"), (failed, "The gate was not passed")):
        nv.report(certificate, tmp_path / "page.html")
        assert words in (tmp_path / "page.html").read_text()
    # The first part trains as a whole: nothing is set aside for a tilt.
    assert not [o for o in passed.observed if o.name == FIRST_OBSERVED]


@pytest.mark.slow
def test_the_mixture_draws_by_the_share_of_tests(tmp_path: Path) -> None:
    class Constant(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.tensor(value))

        def forward(self, inputs):
            return self.value.expand(len(inputs), 1)

    mixture = CheckpointMixture([Constant(1.0), Constant(2.0), Constant(3.0)], [10, 30, 60])
    torch.manual_seed(0)
    drawn = mixture(torch.zeros(20_000, 1)).squeeze(1)
    shares = [float((drawn == value).float().mean()) for value in (1.0, 2.0, 3.0)]
    assert np.allclose(shares, [0.1, 0.3, 0.6], atol=0.015)
    run = tmp_path / "run"
    certificate = certified(run)
    predictor = nv.load_mixture(run, model())
    inputs = blobs(200, 2).inputs
    own = torch.stack([network(inputs) for network in predictor.networks], dim=1)
    scores = predictor(inputs)
    assert (scores.unsqueeze(1) == own).all(dim=2).any(dim=1).all()
    assert predictor.ends.tolist()[-1] == certificate.data.bound.examples
    exported = torch.export.export(
        predictor, (inputs[:4],), dynamic_shapes=({0: torch.export.Dim("examples")},)
    ).module()
    assert (exported(inputs).unsqueeze(1) == own).all(dim=2).any(dim=1).all()
    assert not torch.equal(exported(inputs), exported(inputs))
    (run / "checkpoint-2.safetensors").write_bytes((run / "checkpoint-1.safetensors").read_bytes())
    with pytest.raises(InvalidCertificate, match="not those that were certified"):
        nv.load_mixture(run, model())


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    whole = certified(tmp_path / "a" / "run")
    stopped = tmp_path / "b" / "run"

    def stop(phase: str, done: int, total: int, message: str) -> None:
        if phase == "checkpoint 3" and done >= 2:
            raise KeyboardInterrupt

    arguments = {
        "method": nv.Progressive(batches=3, **QUICK),
        "test": blobs(300, 1),
        "folder": nv.Run(folder=stopped, architecture="mlp:8"),
    }
    with pytest.raises(KeyboardInterrupt):
        nv.certify(model(), blobs(), progress=stop, **arguments)
    assert sorted(p.name for p in stopped.glob("checkpoint-*")) == [
        "checkpoint-1.safetensors",
        "checkpoint-2.safetensors",
    ]
    written = (stopped / "checkpoint-1.safetensors").stat().st_mtime_ns
    again = nv.certify(model(), blobs(), resume=True, **arguments)
    assert (stopped / "checkpoint-1.safetensors").stat().st_mtime_ns == written
    assert again == whole
    # Another run must not go on from these.
    other = arguments | {"method": nv.Progressive(batches=3, start=0.4, **QUICK)}
    nv.certify(model(), blobs(), force=True, **other)
    assert nv.verify(stopped, data=blobs()).verified


def nearest_mean(network, inputs, labels, *, seed):
    means = torch.stack([inputs[labels == label].mean(0) for label in range(3)])
    with torch.no_grad():
        network.weight.copy_(2 * means)
        network.bias.copy_(-means.square().sum(1))
    return network


@pytest.mark.parametrize("warm", [False, True])
def test_a_training_function_of_ones_own(tmp_path: Path, warm: bool) -> None:
    run = tmp_path / "run"
    method = nv.Progressive(batches=4, train=nearest_mean, warm=warm)
    certificate = nv.certify(lambda: nn.Linear(6, 3), blobs(), method=method, folder=run)
    assert certificate.progressive.training == "nearest_mean"
    found = row(certificate, FIRST)
    assert certificate.status == "valid" and found.status == "asserted"
    assert "nearest_mean" in found.detail
    assert nv.verify(run, data=blobs(), model=nn.Linear(6, 3)).verified
    assert "nearest_mean" in (run / "config.toml").read_text()
    assert json.loads((run / "certificate.json").read_text())["progressive"]["batches"]


def test_a_training_function_that_diverged_is_refused_in_words() -> None:
    def diverging(network, inputs, labels, *, seed):
        return nearest_mean(network, inputs * float("nan"), labels, seed=seed)

    method = nv.Progressive(batches=2, train=diverging)
    certificate = nv.certify(lambda: nn.Linear(6, 3), blobs(), method=method)
    assert certificate.status == "refused"
    assert any("training diverged" in each.detail for each in certificate.assumptions)


def test_what_cannot_be_is_said_before_any_work() -> None:
    for bad in ({"start": 0.0}, {"start": 1.0}, {"batches": 1}, {"threshold": 0.0}):
        with pytest.raises(BadInput):
            nv.Progressive(**bad)
    with pytest.raises(BadInput, match="too few for 400 batches"):
        certified(batches=400)
    with pytest.raises(BadInput, match="counts errors"):
        loss = bounded_cross_entropy(1e-3)
        nv.certify(model(), blobs(), method=nv.Progressive(), loss=loss)
    with pytest.raises(BadInput, match="cannot be called as"):
        nv.certify(model(), blobs(), method=nv.Progressive(train=lambda network: network))

    def other(network, inputs, labels, *, seed):
        return nn.Linear(6, 3)

    def halved(network, inputs, labels, *, seed):
        return network.half()

    for train in (other, halved):
        with pytest.raises(BadInput, match="other tensors"):
            nv.certify(model(), blobs(), method=nv.Progressive(train=train))


def test_three_batches_that_the_theorem_takes_for_two_are_refused(monkeypatch) -> None:
    honest = making.bound_record

    def fewer(name: str, **inputs: Any) -> BoundRecord:
        return honest(name, **inputs, batches=2)

    monkeypatch.setattr(making, "bound_record", fewer)
    certificate = certified(threshold=0.2)
    assert row(certificate, COUNTED).effect == "refused"
    assert "told of 2 batches; there are 3" in row(certificate, COUNTED).detail


def test_two_batches_are_held_to_the_exact_tail(tmp_path: Path) -> None:
    run = tmp_path / "two" / "run"
    certificate = certified(run, batches=2, threshold=0.2)
    assert certificate.bound.inputs["batches"] == 2 and certificate.gate == 0.2
    assert nv.verify(run, data=blobs()).verified
    # Three batches that call themselves two.
    run = tmp_path / "three" / "run"
    assert "batches" not in certified(run, threshold=0.2).bound.inputs

    def fewer(found: Certificate) -> dict:
        inputs = found.bound.inputs | {"batches": 2}
        return {"bound": found.bound.model_copy(update={"inputs": inputs})}

    forged(run, fewer)
    assert "bound.inputs.batches" in {f.field for f in nv.verify(run).failures}
