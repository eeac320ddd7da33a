"""Somebody else's test, counted again."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nonvacuous.bounds import constant_margin, f1_lower, holdout, holdout_lower, jaccard_lower
from nonvacuous.bounds.rounding import down, shown_up
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation import audit as questions
from nonvacuous.evaluation.conclusions import baseline_of, conclude
from nonvacuous.evaluation.evaluate import EVIDENCE
from nonvacuous.evaluation.tables import batches_of
from nonvacuous.evaluation.tally import PREDICTED_CLASS, TRUE_CLASS, Tally, counted
from nonvacuous.evaluation_records import EvaluationRecord, TestedBaseline
from nonvacuous.verification.findings import Collector, Disagreement, equal

_CLASSES = (TRUE_CLASS, PREDICTED_CLASS)


class _Test(NamedTuple):
    """A certificate, what it says of its test, and the failure that is left for one predictor."""

    certificate: Certificate
    record: EvaluationRecord
    share: float


def check_test(certificate: Certificate, evidence: Any, findings: Collector) -> None:
    """Every number from the counts in the file, and the counts from the columns if they are here.

    ``evidence`` is the run folder, the file or the table that holds the columns; None without.
    """
    record = certificate.evaluation
    assert record is not None
    test = _Test(certificate, record, certificate.budget.failure / record.settings.attempts)
    for name, field, check in (
        ("the promise follows from its counts", "risk_upper", _promise),
        ("the groups follow from their counts", "groups", _groups),
        ("the constant answer was compared", "baseline", _baseline),
        ("every question was asked", "assumptions", _questions),
        ("the status follows from the assumptions", "status", _status),
        ("the statement says the number", "statement", _statement),
    ):
        findings.expect(name, field, partial(check, test))
    absent = isinstance(evidence, str | Path) and Path(evidence).is_dir()
    if evidence is None or (absent and EVIDENCE not in certificate.artifacts):
        why = "no file or table with the columns was given, nor a folder that has them."
        findings.skip("the columns are the recorded ones", "data", why)
        return

    def same() -> tuple[str, Tally]:
        tally = _recount(certificate, record, evidence)
        return f"{tally.rows} rows, compared by content.", tally

    question = "the columns are the recorded ones", "data.bound.content_digest"
    tally = findings.learn(*question, same)
    if tally is not None:
        again, audit = partial(_again, test, tally), partial(_audit, test, tally)
        findings.expect("counting again gives every number", "evaluation", again)
        findings.expect("the audit finds nothing else", "assumptions", audit)


def _promise(test: _Test) -> str:
    certificate, record, share = test
    inputs = certificate.bound.inputs
    selective = record.settings.metric == "selective error"
    equal(inputs.get("failure"), down(share / 2) if selective else share, "bound.inputs.failure")
    if certificate.bound.name != "held-out tail":
        return f"{certificate.bound.name}: the columns decide; they are counted below if given."
    counts = {"errors": int(inputs["errors"]), "examples": int(inputs["examples"])}
    equal(certificate.empirical.amount, float(counts["errors"]), "empirical")
    equal(certificate.empirical.trials, counts["examples"], "empirical.trials")
    upper = holdout(**counts, failure=float(inputs["failure"]))
    lower = holdout_lower(**counts, failure=float(inputs["failure"]))
    if record.settings.metric == "f1":
        return "F1 is a function of the Jaccard index; counted below if the columns are given."
    equal(certificate.risk_upper, upper, "risk_upper")
    equal(record.risk_lower, lower, "evaluation.risk_lower")
    return f"{counts['errors']} of {counts['examples']} give {shown_up(upper)}."


def _groups(test: _Test) -> str:
    _, record, failure = test
    number, ends = 0, []
    for column, slices in record.groups.items():
        share = down(failure / max(1, len(slices)))
        if column not in _CLASSES:
            ends += [part.risk_upper for part in slices.values()]
        if record.unit != "examples" or not (record.settings.counts_events or column in _CLASSES):
            continue
        for name, part in slices.items():
            where = f"evaluation.groups.{column}.{name}"
            call = {"errors": int(part.errors), "examples": part.examples}
            equal(part.risk_upper, holdout(**call, failure=failure), where)
            equal(part.risk_lower, holdout_lower(**call, failure=failure), where)
            equal(part.risk_upper_together, holdout(**call, failure=share), where)
            number += 1
    for name, score in record.scores.items():
        counts: dict[str, Any] = {"hits": score.hits, "relevant": score.relevant}
        for bound, stated in ((f1_lower, score.f1_lower), (jaccard_lower, score.jaccard_lower)):
            equal(stated, bound(**counts, failure=failure), f"evaluation.scores.{name}")
    equal(record.worst_group_upper, max(ends, default=None), "evaluation.worst_group_upper")
    return f"{number} slices recomputed."


def _baseline(test: _Test) -> str:
    certificate, record, share = test
    margin, classes = certificate.baseline, record.groups.get(TRUE_CLASS)
    if margin is None or classes is None or record.unit == "clusters":
        return "there are no counts of classes to compare with; the columns decide."
    totals = [part.examples for part in classes.values()]
    hits = [part.examples - int(part.errors) for part in classes.values()]
    # A class that only predictions name has no examples, and is never the best constant.
    unnamed = [0] * (len(record.scores) - len(totals))
    end, _ = constant_margin(hits=[*hits, *unnamed], totals=[*totals, *unnamed], failure=share)
    assert isinstance(margin, TestedBaseline)
    equal(margin.margin_lower, end, "baseline.margin_lower")
    equal(margin.errors, sum(totals) - max(totals), "baseline.errors")
    return "recomputed from the counts of the classes."


def _questions(test: _Test) -> str:
    if tuple(a.name for a in test.certificate.assumptions) != questions.ASKED:
        raise Disagreement("the assumptions are not those that a test is asked.")
    return f"{len(questions.ASKED)} assumptions."


def _status(test: _Test) -> str:
    equal(test.certificate.status, status_of(test.certificate.assumptions), "status")
    return test.certificate.status


def _statement(test: _Test) -> str:
    said, number = test.certificate.statement, shown_up(test.certificate.risk_upper)
    if not said.endswith(f"at most {number}."):
        raise Disagreement("the statement names another number than the promise.")
    return "it does."


def _recount(certificate: Certificate, record: EvaluationRecord, evidence: Any) -> Tally:
    if isinstance(evidence, str | Path):
        path = Path(evidence)
        if path.is_dir():
            path = path / EVIDENCE
            if not path.is_file():
                raise Disagreement(
                    f"there is no {EVIDENCE} in {evidence}; give the file of columns."
                )
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            equal(certificate.artifacts.get(EVIDENCE), content, f"artifacts.{EVIDENCE}")
        evidence = path
    failed: list[Exception] = []
    for names, where in _namings(record):
        try:
            return _counted(record, evidence, names, where)
        except (Disagreement, BadInput) as error:
            failed.append(error)
    # Columns that are there and hold something else say more than columns that are not there.
    raise next((e for e in failed if not isinstance(e, Unrecognized)), failed[0])


def _namings(record: EvaluationRecord) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    """What the columns may be called, and which rows of them count; their digests decide.

    As in the file that was tested; by their roles, as they are stored, of the rows that counted;
    and groups by their own names, as whoever gave arrays knows them.
    """
    own = {role: record.columns.get(role, role) for role in record.digests}
    stored = {role: role for role in own}
    plainly = {role: role.removeprefix("group:") for role in own}
    namings = [(own, record.settings.where), (stored, ()), (plainly, ())]
    return [naming for at, naming in enumerate(namings) if naming not in namings[:at]]


def _counted(
    record: EvaluationRecord, evidence: Any, names: dict[str, str], where: tuple[str, ...]
) -> Tally:
    tally = counted(
        record.settings, batches_of(evidence, names, where), clusters=record.unit == "clusters"
    )
    for role, digest in record.digests.items():
        column = tally.digests[role]
        if digest not in (column.hexdigest(), column.as_cut()):
            raise Disagreement(f"column {role!r} holds something else.", "evaluation.digests")
    return tally


def _again(test: _Test, tally: Tally) -> str:
    certificate, recorded, share = test
    promise, record = conclude(tally, share)
    for name in EvaluationRecord.model_fields:
        if name not in ("columns", "digests"):  # these are compared already, those are names
            equal(getattr(recorded, name), getattr(record, name), f"evaluation.{name}")
    equal(certificate.risk_upper, promise.risk_upper, "risk_upper")
    equal(certificate.empirical.amount, float(promise.errors), "empirical")
    equal(certificate.baseline, baseline_of(tally, share), "baseline")
    return "promise, groups, classes and constant answer."


def _audit(test: _Test, tally: Tally) -> str:
    fresh = questions.audit(tally, unseen=True, standing=None, invariant=None)
    recorded = {a.name: a for a in test.certificate.assumptions}
    for name in (questions.INDEPENDENT, questions.GROUPS, questions.ORDER):
        own = next(a for a in fresh if a.name == name)
        # Inputs are not among the columns: what they showed may stand in the record alone.
        stricter = name == questions.INDEPENDENT and own.effect == "none"
        if recorded[name].effect != own.effect and not stricter:
            raise Disagreement(f"“{name}”: {own.detail}")
    return "repeated rows, groups and class names."
