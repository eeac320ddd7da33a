"""A new check breaks no old certificate, and an old version hides nothing that can be seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nonvacuous.audit import registry
from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import Outcome, check, doubtful, holds
from nonvacuous.certificate import Certificate
from nonvacuous.verify import Verification, verify

from . import forging

NEW = "the examples were blessed"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest") / "run"
    forging.posterior_run(folder, attempts=1)
    return folder


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The audit as it will be when the next check is added."""
    monkeypatch.setattr(registry, "CHECKS", dict(registry.CHECKS))
    monkeypatch.setattr(registry, "RELEASED_WITH", {registry.present_version(): (0, 2)})
    yield


def add(outcome: Outcome, *, fact: str = "split") -> None:
    def ask(evidence: Evidence) -> Outcome:
        getattr(evidence, fact)
        return outcome

    check(rows=(1,), since=registry.present_version() + 1, name=NEW)(ask)


def checked(run: Path) -> Verification:
    return verify(run, data=forging.data(), trials=2_000)


def test_a_new_check_is_listed_and_breaks_nothing(run: Path, next_version: None) -> None:
    add(holds("seen."))
    result = checked(run)
    assert result.verified, str(result)
    version = next(f for f in result.findings if f.field == "audit")
    assert "1 checks added since were not required" in version.detail and NEW in version.detail
    again = next(f for f in result.findings if f.name.endswith(NEW))
    assert again.passed is None and not again.needed and "seen." in again.detail


def test_a_new_check_that_finds_it_false_withholds_the_word_verified(
    run: Path, next_version: None
) -> None:
    add(doubtful("they were not."))
    result = checked(run)
    assert result.passed and not result.verified
    assert any(f.needed and "they were not" in f.detail for f in result.findings)
    assert "version" in str(result).splitlines()[0]


def test_a_new_check_whose_facts_no_run_keeps_is_only_listed(run: Path, next_version: None) -> None:
    add(doubtful("they were not."), fact="start")
    result = checked(run)
    assert result.verified
    assert any(f.name.endswith(NEW) and "not stored" in f.detail for f in result.findings)


def test_what_is_new_is_required_of_new_certificates(tmp_path: Path, next_version: None) -> None:
    add(holds("seen."))
    certificate = forging.posterior_run(tmp_path / "run", attempts=1)
    assert certificate.audit == registry.present_version()
    assert NEW in [a.name for a in certificate.assumptions]
    rows = tuple(a for a in certificate.assumptions if a.name != NEW)
    forging.forged(tmp_path / "run", assumptions=rows)
    assert "assumptions" in [f.field for f in checked(tmp_path / "run").failures]


@pytest.mark.parametrize("claimed", [registry.present_version() + 1, 99])
def test_no_certificate_comes_from_the_future(run: Path, tmp_path: Path, claimed: int) -> None:
    forged = Certificate.load(run / "certificate.json").model_copy(update={"audit": claimed})
    fields = {n: getattr(forged, n) for n in Certificate.model_fields if n != "digest"}
    result = verify(Certificate.sealed(**fields))
    assert "audit" in [f.field for f in result.failures]


def test_a_new_release_cannot_have_passed_an_old_audit(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    for release, passes in (("0.1.0", True), ("0.2.0", False), ("1.4.2", False)):
        fields = {n: getattr(genuine, n) for n in Certificate.model_fields if n != "digest"}
        fields |= {"audit": None, "software": {**genuine.software, "nonvacuous": release}}
        failed = [f.field for f in verify(Certificate.sealed(**fields)).failures]
        assert ("audit" not in failed) == passes, release


def test_a_row_that_no_audit_asks_is_decoration(run: Path) -> None:
    genuine = Certificate.load(run / "certificate.json")
    row = genuine.assumptions[0].model_copy(update={"name": "a notary was present"})
    fields = {n: getattr(genuine, n) for n in Certificate.model_fields if n != "digest"}
    fields["assumptions"] = (*genuine.assumptions, row)
    failed = [f.field for f in verify(Certificate.sealed(**fields)).failures]
    assert f"assumptions.{len(genuine.assumptions)}.name" in failed


def test_the_first_version_never_changes() -> None:
    """Certificates that name no version are held to these checks for ever.

    Whoever adds a check gives it the present version; whoever must change this number breaks every
    certificate that was made before.
    """
    # Kinds of certificates that came later cannot be of the first version.
    modes = ("holdout", "post-hoc", "posterior", "sparsity")
    predictors = ("stochastic", "drawn", "deterministic")
    first = sorted(
        f"{c.name}|{tuple(m for m in modes if m in c.modes)}"
        f"|{tuple(p for p in predictors if p in c.predictors)}"
        for c in registry.CHECKS.values()
        if c.since == 1
    )
    digest = hashlib.sha256("\n".join(first).encode()).hexdigest()
    assert (len(first), digest[:12]) == (49, "f66488bc50b3")


def test_no_check_skips_a_version(next_version: None) -> None:
    add(holds("seen."))
    with pytest.raises(ValueError, match="the next one is"):
        add(holds("seen."))


def test_a_check_says_no_more_than_it_declares(run: Path, next_version: None) -> None:
    since = registry.present_version() + 1
    check(rows=(1,), since=since, name=NEW, says=("asserted",))(lambda _: holds("sure."))
    new = registry.CHECKS[NEW]
    with pytest.raises(ValueError, match="declares"):
        new(None)  # type: ignore[arg-type]
