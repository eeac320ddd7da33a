"""Sparsity certificates, recomputed: honest ones pass, and forgeries fail at their field."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nonvacuous.certificate import Certificate
from nonvacuous.rules.arithmetic import recompute_bound, sampled_risk, statement_of
from nonvacuous.sparsity.setting import total_nats
from nonvacuous.verification.findings import same_rate
from nonvacuous.verify import Verification, verify
from tests.audit import sparse_worlds

from .runs import failed_fields, resealed


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sparse") / "run"
    sparse_worlds.run(folder)
    return folder


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest, tmp_path / "run")
    return tmp_path / "run"


def consistent(genuine: Certificate, **changes: Any) -> Certificate:
    """The certificate that these terms would give, with everything that follows from them."""
    record = genuine.sparsity.model_copy(update=changes)  # type: ignore[union-attr]
    failure = genuine.budget.sampling.share
    risk = changes.pop("empirical", genuine.empirical)
    risk = risk.model_copy(update={"risk_upper": sampled_risk(risk, failure)})
    record = record.model_copy(
        update={"loss_upper": risk.risk_upper, "grid_nats": total_nats(record.charges)}
    )
    inputs = {
        **genuine.bound.inputs,
        "loss_upper": record.loss_upper,
        "grid_nats": record.grid_nats,
        "escape": record.escape,
    }
    bound = genuine.bound.model_copy(update={"inputs": inputs})
    draft = resealed(
        genuine, sparsity=record, empirical=risk, bound=bound, risk_upper=recompute_bound(bound)
    )
    return resealed(draft, statement=statement_of(draft))


def verified(folder: Path, **more: Any) -> Verification:
    return verify(folder, data=sparse_worlds.examples(), **more)


@pytest.mark.slow
@pytest.mark.parametrize("theorem", ["E", "F", "D", "A"])
def test_an_honest_run_verifies_in_full(tmp_path: Path, theorem: str) -> None:
    settings = sparse_worlds.QUICK.changed(theorem=theorem)
    certificate = sparse_worlds.run(tmp_path / "run", method=settings)
    assert certificate.status == "valid"
    result = verified(tmp_path / "run")
    assert result.passed, str(result)
    assert [f.name for f in result.unchecked] == ["the rescaling columns follow from their KL"]
    asked = {f.name for f in result.findings}
    assert "every constant in the loss covers the network" in asked
    assert "the noisy losses are those recorded" in asked
    assert "the network is the one certified" in asked
    assert result.verified and "VERIFIED: " in str(result).splitlines()[0]


def test_the_file_alone_verifies(folder: Path) -> None:
    certificate = Certificate.load(folder / "certificate.json")
    assert Certificate.from_json(certificate.model_dump_json()) == certificate
    assert verify(certificate).passed


def record_with(certificate: Certificate, **changes: Any) -> dict[str, Any]:
    assert certificate.sparsity is not None
    return {"sparsity": certificate.sparsity.model_copy(update=changes)}


def layer_with(certificate: Certificate, **changes: Any) -> dict[str, Any]:
    assert certificate.sparsity is not None
    first, *rest = certificate.sparsity.layers
    return record_with(certificate, layers=(first.model_copy(update=changes), *rest))


def charge_with(certificate: Certificate, **changes: Any) -> dict[str, Any]:
    assert certificate.sparsity is not None
    charges = list(certificate.sparsity.charges)
    charges[0] = charges[0].model_copy(update=changes)
    total = total_nats(charges)
    return record_with(certificate, charges=tuple(charges), grid_nats=total)


def empirical_with(certificate: Certificate, **changes: Any) -> dict[str, Any]:
    return {"empirical": certificate.empirical.model_copy(update=changes)}


FORGERIES: dict[str, tuple[str, Any]] = {
    "charges that do not sum": ("sparsity.grid_nats", lambda c: record_with(c, grid_nats=1.0)),
    "a cheaper choice": ("sparsity.charges", lambda c: charge_with(c, nats=0.0)),
    "another choice": ("sparsity.charges", lambda c: charge_with(c, choice="2^(0/4)")),
    "a smaller escape": ("sparsity.escape", lambda c: record_with(c, escape=1e-6)),
    "a smaller loss": ("sparsity.loss_upper", lambda c: record_with(c, loss_upper=0.0)),
    "more noise": ("sparsity.layers", lambda c: layer_with(c, scale=9.0)),
    "a shorter way": ("sparsity.layers", lambda c: layer_with(c, squared_distance=0.0)),
    "another setting": (
        "empirical.seed",
        lambda c: record_with(c, setting={**c.sparsity.setting, "first": -3}),
    ),
    "a setting off its grid": (
        "sparsity",
        lambda c: record_with(c, setting={**c.sparsity.setting, "escape": 99}),
    ),
    "a setting of nothing": ("sparsity", lambda c: record_with(c, setting={})),
    "more passes": ("empirical.trials", lambda c: record_with(c, passes=9)),
    "other words for the prior": (
        "prior.description",
        lambda c: {"prior": c.prior.model_copy(update={"description": "a public beacon"})},
    ),
    "other words for the posterior": (
        "posterior.description",
        lambda c: {"posterior": c.posterior.model_copy(update={"description": "no noise"})},
    ),
    "chosen from many": ("sparsity.charges", lambda c: record_with(c, choices=4)),
    "a prior that saw nothing": ("sparsity.prior", lambda c: record_with(c, prior="zero")),
    "a prior that saw less": (
        "sparsity.prior_fraction",
        lambda c: record_with(c, prior_fraction=0.01),
    ),
    "another network": ("empirical.seed", lambda c: record_with(c, network_digest="0" * 64)),
    "the theorem without noise": ("empirical.scheme", lambda c: record_with(c, theorem="A")),
    "a theorem of the future": ("sparsity", lambda c: record_with(c, theorem="Z")),
    "losses of one law": ("empirical.risk_upper", lambda c: empirical_with(c, identical=True)),
    "another seed": ("empirical.seed", lambda c: empirical_with(c, seed=1)),
    "pairs": ("empirical.scheme", lambda c: empirical_with(c, scheme="pairs")),
    "no division": (
        "bound.inputs.escape",
        lambda c: {
            "bound": c.bound.model_copy(update={"inputs": {**c.bound.inputs, "escape": 0.0}})
        },
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_sealed_forgery_is_found_from_the_file_alone(honest: Path, name: str) -> None:
    field, change = FORGERIES[name]
    genuine = Certificate.load(honest / "certificate.json")
    result = verify(resealed(genuine, **change(genuine)))
    assert field in failed_fields(result), str(result)


def test_a_consistent_forgery_of_a_constant_meets_the_tensors(folder: Path) -> None:
    genuine = Certificate.load(folder / "certificate.json")
    assert genuine.sparsity is not None
    lines = list(genuine.sparsity.charges)
    place = next(i for i, c in enumerate(lines) if c.choice.startswith("reference x"))
    update = {"choice": "reference x 2^(0/64)", "nats": charge_of_zero()}
    if lines[place].choice == update["choice"]:
        update = {"choice": "reference x 2^(-1/64)", "nats": charge_of_zero(-1)}
    lines[place] = lines[place].model_copy(update=update)
    forged = consistent(genuine, charges=tuple(lines))
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(folder / "certificate.json")
    assert failed_fields(verify(folder)) == ["sparsity.charges"]


def charge_of_zero(step: int = 0) -> float:
    from nonvacuous.bounds.sparsity import integer_nats

    return integer_nats(step)


def test_a_constant_left_out_is_missed_from_the_file_alone(folder: Path) -> None:
    genuine = Certificate.load(folder / "certificate.json")
    assert genuine.sparsity is not None
    charges = genuine.sparsity.charges
    for left_out in charges:
        rest = tuple(charge for charge in charges if charge is not left_out)
        assert failed_fields(verify(consistent(genuine, charges=rest))) == ["sparsity.charges"]
    rest = tuple(c for c in charges if not c.choice.startswith("reference x"))
    forged = consistent(genuine, charges=rest)
    assert "nobody paid" in verify(forged).failures[0].detail
    forged.save(folder / "certificate.json")
    assert failed_fields(verify(folder)) == ["sparsity.charges"] * 2


def test_a_line_too_many_is_found_from_the_file_alone(honest: Path) -> None:
    genuine = Certificate.load(honest / "certificate.json")
    assert genuine.sparsity is not None
    more = genuine.sparsity.charges[-1].model_copy(update={"name": "row norm of nothing"})
    result = verify(consistent(genuine, charges=(*genuine.sparsity.charges, more)))
    assert failed_fields(result) == ["sparsity.charges"]
    assert "no choice of this theorem" in result.failures[0].detail


def test_nothing_is_left_to_compare_with(folder: Path) -> None:
    """No KL, no constants, no files: consistent with itself, and with nothing else."""
    genuine = Certificate.load(folder / "certificate.json")
    record, complexity = genuine.sparsity, genuine.complexity
    assert record is not None and complexity is not None
    terms = tuple(term.model_copy(update={"nats": 0.0}) for term in complexity.terms)
    near = tuple(layer.model_copy(update={"squared_distance": 0.0}) for layer in record.layers)
    free = resealed(
        genuine,
        artifacts={},
        complexity=complexity.model_copy(update={"terms": terms, "kl_nats": 0.0}),
        bound=genuine.bound.model_copy(update={"inputs": {**genuine.bound.inputs, "kl_nats": 0.0}}),
    )
    for charges in (record.charges, record.charges[:4]):
        forged = consistent(free, layers=near, charges=charges)
        assert forged.risk_upper < genuine.risk_upper
        forged.save(folder / "certificate.json")
        for name in ("prior", "posterior", "weights"):
            (folder / f"{name}.safetensors").unlink(missing_ok=True)
        result = verified(folder)
        assert "artifacts" in failed_fields(result) and not result.verified
    assert "sparsity.charges" in failed_fields(result)


def test_consistent_forged_counts_are_counted_again(folder: Path) -> None:
    genuine = Certificate.load(folder / "certificate.json")
    risk = genuine.empirical.model_copy(update={"errors": 0})
    forged = consistent(genuine, empirical=risk)
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(folder / "certificate.json")
    result = verified(folder)
    assert failed_fields(result)[0] == "empirical.errors"
    assert "counted again from the recorded seed" in result.failures[0].detail


@pytest.mark.slow
def test_noise_of_another_kind_of_device_is_compared_by_rate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    genuine = Certificate.load(folder / "certificate.json")
    elsewhere = consistent(genuine, device="cuda")
    elsewhere.save(folder / "certificate.json")
    result = verified(folder)
    assert result.passed, str(result)
    assert any("with fresh noise" in f.detail for f in result.findings)
    honest = genuine.empirical
    assert honest.errors is not None
    risk = honest.model_copy(update={"errors": honest.trials})
    consistent(elsewhere, empirical=risk).save(folder / "certificate.json")
    assert failed_fields(verified(folder))[0] == "empirical.errors"
    # As few as one draw could have by luck; many draws show that it was none.
    often = (64 * honest.errors, 64 * honest.trials)
    few = next(e for e in range(honest.trials) if same_rate(e, honest.trials, *often) > 1e-4)
    assert few < honest.errors
    risk = honest.model_copy(update={"errors": few})
    consistent(elsewhere, empirical=risk).save(folder / "certificate.json")
    assert failed_fields(verified(folder)) == ["sparsity.loss_upper"]


def test_a_prior_of_zeros_that_is_called_the_initial_weights(tmp_path: Path) -> None:
    settings = sparse_worlds.QUICK.changed(prior="zero")
    genuine = sparse_worlds.run(tmp_path / "run", method=settings)
    assert verified(tmp_path / "run").verified
    words = {
        "description": genuine.prior.description.replace("weights of zero", "the initial weights")
    }
    prior = {"prior": genuine.prior.model_copy(update=words)}
    forged = resealed(genuine, **prior, **record_with(genuine, prior="initialization"))
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(tmp_path / "run" / "certificate.json")
    assert failed_fields(verified(tmp_path / "run")) == ["sparsity.prior"]


def test_medians_of_other_thresholds_and_margins(folder: Path) -> None:
    genuine = Certificate.load(folder / "certificate.json")
    for name in ("threshold", "margin"):
        for other in (None, 1.001 * getattr(genuine.sparsity, name)):
            resealed(genuine, **record_with(genuine, **{name: other})).save(
                folder / "certificate.json"
            )
            assert failed_fields(verified(folder)) == [f"sparsity.{name}"]


def test_a_device_that_nobody_has(folder: Path) -> None:
    genuine = Certificate.load(folder / "certificate.json")
    consistent(genuine, device="abacus").save(folder / "certificate.json")
    assert not verified(folder).passed


def test_norms_of_other_inputs(folder: Path) -> None:
    genuine = Certificate.load(folder / "certificate.json")
    forged = resealed(genuine, **record_with(genuine, longest_input=2.0))
    assert verify(forged).passed, "it takes the examples to see"
    forged.save(folder / "certificate.json")
    assert failed_fields(verified(folder))[0] == "sparsity.longest_input"


def test_another_network_of_the_same_shape(folder: Path) -> None:
    class Swapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = sparse_worlds.network().layers

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layers[2](torch.relu(self.layers[0](inputs) * 1.0))

    result = verified(folder, model=Swapped())
    assert failed_fields(result) == ["model"]
    assert "only linear layers" in result.failures[0].detail


def test_other_examples(folder: Path) -> None:
    result = verify(folder, data=sparse_worlds.examples(seed=9))
    assert "data.bound.content_digest" in failed_fields(result)


def test_fishers_test_is_the_hypergeometric_law() -> None:
    from scipy import stats

    generator = np.random.default_rng(5)
    for _ in range(200):
        trials, fresh = (int(10 ** generator.uniform(0, 5)) for _ in range(2))
        rate = generator.random() ** 3
        errors = int(generator.binomial(trials, rate))
        again = int(generator.binomial(fresh, min(1.0, rate * generator.choice([1.0, 1.2]))))
        law = stats.hypergeom(trials + fresh, errors + again, fresh)
        expected = min(1.0, 2.0 * min(law.cdf(again), law.sf(again - 1)))
        assert same_rate(errors, trials, again, fresh) == pytest.approx(expected, rel=1e-6)
