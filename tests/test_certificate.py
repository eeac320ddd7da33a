"""The certificate: exact, frozen, coherent, and impossible to edit unnoticed."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nonvacuous.certificate import Certificate, status_of
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.records import (
    Assumption,
    BoundRecord,
    BudgetRecord,
    ComplexityRecord,
    KlTerm,
    LossRecord,
    RiskRecord,
    SpendRecord,
)
from tests.certificates import BROKEN, DOUBT, IID, MODES, fields, sealed


def edited(certificate: Certificate, **changes: Any) -> str:
    return json.dumps(json.loads(certificate.model_dump_json()) | changes)


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    risk=st.floats(0.0, 1.0),
    nats=st.floats(0.0, allow_infinity=False),
    ratio=finite,
    inputs=st.dictionaries(st.text(), st.one_of(finite, st.integers(-(2**80), 2**80)), max_size=4),
)
def test_numbers_survive_exactly(risk, nats, ratio, inputs):
    terms = (KlTerm(tensor="w", size=1, nats=nats),)
    before = sealed(
        risk_upper=risk,
        complexity=ComplexityRecord(terms=terms, kl_nats=nats, log_density_ratio=ratio),
        bound=BoundRecord(name="b", theorem="t", inputs=inputs),
    )
    after = Certificate.from_json(before.model_dump_json())
    assert after == before
    assert after.model_dump_json() == before.model_dump_json()
    assert math.copysign(1.0, after.complexity.log_density_ratio) == math.copysign(1.0, ratio)
    assert [type(v) for v in after.bound.inputs.values()] == [type(v) for v in inputs.values()]


@pytest.mark.parametrize("value", [5e-324, 2.2250738585072009e-308, 0.1 + 0.2, 1.0 - 2**-53])
def test_awkward_floats_survive_a_file(tmp_path, value):
    certificate = sealed(risk_upper=value)
    loaded = Certificate.load(certificate.save(tmp_path / "c.json"))
    assert loaded.risk_upper.hex() == value.hex()
    assert loaded == certificate


def test_the_digest_depends_on_nothing_but_the_content():
    assert sealed().digest == sealed().digest
    assert sealed().digest != sealed(seed=4).digest
    assert sealed().model_dump_json() == sealed().model_dump_json()


@pytest.mark.parametrize("mode", MODES)
def test_no_digit_can_be_changed(mode):
    text = sealed(mode).model_dump_json(indent=2)
    places = [match.start() for match in re.finditer(r"\d", text)]
    assert len(places) > 200
    for place in places:
        other = str((int(text[place]) + 1) % 10)
        with pytest.raises(InvalidCertificate):
            Certificate.from_json(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize(
    "change",
    [
        {"statement": "the risk is at most 0.001"},
        {"risk_upper": 0.001},
        {"digest": "f" * 64},
        {"digest": "0"},
        {"observed": []},
        {"artifacts": {}},
        {"software": {"nonvacuous": "9"}},
        {"format": "nonvacuous-certificate/2"},
        {"held_out_twin": None},
    ],
)
def test_edits_are_noticed(change):
    with pytest.raises(InvalidCertificate):
        Certificate.from_json(edited(sealed(), **change))


def test_unknown_keys_are_refused_everywhere():
    with pytest.raises(InvalidCertificate, match="surprise"):
        Certificate.from_json(edited(sealed(), surprise=1))
    record = json.loads(sealed().model_dump_json())
    record["data"]["bound"]["surprise"] = 1
    with pytest.raises(InvalidCertificate, match=r"data\.bound\.surprise"):
        Certificate.from_json(json.dumps(record))
    with pytest.raises(ValidationError):
        LossRecord(name="zero-one", surprise=1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused_when_building(value):
    with pytest.raises(ValidationError):
        sealed(risk_upper=value)
    with pytest.raises(ValidationError):
        KlTerm(tensor="w", size=1, nats=value)
    with pytest.raises(ValidationError):
        BoundRecord(name="b", theorem="t", inputs={"kl_nats": value})


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', "1e999"])
@pytest.mark.parametrize("key", ["risk_upper", "kl_nats", "d"])
def test_numbers_that_are_none_are_refused_when_reading(token, key):
    text = sealed().model_dump_json(indent=2)
    forged, count = re.subn(rf'("{key}": )[\d.]+', rf"\g<1>{token}", text, count=1)
    assert count == 1
    with pytest.raises(InvalidCertificate):
        Certificate.from_json(forged)


@pytest.mark.parametrize("forged", ['"0.25"', "true", "null", "[0.25]", "-0.1", "1.5"])
def test_a_risk_is_a_number_between_0_and_1(forged):
    text = sealed().model_dump_json().replace('"risk_upper":0.25', f'"risk_upper":{forged}')
    with pytest.raises(InvalidCertificate):
        Certificate.from_json(text)


@pytest.mark.parametrize("inner", [False, True])
def test_repeated_keys_are_refused(inner):
    text = sealed().model_dump_json()
    key = '"classes":10' if inner else '"risk_upper":0.25'
    with pytest.raises(InvalidCertificate, match="repeats"):
        Certificate.from_json(text.replace(key, f"{key},{key}", 1))


def test_certificates_are_frozen():
    certificate = sealed()
    with pytest.raises(ValidationError):
        certificate.risk_upper = 0.01
    with pytest.raises(ValidationError):
        certificate.data.bound.examples = 10**6
    with pytest.raises(TypeError):
        certificate.assumptions[0] = IID


@pytest.mark.parametrize(
    ("assumptions", "status"),
    [
        ((IID,), "valid"),
        ((IID, DOUBT), "conditional"),
        ((DOUBT, BROKEN), "refused"),
        ((BROKEN, IID), "refused"),
    ],
)
def test_the_status_follows_from_the_assumptions(assumptions, status):
    assert status_of(assumptions) == status
    assert sealed(assumptions=assumptions, status=status).status == status
    for other in {"valid", "conditional", "refused"} - {status}:
        with pytest.raises(ValidationError, match="assumptions make it"):
            sealed(assumptions=assumptions, status=other)


def test_incoherent_records_are_refused():
    with pytest.raises(ValidationError, match="must have an effect"):
        Assumption(name="a", status="violated", detail="d")
    with pytest.raises(ValidationError, match="confidence"):
        sealed(confidence=0.99)
    with pytest.raises(ValidationError, match="needs a prior"):
        sealed(prior=None)
    with pytest.raises(ValidationError, match="held-out certificate has no prior"):
        sealed("holdout", prior=fields()["prior"])
    with pytest.raises(ValidationError, match=r"more .* than trials"):
        RiskRecord(errors=2, trials=1, scheme="pairs", identical=True, seed=0, risk_upper=1.0)
    with pytest.raises(ValidationError):
        sealed(assumptions=())


def test_a_budget_that_spends_more_than_it_holds_is_refused():
    spend = SpendRecord(name="bound", failure=0.5, reason="PAC-Bayes")
    with pytest.raises(ValidationError):
        sealed(budget=BudgetRecord(failure=0.05, entries=(spend,)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("assumption", [IID, DOUBT, BROKEN])
@pytest.mark.parametrize("risk", [0.25, 1.0])
@pytest.mark.parametrize("twin", [True, False])
def test_the_text_has_four_lines(mode, assumption, risk, twin):
    changes = {} if twin else {"held_out_twin": None, "observed": ()}
    certificate = sealed(
        mode,
        assumptions=(assumption,),
        status=status_of((assumption,)),
        risk_upper=risk,
        **changes,
    )
    promise, confidence, terms, caveats = str(certificate).split("\n")
    assert certificate.status.upper() in promise
    if assumption is BROKEN:
        assert "no promise" in promise
        assert "0.25" not in promise
    else:
        assert promise.startswith("VACUOUS") == (risk == 1.0)
    assert certificate.is_vacuous == (assumption is BROKEN or risk == 1.0)
    assert "0.95" in confidence
    assert "1437" in confidence
    assert ("KL" in terms) == (mode != "holdout")
    assert assumption.name in caveats
    assert ("was found false" in caveats) == (assumption is BROKEN)
    assert ("is in doubt" in caveats) == (assumption is DOUBT)


def test_a_printed_risk_is_never_below_the_risk():
    certificate = sealed(risk_upper=0.13431)
    printed = re.search(r"<= ([\d.]+)", str(certificate))
    assert printed is not None
    assert float(printed[1]) >= 0.13431


def test_a_name_cannot_add_lines():
    data = fields()["data"].model_copy(update={"name": "digits\nVALID: risk <= 0.0001"})
    assert len(str(sealed(data=data)).splitlines()) == 4


def test_html_is_escaped():
    script = "<script>alert(1)</script>"
    data = fields()["data"].model_copy(update={"name": script})
    doubt = Assumption(name=script, status="asserted", detail=script, effect="conditional")
    text = sealed(data=data, assumptions=(doubt,), status="conditional")._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_saving_replaces_a_file_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    first, second = sealed(), sealed(seed=4)
    assert first.save(path) == path

    def fail(*_arguments):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="the disk is gone"):
            second.save(path)
    assert Certificate.load(path) == first
    second.save(path)
    assert Certificate.load(path) == second
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"garbage",
        b"\x00\xff\xfe\x80",
        b"[" * 100_000,
        b'{"a": 1',
        b"1e5",
    ],
)
def test_files_that_are_no_certificates(tmp_path, content):
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(InvalidCertificate, match=re.escape(str(path))):
        Certificate.load(path)


def test_an_endless_number_is_no_certificate(tmp_path):
    path = tmp_path / "c.json"
    path.write_text("1" * 5000)
    with pytest.raises(InvalidCertificate, match=re.escape(str(path))):
        Certificate.load(path)


def test_every_truncation_is_noticed(tmp_path):
    text = sealed().model_dump_json()
    for length in range(0, len(text), 97):
        with pytest.raises(InvalidCertificate):
            Certificate.from_json(text[:length])


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match=r"missing\.json"):
        Certificate.load(tmp_path / "missing.json")
    with pytest.raises(BadInput, match="directory"):
        Certificate.load(tmp_path)
