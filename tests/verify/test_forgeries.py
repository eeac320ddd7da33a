"""Forgeries that are sealed as if they were real fail with the field at fault."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nonvacuous.certificate import Certificate, status_of
from nonvacuous.certification.columns import accounting_of
from nonvacuous.errors import InvalidCertificate
from nonvacuous.records import (
    KlTerm,
    LossRecord,
    RescalingColumn,
    RescalingRecord,
    SymmetrySaving,
)
from nonvacuous.rules.arithmetic import recompute_bound, statement_of
from nonvacuous.verify import verify
from tests.audit import worlds

from .runs import (
    failed_fields,
    make_run,
    resealed,
)


def forge(certificate: Certificate, part: str, **changes: Any) -> dict[str, Any]:
    return {part: getattr(certificate, part).model_copy(update=changes)}


FORGERIES: dict[str, tuple[str, Any]] = {
    "a smaller risk": ("risk_upper", lambda c: {"risk_upper": 0.9 * c.risk_upper}),
    "one unit in the last place": (
        "risk_upper",
        lambda c: {"risk_upper": math.nextafter(c.risk_upper, 0.0)},
    ),
    "another sentence": ("statement", lambda c: {"statement": "The risk is zero."}),
    "fewer errors": (
        "empirical.risk_upper",
        lambda c: forge(c, "empirical", errors=c.empirical.errors - 1),
    ),
    "more trials": (
        "empirical.risk_upper",
        lambda c: forge(c, "empirical", trials=c.empirical.trials + 1),
    ),
    "no price for sampling": (
        "empirical.risk_upper",
        lambda c: forge(c, "empirical", risk_upper=c.empirical.mean),
    ),
    "another sampling seed": ("empirical.seed", lambda c: forge(c, "empirical", seed=1)),
    "another scheme": (
        "empirical.scheme",
        lambda c: forge(c, "empirical", scheme="every example once"),
    ),
    "a smaller KL": (
        "complexity.kl_nats",
        lambda c: forge(c, "complexity", kl_nats=c.complexity.kl_nats / 2),
    ),
    "a term twice": (
        "complexity.terms",
        lambda c: forge(c, "complexity", terms=(*c.complexity.terms, c.complexity.terms[0])),
    ),
    "weights that do not exist": (
        "model.parameters",
        lambda c: forge(c, "model", parameters=c.model.parameters - 1),
    ),
    "more examples": (
        "bound.inputs.examples",
        lambda c: forge(c, "bound", inputs={**c.bound.inputs, "examples": 7_000}),
    ),
    "a share that was not given": (
        "bound.inputs.failure",
        lambda c: forge(c, "bound", inputs={**c.bound.inputs, "failure": 0.04}),
    ),
    "another KL in the bound": (
        "bound.inputs.kl_nats",
        lambda c: forge(c, "bound", inputs={**c.bound.inputs, "kl_nats": 0.0}),
    ),
    "another risk in the bound": (
        "bound.inputs.empirical_risk",
        lambda c: forge(c, "bound", inputs={**c.bound.inputs, "empirical_risk": 0.0}),
    ),
    "a theorem that does not exist": ("bound.name", lambda c: forge(c, "bound", name="wishful")),
    "a theorem of another name": (
        "bound.theorem",
        lambda c: forge(c, "bound", theorem="folklore"),
    ),
    "a better theorem for the same inputs": (
        "risk_upper",
        lambda c: forge(c, "bound", inputs={**c.bound.inputs, "exact_moment": 0}),
    ),
    "a worse twin": (
        "held_out_twin.risk_upper",
        lambda c: forge(c, "held_out_twin", errors=c.held_out_twin.errors + 1),
    ),
    "a twin at less confidence": (
        "held_out_twin.failure",
        lambda c: forge(c, "held_out_twin", failure=0.5),
    ),
    "a loss beyond one": ("loss", lambda c: {"loss": LossRecord(name="zero-one", upper=2.0)}),
    "an unpleasant check left out": (
        "assumptions",
        lambda c: {"assumptions": c.assumptions[1:]},
    ),
    "more errors observed than trials": (
        "observed.0.errors",
        lambda c: {"observed": (c.observed[0].model_copy(update={"errors": 400}),)},
    ),
    "the drawn network instead": ("empirical.scheme", lambda c: {"predictor": "drawn"}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_sealed_forgery_is_found_at_its_field(run: Path, name: str) -> None:
    field, change = FORGERIES[name]
    genuine = Certificate.load(run / "certificate.json")
    forged = resealed(genuine, **change(genuine))
    result = verify(forged)
    assert field in failed_fields(result), str(result)
    with pytest.raises(InvalidCertificate, match="does not verify"):
        result.raise_if_failed()


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ('"failure": 0.05,\n    "entries"', '"failure": 0.01,\n    "entries"', "budget"),
        ('"confidence": 0.95', '"confidence": 0.99', "confidence"),
        ('"status": "valid"', '"status": "conditional"', "status"),
    ],
)
def test_what_no_certificate_can_be_built_with(
    run: Path, before: str, after: str, field: str
) -> None:
    path = run / "certificate.json"
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    assert {field, "digest"} <= set(failed_fields(verify(path)))


def test_the_error_names_the_first_field_at_fault(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    forged = resealed(genuine, risk_upper=0.5 * genuine.risk_upper)
    with pytest.raises(InvalidCertificate, match=r"does not verify: risk_upper: it says"):
        verify(forged).raise_if_failed()


def test_a_consistent_forgery_of_the_kl_meets_the_tensors(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.complexity is not None
    halves = tuple(t.model_copy(update={"nats": t.nats / 2}) for t in genuine.complexity.terms)
    forged = reconsidered(genuine, halves)
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(run / "certificate.json")
    assert failed_fields(verify(run)) == ["complexity.terms"]


def test_a_layer_left_out_of_the_kl_meets_the_tensors(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.complexity is not None
    forged = reconsidered(genuine, genuine.complexity.terms[1:])
    forged.save(run / "certificate.json")
    assert failed_fields(verify(run)) == ["complexity.terms"]


def test_consistent_forged_counts_meet_fresh_trials(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    forged = recounted(genuine, errors=0)
    assert verify(forged).passed, "on paper it is consistent"
    forged.save(run / "certificate.json")
    result = verify(run, data=worlds.examples())
    counts, risk, belied = failed_fields(result)
    assert (counts, risk) == ("empirical.errors", "empirical.risk_upper")
    assert belied.startswith("assumptions."), "the errors on test examples leave it no chance"
    assert "the recorded seed gives" in result.failures[0].detail
    assert "fresh trials put the risk above" in result.failures[1].detail


def test_counts_of_another_network_meet_fresh_trials(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    forged = recounted(genuine, errors=genuine.empirical.trials)
    forged.save(run / "certificate.json")
    result = verify(run, data=worlds.examples())
    assert failed_fields(result) == ["empirical.errors"] * 2
    assert "do not come from the same" in result.failures[1].detail


@pytest.mark.parametrize("kind", ["drawn", "holdout"])
def test_forged_counts_of_one_network_are_counted_again(tmp_path: Path, kind: str) -> None:
    genuine = make_run(tmp_path, kind)
    assert genuine.empirical.errors is not None
    recounted(genuine, errors=genuine.empirical.errors + 5).save(tmp_path / "certificate.json")
    result = verify(tmp_path, data=worlds.examples())
    assert failed_fields(result)[0] == "empirical.errors"


def reconsidered(genuine: Certificate, terms: tuple[KlTerm, ...]) -> Certificate:
    """The certificate that these terms would give."""
    from nonvacuous.rules.arithmetic import statement_of, total_nats

    nats = total_nats(terms)
    bound = genuine.bound.model_copy(update={"inputs": {**genuine.bound.inputs, "kl_nats": nats}})
    changes: dict[str, Any] = {
        **forge(genuine, "complexity", terms=terms, kl_nats=nats),
        "bound": bound,
        "risk_upper": recompute_bound(bound),
    }
    draft = resealed(genuine, **changes)
    return resealed(draft, statement=statement_of(draft))


def recounted(genuine: Certificate, *, errors: int) -> Certificate:
    """The certificate that this number of errors would give."""
    from nonvacuous.rules.arithmetic import sampled_risk, statement_of

    once = genuine.empirical.scheme == "every example once"
    draft = genuine.empirical.model_copy(update={"errors": errors})
    failure = None if once else genuine.budget.sampling.share
    risk = draft.model_copy(update={"risk_upper": sampled_risk(draft, failure)})
    inputs = {
        "empirical_risk": risk.risk_upper,
        "errors": errors,
    }
    used = {k: inputs.get(k, v) for k, v in genuine.bound.inputs.items()}
    bound = genuine.bound.model_copy(update={"inputs": used})
    made = resealed(genuine, empirical=risk, bound=bound, risk_upper=recompute_bound(bound))
    return resealed(made, statement=statement_of(made))


def with_columns(genuine: Certificate) -> Certificate:
    """The certificate with an honest record of a rescaling: one comparison, one certified."""
    assert genuine.complexity is not None
    accounting = accounting_of(genuine.bound, genuine.budget)
    nats, choices = genuine.complexity.kl_nats, 4
    columns = []
    ways = (("best scale", 2 * nats, False), ("best scale, rescaled", nats, True))
    for way, kl_nats, certified in ways:
        draft = RescalingColumn(
            name=f"around zero, {way}",
            center="zero",
            way=way,  # type: ignore[arg-type]
            kl_nats=kl_nats,
            charge_nats=math.nextafter(math.log(choices), math.inf),
            mcallester=1.0,
            kl_inverse=1.0,
            certified=certified,
        )
        update = accounting.bounds(draft.kl_nats, draft.charge_nats)
        if certified:
            update["kl_inverse"] = genuine.risk_upper
        columns.append(draft.model_copy(update=update))
    record = RescalingRecord(
        kl_before=2 * nats, kl_after=nats, log_scales_digest="0" * 64, columns=tuple(columns)
    )
    return resealed(genuine, mode="post-hoc", rescaling=record)


def test_rescaling_columns_follow_from_their_kl(run: Path) -> None:
    honest = with_columns(Certificate.load(run / "certificate.json"))
    assert verify(honest).passed, str(verify(honest))
    record = honest.rescaling
    assert record is not None
    worse = record.model_copy(update={"kl_after": 3 * record.kl_after})
    assert failed_fields(verify(resealed(honest, rescaling=worse))) == ["rescaling.kl_after"]
    for position in (0, 1):
        for field, value in (
            ("mcallester", 0.01),
            ("kl_inverse", 0.01),
            ("kl_nats", 0.5),
            ("charge_nats", 0.0),
            ("certified", position == 0),
        ):
            columns = list(record.columns)
            columns[position] = columns[position].model_copy(update={field: value})
            if field == "certified":
                # Exactly one: the record itself refuses none and two.
                with pytest.raises(ValidationError, match="marked as certified"):
                    RescalingRecord(**{**dict(record), "columns": tuple(columns)})
                continue
            forged = record.model_copy(update={"columns": tuple(columns)})
            failed = failed_fields(verify(resealed(honest, rescaling=forged)))
            assert failed, (position, field)
            assert failed[0].startswith(f"rescaling.columns.{position}."), failed


def test_the_certified_column_is_the_certificates_own(run: Path) -> None:
    """A flattering comparison that is marked as certified, with bounds that follow from it."""
    honest = with_columns(Certificate.load(run / "certificate.json"))
    record = honest.rescaling
    assert record is not None
    accounting = accounting_of(honest.bound, honest.budget)
    less = record.columns[1].model_copy(update={"kl_nats": 0.5 * record.kl_after})
    mcallester = accounting.bounds(less.kl_nats, less.charge_nats)["mcallester"]
    less = less.model_copy(update={"mcallester": mcallester})
    forged = record.model_copy(update={"columns": (record.columns[0], less)})
    failed = failed_fields(verify(resealed(honest, rescaling=forged)))
    assert failed == ["rescaling.columns.1.kl_nats"]


def test_savings_that_no_network_has(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    assert genuine.complexity is not None
    term = max(genuine.complexity.terms, key=lambda term: term.nats)
    for saving in (
        SymmetrySaving(symmetry="permutation", place="0", units=4, nats=math.lgamma(5) + 1e-6),
        SymmetrySaving(symmetry="translation", place="nowhere", units=3, nats=1e-3),
        SymmetrySaving(symmetry="translation", place=term.tensor, units=3, nats=term.nats + 0.01),
    ):
        forged = priced(genuine, symmetries=(saving,))
        assert failed_fields(verify(forged)) == ["complexity.symmetries"], saving


def test_a_saving_that_is_only_claimed(run: Path) -> None:
    """Possible for some network, but not for this one: it takes the network to see."""
    genuine = Certificate.load(run / "certificate.json")
    saving = SymmetrySaving(symmetry="permutation", place="layers.0", units=8, nats=2.0)
    forged = priced(genuine, symmetries=(saving,))
    forged.save(run / "certificate.json")
    alone = verify(run)
    assert alone.passed
    skipped = [f for f in alone.unchecked if f.field == "complexity.symmetries"]
    assert skipped and "not at hand" in skipped[0].detail
    assert "complexity.symmetries" in failed_fields(verify(run, data=worlds.examples(), trials=200))


def priced(genuine: Certificate, *, symmetries: tuple[SymmetrySaving, ...]) -> Certificate:
    """The certificate that these savings would give, consistent in itself."""
    from nonvacuous.rules.arithmetic import complexity_nats, statement_of

    assert genuine.complexity is not None
    nats = complexity_nats(genuine.complexity.terms, symmetries)
    bound = genuine.bound.model_copy(update={"inputs": {**genuine.bound.inputs, "kl_nats": nats}})
    complexity = genuine.complexity.model_copy(update={"symmetries": symmetries, "kl_nats": nats})
    draft = resealed(genuine, complexity=complexity, bound=bound, risk_upper=recompute_bound(bound))
    return resealed(draft, statement=statement_of(draft))


def test_another_version_excuses_no_missing_assumption(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    older = {**genuine.software, "nonvacuous": "0.0.1"}
    whole = resealed(genuine, software=older)
    whole.save(run / "certificate.json")
    assert verify(run, data=worlds.examples(), trials=500).verified
    draft = resealed(whole, assumptions=genuine.assumptions[:1])
    resealed(draft, statement=statement_of(draft), status=status_of(draft.assumptions)).save(
        run / "certificate.json"
    )
    result = verify(run, data=worlds.examples(), trials=500)
    assert "assumptions" in failed_fields(result)
    twice = resealed(whole, assumptions=(*genuine.assumptions, genuine.assumptions[0]))
    resealed(twice, statement=statement_of(twice)).save(run / "certificate.json")
    assert "assumptions" in failed_fields(verify(run))
