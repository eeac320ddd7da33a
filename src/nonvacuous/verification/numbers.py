"""The certificate against itself: read, sealed, and every number recomputed from the others.

It is read so that a damaged one can still be asked what is wrong with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError, model_validator

from nonvacuous.audit import ledger_checks, network_checks
from nonvacuous.audit.claim_checks import disagreeing_input, solves_its_equation
from nonvacuous.bounds import constant_lower, holdout, rounding
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.certification.measurement import BOTH, ON_BOUND, observed_network
from nonvacuous.errors import InvalidCertificate
from nonvacuous.foreign import read_bytes
from nonvacuous.rescaling.output_layer import invariance_of
from nonvacuous.rules import arithmetic
from nonvacuous.verification.audited import check_rows, check_version
from nonvacuous.verification.checking import Checking, Question
from nonvacuous.verification.findings import Collector, Disagreement, NotAsked, equal, upper_end
from nonvacuous.verification.inquiry import Inquiry


class Unsealed(Certificate):
    """The same record, readable although its parts may contradict one another or the seal."""

    @model_validator(mode="after")
    def _coherent(self) -> Unsealed:
        return self


@dataclass(frozen=True)
class Reading:
    """The certificate as far as it can be read, and the bytes it was read from, if from a file."""

    certificate: Certificate
    text: str
    content: bytes | None = None


def read(certificate: Certificate | str | os.PathLike[str], findings: Collector) -> Reading | None:
    """Read a certificate or take the one given; what fails becomes a finding."""

    def work() -> tuple[str, Reading]:
        content = None
        if isinstance(certificate, Certificate):
            text = certificate.model_dump_json()
        else:
            path = Path(certificate)
            if not path.is_file():
                raise Disagreement(f"there is no file {path}; check the path.")
            if path.suffix == ".html":
                raise Disagreement("a page is for people; name the folder that it lies in.")
            content = read_bytes(path)
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise Disagreement(f"it is not UTF-8 text (byte {error.start}).") from error
        try:
            parsed = Unsealed.from_json(text, source="it")
        except InvalidCertificate as error:
            field = None
            if isinstance(error.__cause__, ValidationError):
                first = error.__cause__.errors()[0]
                field = ".".join(str(part) for part in first["loc"]) or None
            raise Disagreement(str(error), field) from error
        return "it is a certificate of this format.", Reading(parsed, text, content)

    return findings.learn("it can be read", "certificate", work)


def check_seal(reading: Reading, findings: Collector) -> None:
    """The digest over everything, and the very bytes of the file."""

    def sealed() -> str:
        try:
            Certificate.from_json(reading.text, source="it")
        except InvalidCertificate as error:
            raise Disagreement(str(error)) from error
        return "the digest over all fields matches."

    intact = findings.expect("nothing was changed after sealing", "digest", sealed)

    def canonical() -> str:
        if reading.content is None:
            raise NotAsked("no file was given.", needed=False)
        if not intact:
            raise NotAsked("its content was changed already.", needed=False)
        expected = reading.certificate.written
        if reading.content != expected:
            pairs = enumerate(zip(reading.content, expected, strict=False))
            shorter = min(len(reading.content), len(expected))
            at = next((position for position, (a, b) in pairs if a != b), shorter)
            raise Disagreement(
                f"it is not written as certificates are; the first difference is at byte {at}."
            )
        return "the file is byte for byte what the library writes."

    findings.expect("the file is untouched", "certificate", canonical)


def check_numbers(inquiry: Inquiry, checking: Checking) -> None:
    """Everything that can be recomputed from the file alone."""
    certificate = inquiry.certificate
    questions: tuple[Question, ...] = (
        ("what it is about is possible", "predictor", _kind),
        ("the loss is one the theorem covers", "loss", _loss),
        ("the KL is the sum of its terms", "complexity.kl_nats", _complexity),
        ("the failure probability adds up", "budget", _budget),
        ("the confidence is what is left", "confidence", _confidence),
        ("the sampling seed is the derived one", "empirical.seed", checking.seed),
        ("the empirical risk follows from its counts", "empirical.risk_upper", _empirical),
        ("the theorem is known", "bound.name", _theorem),
        ("the bound used the recorded numbers", "bound.inputs", _inputs),
        ("the bound follows from its inputs", "risk_upper", _value),
        ("the held-out twin follows from its counts", "held_out_twin.risk_upper", _twin),
        ("the constant answer follows from its counts", "baseline", _baseline),
        ("the rescaling columns follow from their KL", "rescaling", checking.rescaling),
        ("the observations are frequencies", "observed", _observed),
        ("the version of the audit can be the one it passed", "audit", check_version),
        ("the assumptions are those of the audit", "assumptions", check_rows),
        ("the status follows from the assumptions", "status", _status),
        ("the statement says what the numbers say", "statement", _statement),
        *checking.numbers,
    )
    for name, field, question in questions:
        part, reason = _ABSENT.get(field, ("mode", ""))
        if getattr(certificate, part) is None:
            inquiry.skip(name, field, reason, needed=False)
        else:
            inquiry.expect(name, field, partial(question, certificate))


#: What a certificate may not have, by the field of the question about it, and what that means.
_ABSENT = {
    "complexity.kl_nats": ("complexity", "this promise has no KL."),
    "empirical.seed": ("posterior", "nothing was sampled."),
    "held_out_twin.risk_upper": ("held_out_twin", "there is no twin."),
    "baseline": ("baseline", "nothing is said to be better than a constant answer."),
    "rescaling": ("rescaling", "nothing was rescaled."),
}


def _kind(certificate: Certificate) -> str:
    if certificate.predictor not in certificate.kind.predictors:
        raise Disagreement(
            f"a certificate of mode {certificate.mode!r} cannot be about the "
            f"{certificate.predictor} predictor."
        )
    scheme, measured = certificate.empirical.scheme, arithmetic.ONCE
    if certificate.sparsity is not None and certificate.sparsity.theorem != "A":
        measured = "fresh noise"
    elif certificate.predictor == "stochastic":
        measured = "pairs"
    if scheme != measured:
        raise Disagreement(
            f"the {certificate.predictor} predictor cannot have been measured by the scheme "
            f"{scheme!r}.",
            "empirical.scheme",
        )
    if scheme == arithmetic.ONCE:
        equal(certificate.empirical.trials, certificate.data.bound.examples, "empirical.trials")
    if scheme != "pairs":  # what follows from the counts of pairs depends on it
        alike = not (certificate.kind.steps or certificate.kind.noisy)
        equal(certificate.empirical.identical, alike, "empirical.identical")
    if certificate.posterior is None:
        equal(certificate.empirical.seed, certificate.seed, "empirical.seed")
    return f"mode {certificate.mode}, predictor {certificate.predictor}."


def _loss(certificate: Certificate) -> str:
    loss = certificate.loss
    if (loss.lower, loss.upper) != (0.0, 1.0):
        raise Disagreement(f"it ranges over [{loss.lower!r}, {loss.upper!r}], not [0, 1].")
    return f"{loss.name}, in [0, 1]."


def _complexity(certificate: Certificate) -> str:
    complexity = certificate.complexity
    assert complexity is not None
    names = [term.tensor for term in complexity.terms]
    if len(set(names)) != len(names):
        raise Disagreement("a tensor is listed twice.", "complexity.terms")
    if complexity.symmetries:
        # Whether such savings can exist at all; whether they do takes the network to see.
        where, loss = "complexity.symmetries", certificate.loss.name
        if certificate.predictor != "stochastic" or "kl_nats" not in certificate.bound.inputs:
            raise Disagreement(
                f"symmetries lower a KL, not the price of the {certificate.predictor} predictor.",
                where,
            )
        shifted = any(saving.symmetry == "translation" for saving in complexity.symmetries)
        if shifted and not invariance_of(loss).shift:
            words = f"the loss {loss!r} is not known to ignore a shift of the scores."
            raise Disagreement(words, where)
        if impossible := network_checks.impossible_saving(complexity):
            raise Disagreement(f"{impossible}.", where)
    total = arithmetic.complexity_nats(complexity.terms, complexity.symmetries)
    equal(complexity.kl_nats, total, "complexity.kl_nats")
    weights = sum(term.size for term in complexity.terms)
    if weights > certificate.model.parameters:
        raise Disagreement(
            f"the terms cover {weights} weights, more than the network's "
            f"{certificate.model.parameters}.",
            "model.parameters",
        )
    return f"{len(names)} terms, {complexity.kl_nats:.6g} nats."


def _budget(certificate: Certificate) -> str:
    ledger = ledger_checks.rebuilt(certificate.budget)
    return f"{len(ledger.entries)} lines spend {ledger.spent:g} of {ledger.failure:g}."


def _confidence(certificate: Certificate) -> str:
    expected = 1.0 - certificate.budget.failure
    if abs(certificate.confidence - expected) > 1e-15:
        raise Disagreement(f"it says {certificate.confidence!r}, the ledger pays for {expected!r}.")
    return f"{certificate.confidence!r}."


def _empirical(certificate: Certificate) -> str:
    empirical = certificate.empirical
    once = empirical.scheme == arithmetic.ONCE
    failure = None if once else certificate.budget.sampling.share
    upper_end(
        empirical.risk_upper, arithmetic.sampled_risk(empirical, failure), "empirical.risk_upper"
    )
    most = rounding.shown_up(empirical.risk_upper, 6)
    return f"{empirical.amount:g} in {empirical.trials} give at most {most}."


def _theorem(certificate: Certificate) -> str:
    named = arithmetic.theorem(certificate.bound.name)
    equal(certificate.bound.theorem, named.source, "bound.theorem")
    if certificate.predictor not in named.about:
        raise Disagreement(
            f"{named.name!r} is not a theorem about the {certificate.predictor} predictor."
        )
    return f"{named.source}."


def _inputs(certificate: Certificate) -> str:
    inputs = certificate.bound.inputs
    used = inputs.get("examples", inputs.get("trials"))
    equal(used, certificate.data.bound.examples, "bound.inputs.examples")
    equal(inputs.get("failure"), certificate.budget.bound.share, "bound.inputs.failure")
    wrong = disagreeing_input(
        inputs, certificate.empirical, certificate.complexity, certificate.sparsity
    )
    if wrong is not None:
        name, used, recorded = wrong
        raise Disagreement(
            f"the bound used {used!r}, the certificate records {recorded!r}.",
            f"bound.inputs.{name}",
        )
    return f"n = {certificate.data.bound.examples}, failure = {inputs['failure']:.6g}."


def _value(certificate: Certificate) -> str:
    value = arithmetic.recompute_bound(certificate.bound)
    upper_end(certificate.risk_upper, value, "risk_upper")
    if not solves_its_equation(certificate.bound.name, certificate.bound.inputs, value):
        raise Disagreement(f"{value!r} lies below the end of the confidence interval.")
    return f"{certificate.bound.name} gives {value:.6g}."


def _twin(certificate: Certificate) -> str:
    twin = certificate.held_out_twin
    assert twin is not None
    equal(twin.failure, certificate.budget.failure, "held_out_twin.failure")
    if twin.errors > twin.examples:
        raise Disagreement("there are more errors than examples.", "held_out_twin.errors")
    expected = holdout(errors=twin.errors, examples=twin.examples, failure=twin.failure)
    upper_end(twin.risk_upper, expected, "held_out_twin.risk_upper")
    return f"{twin.errors} in {twin.examples} give at most {rounding.shown_up(twin.risk_upper, 6)}."


def _baseline(certificate: Certificate) -> str:
    baseline = certificate.baseline
    assert baseline is not None
    equal(baseline.examples, certificate.data.bound.examples, "baseline.examples")
    if baseline.answer >= certificate.data.classes:
        raise Disagreement(f"there is no class {baseline.answer}.", "baseline.answer")
    if baseline.errors > baseline.examples:
        raise Disagreement("there are more errors than examples.", "baseline.errors")
    failure = arithmetic.baseline_failure(certificate.budget)
    equal(baseline.failure, failure, "baseline.failure")
    right = baseline.examples - baseline.errors
    expected = constant_lower(most_frequent=right, examples=baseline.examples, failure=failure)
    equal(baseline.risk_lower, expected, "baseline.risk_lower")
    return f"{baseline.errors} in {baseline.examples} give at least {baseline.risk_lower:.6g}."


def _observed(certificate: Certificate) -> str:
    names = [seen.name for seen in certificate.observed]
    own = f"{observed_network(certificate.predictor)} {ON_BOUND}"
    if not certificate.kind.steps and own not in names:
        raise Disagreement(f"every run observes {own!r}.")
    silent = [name for name in BOTH.get(certificate.predictor, ()) if name not in names]
    if len(silent) == 1:
        raise Disagreement(f"the test examples were read, and nothing is said of {silent[0]!r}.")
    for position, seen in enumerate(certificate.observed):
        if seen.errors > seen.trials:
            raise Disagreement(
                f"{seen.errors} errors in {seen.trials} trials.", f"observed.{position}.errors"
            )
    return f"{len(certificate.observed)} of them, none part of the promise."


def _status(certificate: Certificate) -> str:
    equal(certificate.status, status_of(certificate.assumptions), "status")
    return f"{certificate.status}."


def _statement(certificate: Certificate) -> str:
    equal(certificate.statement, arithmetic.statement_of(certificate), "statement")
    return "it is the sentence that the fields make."
