"""A prior that says it saw one part and was trained on the other: only the training shows it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nonvacuous.certificate import Certificate
from nonvacuous.certify import certify
from nonvacuous.data import Examples
from nonvacuous.methods import Progressive, Sparsity
from nonvacuous.methods.posterior import making
from nonvacuous.methods.sparsity.candidate import Trainer
from nonvacuous.models import build
from nonvacuous.settings import Run
from nonvacuous.verify import verify
from tests.cli.conftest import Invoke

from . import forging

CHAIN = "mlp:8/no-bias"


def sparsity_run(folder: Path) -> Certificate:
    return certify(
        build(CHAIN, (4,), 3, seed=0),
        forging.examples(),
        method=Sparsity(steps=20, prior_steps=20, passes=1, search_examples=100),
        folder=Run(folder=folder, architecture=CHAIN),
    )


def progressive_run(folder: Path) -> Certificate:
    return certify(
        forging.network(),
        forging.examples(),
        method=Progressive(batches=2, plain_training=forging.PLAINLY),
        folder=Run(folder=folder, architecture=forging.ARCHITECTURE),
    )


RUNS: dict[str, Callable[[Path], Certificate]] = {
    "learned": forging.posterior_run,
    "initial": lambda folder: forging.posterior_run(folder, prior_fraction=0.0),
    "post-hoc": forging.post_hoc_run,
    "sparsity": sparsity_run,
    "progressive": progressive_run,
}
#: The files that a training of each kind ends in.
ENDS = {
    "learned": {"prior.safetensors", "posterior.safetensors"},
    "initial": {"prior.safetensors", "posterior.safetensors", "twin.safetensors"},
    "post-hoc": {"twin.safetensors"},
    "sparsity": {"prior.safetensors", "posterior.safetensors", "weights.safetensors"},
    "progressive": {f"checkpoint-{number}.safetensors" for number in (1, 2)},
}


@pytest.fixture(scope="module", params=RUNS)
def honest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs") / request.param
    RUNS[request.param](folder)
    return request.param, folder


def _of_training(verification: Any, passed: bool | None) -> set[str]:
    return {
        finding.field.removeprefix("artifacts.")
        for finding in verification.findings
        if finding.name.startswith("the training repeated") and finding.passed is passed
    }


@pytest.mark.slow
def test_an_honest_training_ends_where_the_run_says(honest: tuple[str, Path]) -> None:
    kind, folder = honest
    threads = torch.get_num_threads()
    verification = verify(folder, data=forging.data(), retrain=True)
    assert verification.passed, verification
    assert _of_training(verification, True) == ENDS[kind]
    assert torch.get_num_threads() == threads
    assert _of_training(verify(folder, data=forging.data()), True) == set()


def _on_the_bound_part(monkeypatch: pytest.MonkeyPatch, kind: str, run: Path) -> None:
    """Whoever makes the certificate trains the prior on what the promise counts."""
    if kind == "learned":
        honestly = making._train_prior

        def prior(job: Any, model: Any, _part: Examples, *rest: Any) -> Any:
            return honestly(job, model, job.examples.subset(job.split.bound), *rest)

        monkeypatch.setattr(making, "_train_prior", prior)
    else:
        trained = Trainer.trained

        def stage(self: Trainer, name: Any, examples: Examples, **rest: Any) -> Any:
            return trained(self, name, forging.examples() if name == "prior" else examples, **rest)

        monkeypatch.setattr(Trainer, "trained", stage)
    RUNS[kind](run)
    monkeypatch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["learned", "sparsity"])
def test_a_prior_trained_on_the_bound_part_fails(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "runs" / kind
    _on_the_bound_part(monkeypatch, kind, run)
    assert verify(run, data=forging.data()).passed  # what is stored agrees with itself
    verification = verify(run, data=forging.data(), retrain=True)
    assert "prior.safetensors" in _of_training(verification, False)
    assert "artifacts.prior.safetensors" in {finding.field for finding in verification.failures}


@pytest.mark.slow
def test_elsewhere_it_says_what_cannot_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a forger says that it was made elsewhere: then nothing is verified."""
    run = tmp_path / "runs" / "learned"
    _on_the_bound_part(monkeypatch, "learned", run)
    made = Certificate.load(run / "certificate.json")
    forging.forged(run, software={**made.software, "processor": "Cray-1"})
    verification = verify(run, data=forging.data(), retrain=True)
    assert verification.passed and not verification.verified
    found = next(f for f in verification.unchecked if f.field == "artifacts.prior.safetensors")
    assert "processor Cray-1 there" in found.detail and "errs on" in found.detail


@pytest.mark.slow
def test_what_cannot_be_repeated_says_why(tmp_path: Path) -> None:
    """Weights that no seed makes, a network of the maker's own, and no data."""
    start = forging.network()
    with torch.no_grad():
        next(start.parameters()).mul_(1.5)
    method = Progressive(batches=2, plain_training=forging.PLAINLY, pretrained="by hand")
    certify(start, forging.examples(), method=method, folder=tmp_path / "own")

    def said(**given: Any) -> str:
        verification = verify(tmp_path / "own", retrain=True, **given)
        return next(f.detail for f in verification.unchecked if f.field == "training")

    assert "started from are not at hand" in said(data=forging.data(), model=forging.network())
    assert "takes the data" in said()

    def train(model: Any, inputs: Any, labels: Any, *, seed: int) -> Any:
        return model

    method = Progressive(batches=2, train=train)
    certify(forging.network(), forging.examples(), method=method, folder=tmp_path / "theirs")
    theirs = verify(tmp_path / "theirs", data=forging.data(), retrain=True)
    assert any("function of its maker's" in finding.detail for finding in theirs.unchecked)
    again = verify(tmp_path / "own", data=forging.data(), model=start, retrain=True)
    assert _of_training(again, True) == ENDS["progressive"]


@pytest.mark.slow
def test_the_command_repeats_a_built_in_training(tmp_path: Path, invoke: Invoke) -> None:
    np.savez(tmp_path / "world.npz", **_arrays(forging.examples()))
    flags = ["--data", str(tmp_path / "world.npz")]
    run = tmp_path / "runs" / "one"
    asked = ["--model", "mlp:8", "--epochs", "1", "--prior-epochs", "2", "--trials", "2000"]
    assert invoke("certify", *flags, *asked, "--out", str(run)).code == 0
    shutil.copytree(run, tmp_path / "copy")
    outcome = invoke("verify", str(tmp_path / "copy"), *flags, "--retrain", "--json")
    assert outcome.code == 0, outcome.err
    names = {f["field"] for f in json.loads(outcome.out)["findings"] if f["passed"]}
    assert {"artifacts.prior.safetensors", "artifacts.posterior.safetensors"} <= names


def _arrays(examples: Examples) -> dict[str, np.ndarray]:
    return {"inputs": examples.inputs.numpy(), "labels": examples.labels.numpy()}


def test_settings_that_no_run_has_are_a_finding(tmp_path: Path) -> None:
    forging.posterior_run(tmp_path, prior_fraction=0.0)
    forging.forged(tmp_path, {"prior_scale": "[-1.0]"})
    verification = verify(tmp_path, data=forging.data(), retrain=True)
    assert "training" in {finding.field for finding in verification.failures}
