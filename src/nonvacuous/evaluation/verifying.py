"""Somebody else's test, counted again."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nonvacuous.bounds import constant_margin, f1_lower, jaccard_lower
from nonvacuous.bounds.rounding import down, shown_up
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation import audit as questions
from nonvacuous.evaluation import former, readers, tables
from nonvacuous.evaluation.conclusions import THEOREMS, Promise, baseline_of, conclude, ends_of
from nonvacuous.evaluation.evaluate import EVIDENCE, attempt_of, budget_of, written
from nonvacuous.evaluation.sample import Sample
from nonvacuous.evaluation.tally import PREDICTED_CLASS, TRUE_CLASS, Tally, counted
from nonvacuous.evaluation_records import EvaluationRecord, TestedBaseline
from nonvacuous.records import Record
from nonvacuous.rules.attempts import read_attempts, standing
from nonvacuous.verification.findings import Collector, Disagreement, NotAsked, equal

_CLASSES = (TRUE_CLASS, PREDICTED_CLASS)
#: Asked elsewhere, or facts about the machine that made it.
_APART = ("status", "assumptions", "software", "digest")


class _Test(NamedTuple):
    """A certificate, what it says of its test, and the failure that is left for one predictor."""

    certificate: Certificate
    record: EvaluationRecord
    share: float


def check_test(
    certificate: Certificate, evidence: Any, findings: Collector, *, ledger: Path | None = None
) -> None:
    """Every number from the counts in the file, and the counts from the columns if they are here.

    ``evidence`` is the run folder, the file or the table that holds the columns; None without.
    ``ledger`` is the file of attempts, if one is named or may lie beside the run folder.
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
        ("statement and fields follow from the record", "statement", _fields),
    ):
        findings.expect(name, field, partial(check, test))
    if why := _absent(certificate, evidence):
        findings.skip("the columns are the recorded ones", "data", why)
        return

    def same() -> tuple[str, Tally]:
        tally = _recount(certificate, record, evidence)
        named = (f"{role} {name!r}" for role, name in record.columns.items())
        said = f" of {', '.join(named)}," if record.columns else ","
        return f"{tally.rows} rows{said} compared by content.", tally

    question = "the columns are the recorded ones", "data.bound.content_digest"
    tally = findings.learn(*question, same)
    if tally is not None:
        again, audit = partial(_again, test, tally), partial(_audit, test, tally)
        findings.expect("counting again gives every number", "evaluation", again)
        findings.expect("the audit finds nothing else", "assumptions", audit)
        if ledger is not None:
            known = partial(_attempts, test, tally, ledger)
            findings.expect("the ledger of attempts knows this test", "attempts", known)


def _absent(certificate: Certificate, evidence: Any) -> str:
    """Why there are no columns to count; empty where there are."""
    if evidence is None:
        return "no file or table with the columns was given, nor a folder that has them."
    if not isinstance(evidence, str | Path):
        return ""
    path = Path(evidence)
    if path.is_dir() and not (path / EVIDENCE).is_file():
        return f"there is no {EVIDENCE} in {path}; give the file of columns with --data (data=)."
    if path.is_dir() and EVIDENCE not in certificate.artifacts:
        return f"the certificate does not list {EVIDENCE}; give the file of columns."
    return "" if path.exists() else f"there is no file {path}; check the path."


def _promise(test: _Test) -> str:
    certificate, record, share = test
    inputs = certificate.bound.inputs
    selective = record.settings.metric == "selective error"
    equal(inputs.get("failure"), down(share / 2) if selective else share, "bound.inputs.failure")
    _counts(test)
    if certificate.bound.name != "held-out tail":
        return f"{certificate.bound.name}: the columns decide; they are counted below if given."
    errors, examples = int(inputs["errors"]), int(inputs["examples"])
    equal(certificate.empirical.amount, float(errors), "empirical")
    equal(certificate.empirical.trials, examples, "empirical.trials")
    sample = Sample(errors, examples, f1=record.settings.metric == "f1")
    ends = ends_of(sample.upper, sample.lower, float(inputs["failure"]))
    equal(certificate.risk_upper, ends["risk_upper"], "risk_upper")
    for name in ("risk_lower", "interval"):
        equal(getattr(record, name), ends[name], f"evaluation.{name}")
    return f"{errors} of {examples} give {shown_up(certificate.risk_upper)}."


def _counts(test: _Test) -> None:
    """Whether such a bound, of so many draws, can be one of such a test."""
    certificate, record, _ = test
    settings, name, inputs = record.settings, certificate.bound.name, certificate.bound.inputs
    trials, whole = certificate.empirical.trials, record.unit == "examples"
    former.check_former_order(certificate.bound.theorem)
    if settings.counts_events and whole:
        fits = name == "held-out tail"
    elif settings.entry.counts == "classes":
        fits = name == "held-out tail" or name not in THEOREMS
    else:
        fits = name in THEOREMS
    if not fits:
        raise Disagreement(f"no test of {settings.words} rests on {name!r}.", "bound.name")
    equal(inputs.get("examples", inputs.get("classes")), trials, "empirical.trials")
    if settings.entry.counts == "classes":
        return
    if whole and settings.metric != "selective error":
        equal(trials, record.rows, "empirical.trials")
    elif trials > record.rows:
        raise Disagreement(f"{trials} draws come from {record.rows} rows.", "empirical.trials")


def _groups(test: _Test) -> str:
    _, record, failure = test
    number, ends = 0, []
    former.check_former_groups(record, test.certificate.empirical.trials)
    for column, slices in record.groups.items():
        share = down(failure / max(1, len(slices)))
        if column not in _CLASSES:
            ends += [part.risk_upper for part in slices.values()]
        if record.unit != "examples" or record.settings.entry.counts == "losses":
            continue
        for name, part in slices.items():
            where = f"evaluation.groups.{column}.{name}"
            f1 = record.settings.metric == "f1" and column not in _CLASSES
            sample = Sample(int(part.errors), part.examples, f1=f1)
            equal(part.risk_upper, sample.upper(failure), where)
            equal(part.risk_lower, sample.lower(failure), where)
            equal(part.risk_upper_together, sample.upper(share), where)
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
    """All of them, each with a status and words that the audit of a test can give it."""
    certificate, record, _ = test
    if tuple(a.name for a in certificate.assumptions) != questions.ASKED:
        raise Disagreement("the assumptions are not those that a test is asked.")
    named = bool({"labels", "ids"} & set(record.digests))
    sayable = questions.sayable(record.settings.attempts, named=named)
    for position, assumption in enumerate(certificate.assumptions):
        if assumption.effect != "none":
            continue
        says, where = sayable[assumption.name], f"assumptions.{position}"
        if assumption.status not in says:
            raise Disagreement(
                f"“{assumption.name}” is called {assumption.status}; the audit can only say "
                f"{' or '.join(says)}.",
                f"{where}.status",
            )
        if not re.fullmatch(says[assumption.status], assumption.detail, re.DOTALL):
            raise Disagreement(
                f"“{assumption.name}” is explained by {assumption.detail!r}; the audit does not "
                "say that.",
                f"{where}.detail",
            )
    return f"{len(questions.ASKED)} assumptions."


def _status(test: _Test) -> str:
    equal(test.certificate.status, status_of(test.certificate.assumptions), "status")
    return test.certificate.status


def _fields(test: _Test) -> str:
    """Everything that is said twice, in words or for a reader's convenience, from what it is of."""
    certificate, record, _ = test
    bound, empirical = certificate.bound, certificate.empirical
    if record.columns.get("labels") == record.columns.get("predictions", ""):
        raise Disagreement(
            f"column {record.columns['labels']!r} was compared with itself: it is called the "
            "predictions and the labels.",
            "evaluation.columns",
        )
    promise = Promise(
        errors=empirical.amount,
        trials=empirical.trials,
        risk_upper=certificate.risk_upper,
        risk_lower=record.risk_lower,
        interval=(record.interval[0], record.interval[1]),
        bound=bound.model_copy(update={"theorem": THEOREMS.get(bound.name, bound.theorem)}),
    )
    fresh = _rewritten(certificate, promise, record, certificate.data.classes)
    if not _match(certificate, fresh, record):
        raise NotAsked(
            f"an older version wrote {certificate.statement!r}; what was measured is "
            f"{fresh.statement!r}: make the report again."
        )
    return "the sentence, its names, digests and counts."


def _match(certificate: Certificate, fresh: Certificate, record: EvaluationRecord) -> bool:
    """Whether it says what it says today; False where it says what older versions said.

    Of a score with a range they left out the "1 -", of a selection of rows all of it.
    """
    settings, said, loss = record.settings, fresh.statement, fresh.loss
    older = settings.words.removeprefix("1 - mean ") if settings.range is not None else loss.name
    if older == certificate.loss.name != loss.name:
        said = said.replace(f", the {settings.words}", f", the {older}", 1)
        loss = loss.model_copy(update={"name": older})
    chosen = f" on new examples{settings.selection} is"
    if chosen not in certificate.statement:
        said = said.replace(chosen, " on new examples is", 1)
    _same(certificate, fresh.model_copy(update={"statement": said, "loss": loss}))
    return (said, loss) == (fresh.statement, fresh.loss)


def _rewritten(
    certificate: Certificate, promise: Promise, record: EvaluationRecord, classes: int
) -> Certificate:
    """The certificate as it is written from these numbers, with its author's own assumptions."""
    budget, _ = budget_of(record.settings, certificate.budget.failure)
    return written(
        promise,
        record,
        budget=budget,
        classes=classes,
        baseline=certificate.baseline,
        assumptions=certificate.assumptions,
        artifacts=certificate.artifacts,
    )


def _same(claimed: Any, fresh: Any, where: str = "") -> None:
    """Raise for the first field that differs; what older versions did not write may be missing."""
    if isinstance(fresh, Record) and isinstance(claimed, type(fresh)):
        for name in type(fresh).model_fields:
            absent = name in fresh.later and name not in claimed.model_fields_set
            if not absent and (where or name not in _APART):
                field = f"{where}.{name}".lstrip(".")
                _same(getattr(claimed, name), getattr(fresh, name), field)
    elif isinstance(fresh, dict) and isinstance(claimed, dict) and set(fresh) == set(claimed):
        for name, value in fresh.items():
            _same(claimed[name], value, f"{where}.{name}")
    else:
        equal(claimed, fresh, where)


def _recount(certificate: Certificate, record: EvaluationRecord, evidence: Any) -> Tally:
    if isinstance(evidence, str | Path) and Path(evidence).is_dir():
        evidence = Path(evidence) / EVIDENCE
        content = hashlib.sha256(evidence.read_bytes()).hexdigest()
        equal(certificate.artifacts.get(EVIDENCE), content, f"artifacts.{EVIDENCE}")
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
    settings = record.settings
    batches = tables.batches_of(evidence, names, where, measured=settings.measured)
    tally = counted(settings, batches, clusters=record.unit == "clusters")
    for role, digest in record.digests.items():
        column = tally.digests[role]
        if digest not in (column.hexdigest(), column.as_cut()):
            hint = ""
            if Path(str(evidence)).suffix.lower() in readers.SEPARATORS:
                hint = "; an older version may have read codes and fractions of text as numbers"
            said = f"column {role!r} holds something else, or its rows are in another order{hint}."
            raise Disagreement(said, "evaluation.digests")
    return tally


def _again(test: _Test, tally: Tally) -> str:
    certificate, recorded, share = test
    promise, record = conclude(tally, share)
    # Digests are compared already, and columns are names alone.
    kept = {"columns": recorded.columns, "digests": recorded.digests}
    _same(recorded, record.model_copy(update=kept), "evaluation")
    _same(certificate.baseline, baseline_of(tally, share), "baseline")
    classes = max(2, len(tally.classes.values))
    _match(certificate, _rewritten(certificate, promise, recorded, classes), recorded)
    return "promise, groups, classes and constant answer, and what is said of them."


def _audit(test: _Test, tally: Tally) -> str:
    fresh = {a.name: a for a in questions.audit(tally, unseen=True, standing=None, invariant=None)}
    for position, recorded in enumerate(test.certificate.assumptions):
        name, own = recorded.name, fresh[recorded.name]
        if name not in (questions.INDEPENDENT, questions.GROUPS, questions.ORDER):
            continue
        # Inputs are not among the columns: what they showed may stand in the record alone.
        inputs = name == questions.INDEPENDENT and own.effect == "none"
        if recorded.effect != own.effect and not inputs:
            raise Disagreement(f"“{name}”: {own.detail}")
        # Older reports of losses did not say that there are no classes: they claim less.
        less = name == questions.ORDER and recorded.status == "not checkable"
        if own.effect == "none" and not inputs and not less:
            _same(recorded, own, f"assumptions.{position}")
    return "repeated rows, groups and class names."


def _attempts(test: _Test, tally: Tally, ledger: Path) -> str:
    """Its line is there, and what stood before it is what the certificate says."""
    certificate, record, _ = test
    entries = read_attempts(ledger)
    own = attempt_of(tally, record.digests)
    rivals = [e for e in entries if own.bound == e.bound or own.examples == e.examples != ""]
    # Lines of older versions may name settings and examples otherwise; an outcome is an outcome.
    ended = [e for e in entries if e.outcome == own.outcome]
    exactly = [e for e in ended if e.config == own.config]
    ended = [e for e in exactly if e.bound == own.bound] or exactly or ended
    line = next((e for e in ended if e.paid == own.paid), None)
    stated = next(a for a in certificate.assumptions if a.name == questions.PAID)
    if line is None and ended:
        shares = " and ".join(sorted({str(e.paid) for e in ended}))
        raise Disagreement(
            f"it says that {own.paid} tests share the confidence; the ledger has it with {shares}."
        )
    if line is None:
        if not rivals or stated.status != "checked":
            raise NotAsked(f"{ledger} knows nothing of this test.", needed=False)
        raise Disagreement(
            f"it has {len(rivals)} lines about these examples and none of this test: it was "
            "changed, or moved beside a ledger that is not its own."
        )
    # As of its first line: what came later did not make it less valid.
    before = standing(entries[: entries.index(line) + 1], line)
    checks = questions.audit(tally, unseen=True, standing=before, invariant=None)
    paid = next(a for a in checks if a.name == questions.PAID)
    if paid.effect != "none" and stated.effect == "none":
        raise Disagreement(f"“{questions.PAID}”: {paid.detail}", "assumptions")
    if not exactly:
        raise NotAsked("the ledger has this outcome under other settings than the certificate's.")
    more = f"; {len(before.alike)} before it with as many of each class" if before.alike else ""
    return f"{len(rivals)} line{'s' * (len(rivals) != 1)} about these examples, with its own{more}."
