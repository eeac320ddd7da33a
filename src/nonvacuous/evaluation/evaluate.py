"""evaluate: a test report that others can verify, for any predictor on examples it never saw."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from pydantic import ValidationError

import nonvacuous
from nonvacuous import records
from nonvacuous.bounds import ConfidenceBudget, checks
from nonvacuous.bounds.rounding import shown_confidence, shown_up
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation import coding, conclusions, predicting, tables
from nonvacuous.evaluation.audit import audit
from nonvacuous.evaluation.tally import PREDICTED_CLASS, TRUE_CLASS, Tally, counted
from nonvacuous.evaluation_records import Evaluation, EvaluationRecord
from nonvacuous.files import check_may_write, write_atomically
from nonvacuous.rules.attempts import Attempt, ledger_beside, record_attempt
from nonvacuous.settings import in_words

#: The columns of a test are kept in its folder up to so many rows.
MOST_KEPT = 5_000_000
EVIDENCE = "columns.npz"


def evaluate(
    predictor: Any = None,
    data: Any = None,
    *,
    predictions: Any = None,
    labels: Any = None,
    losses: Any = None,
    groups: Any = None,
    clusters: Any = None,
    ids: Any = None,
    confidence: float = 0.95,
    unseen: bool = False,
    settings: Evaluation | Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Certificate:
    """Promise how wrong a predictor is, from examples that it never saw. Exact at every size.

    predictor    a function, an estimator with ``predict`` or a torch module in evaluation mode;
                 ``data`` is then a pair (inputs, labels) or an iterable of them (a DataLoader)
    predictions, labels   arrays, one entry per example; no predictor is needed then
    losses       instead of both, one number per example: metrics event, success, loss, score
    data         a file (CSV, parquet, npz, JSON lines) or a table of columns; the arguments above
                 and below are then names of its columns
    groups       columns by name, as ``{"site": sites}``, or a list of names in ``data``
    clusters     which rows belong together (one patient, one document): each cluster is one draw
    ids          names of the examples: to find repeated ones, and other tests of the same ones
    confidence   of the promise, and of every other claim of the report alone
    unseen       your word that no example was used to train, tune or choose the predictor
    settings     what is measured, see :class:`~nonvacuous.evaluation_records.Evaluation`
    folder       where certificate and columns go; the folder above keeps the ledger of tests. The
                 page is written by ``nv.report``

    >>> report = evaluate(predictions=[0, 1, 1, 0] * 50, labels=[0, 1, 1, 0] * 50, unseen=True)
    >>> round(report.risk_upper, 4), report.status, report.baseline.shown_better
    (0.0149, 'valid', True)
    """
    chosen, target = _settings(settings), None if folder is None else Path(folder)
    failure = checks.failure_of(confidence)
    roles = {"predictions": predictions, "labels": labels, "losses": losses}
    roles |= {"clusters": clusters, "ids": ids}
    roles |= {f"group:{name}": column for name, column in _group_columns(groups).items()}
    given = {role: column for role, column in roles.items() if column is not None}
    notes: dict[str, Any] = {}
    names: dict[str, str] = {}
    if predictor is not None:
        answered_for = (predictions, labels, losses)
        if data is None or any(column is not None for column in answered_for):
            raise BadInput(
                "a predictor is tested on data=(inputs, labels): give its labels there, and no "
                "predictions."
            )
        scores = not (chosen.entry.answers or chosen.entry.one_column)
        predictor, chosen = predicting.with_scores(predictor, chosen)
        answered = predicting.predicted(predictor, data, scores=scores, beside=given, notes=notes)
        batches = _beside(answered, given)
    elif data is not None:
        names = {role: str(column) for role, column in given.items()}
        if names.get("labels") == names.get("predictions", ""):
            raise Unrecognized(
                f"predictions and labels are one column, {names['labels']!r}: compared with itself "
                "it shows nothing. Name the column of the predictions.",
                instead={"--predictions": "COLUMN"},
            )
        batches = tables.batches_of(data, names, chosen.where, measured=chosen.measured)
    else:
        batches = tables.in_batches(given)
    if chosen.where and (predictor is not None or data is None):
        raise BadInput("where chooses rows of a file or table: name it as data.")
    known = {*given, *(() if predictor is None else ("predictions", "labels"))}
    needed = ("losses",) if chosen.entry.one_column else ("predictions", "labels")
    missing = [role for role in needed if role not in known]
    if missing:
        raise BadInput(f"metric {chosen.metric!r} needs {' and '.join(missing)}.")
    if target is not None:
        check_may_write(target)
    kept: list[tables.Batch] = []
    stream = batches if target is None else _kept(batches, kept)
    tally = counted(chosen, stream, clusters=clusters is not None)
    tally.likeness = notes.get("likeness")
    _check_names(tally)
    _check_classes(tally)
    budget, share = budget_of(chosen, failure)
    promise, record = conclusions.conclude(tally, share)
    baseline = conclusions.baseline_of(tally, share)
    artifacts = _save(kept, target) if target is not None and kept else {}
    # What fails until here has shown nobody a number, and spends nothing. Nothing is shown or kept
    # before the test has its line, which a repetition of the same test finds again.
    standing = None
    if target is not None:
        standing = record_attempt(ledger_beside(target), attempt_of(tally, record.digests))
    invariant = notes.get("invariant")
    certificate = written(
        promise,
        record.model_copy(update={"columns": names}),
        budget=budget,
        classes=max(2, len(tally.classes.values)),
        baseline=baseline,
        assumptions=audit(tally, unseen=unseen, standing=standing, invariant=invariant),
        artifacts=artifacts,
    )
    if target is not None:
        certificate.save(target / "certificate.json")
    return certificate


def budget_of(settings: Evaluation, failure: float) -> tuple[records.BudgetRecord, float]:
    """How the failure probability is spent, and what is left of it for one predictor."""
    attempts, share = settings.attempts, failure
    budget = ConfidenceBudget(failure=failure)
    if settings.metric == "selective error" and attempts == 1:
        budget.spend("error among answers", failure / 2, reason="the error of what was answered")
        budget.spend_rest("coverage", reason="the share of examples that are answered")
    else:
        reason = "the test itself; every other claim of the report is made at this failure alone"
        if attempts > 1:
            reason = f"shared by {attempts} predictors, all fixed before any result was shown"
        share = budget.choose("test", failure, choices=attempts, reason=reason)
    return records.BudgetRecord.model_validate(budget.to_dict()), share


def written(
    promise: conclusions.Promise,
    record: EvaluationRecord,
    *,
    budget: records.BudgetRecord,
    classes: int,
    baseline: records.BaselineRecord | None,
    assumptions: tuple[records.Assumption, ...],
    artifacts: Mapping[str, str],
) -> Certificate:
    """The certificate that these numbers make: everything else follows from them."""
    settings, digests, failure = record.settings, record.digests, budget.failure
    words = "error rate" if settings.metric == "error" else settings.words
    mean = " (mean over clusters)" if record.unit == "clusters" else ""
    draws = promise.trials if "examples" in promise.bound.inputs else record.rows
    whole = settings.counts_events and record.unit == "examples"
    return Certificate.sealed(
        statement=f"With confidence {shown_confidence(1.0 - failure)} over the draw of {draws} "
        f"{record.unit}, the {words}{mean} of {settings.name} on new examples{settings.selection} "
        "is at most "
        f"{shown_up(promise.risk_upper)}.",
        status=status_of(assumptions),
        mode="evaluate",
        predictor="deterministic",
        loss=records.LossRecord(name="zero-one" if settings.metric == "error" else settings.words),
        confidence=1.0 - failure,
        risk_upper=promise.risk_upper,
        bound=promise.bound,
        budget=budget,
        data=records.DataRecord(
            name=settings.dataset,
            classes=classes,
            preprocessing="as given",
            bound=records.ExampleSet(
                examples=draws,
                index_digest=_digest(str(record.rows)),
                content_digest=_digest(*(d for r, d in digests.items() if r != "predictions")),
            ),
        ),
        model=records.ModelRecord(
            architecture=settings.name,
            parameters=0,
            fixed_digest=digests.get("predictions", digests.get("losses", _digest("none"))),
        ),
        empirical=records.RiskRecord(
            errors=int(promise.errors) if whole else None,
            total=None if whole else promise.errors,
            trials=promise.trials,
            scheme="every example once",
            identical=True,
            seed=settings.seed,
            risk_upper=min(1.0, promise.errors / promise.trials),
        ),
        baseline=baseline,
        evaluation=record,
        assumptions=assumptions,
        seed=settings.seed,
        software={
            "nonvacuous": nonvacuous.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        artifacts=dict(artifacts),
    )


def _settings(given: Evaluation | Mapping[str, Any] | None) -> Evaluation:
    if isinstance(given, Evaluation):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise BadInput(f"settings are an nv.Evaluation or a dictionary, got {given!r}.")
    try:
        return Evaluation(**dict(given or {}))
    except ValidationError as error:
        raise in_words(error, Evaluation) from error


def _group_columns(groups: Any) -> dict[str, Any]:
    if isinstance(groups, Mapping):
        named = {str(name): column for name, column in groups.items()}
    else:
        names = [groups] if isinstance(groups, str) else [] if groups is None else groups
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise BadInput(
                "groups are columns by name, as {'site': sites}, or names of columns in data."
            )
        named = {name: name for name in names}
    for name in (TRUE_CLASS, PREDICTED_CLASS):
        if name in named:
            raise BadInput(
                f"groups: {name!r} is what the report calls its own table of classes, made from "
                "labels and predictions: give the column another name."
            )
    return named


def _beside(batches: Iterator[dict[str, Any]], given: Mapping[str, Any]) -> Iterator[tables.Batch]:
    """Predicted batches with the rows of the columns that were given beside them."""
    columns, lengths = tables.with_lengths(given)
    said = {
        role: f"{role.replace(':', ' ', 1)} {'has' if ':' in role else 'have'} {rows} rows, but"
        for role, rows in lengths.items()
    }
    start = 0
    for batch in batches:
        stop = start + len(batch["labels"])
        for role, rows in lengths.items():
            if rows < stop:
                raise BadInput(f"{said[role]} there are at least {stop} answers.")
        # Of a pandas column with fractions as its index, [] would choose by these.
        parts = {role: getattr(c, "iloc", c)[start:stop] for role, c in columns.items()}
        yield tables.Batch(batch | parts, partial(tables.row_name, None, range(start, stop)))
        start = stop
    for role, rows in lengths.items():
        if rows != start:
            raise BadInput(f"{said[role]} there were {start} answers.")


def _kept(batches: Iterable[tables.Batch], kept: list[tables.Batch]) -> Iterator[tables.Batch]:
    rows = 0
    for batch in batches:
        rows += len(next(iter(batch.values())))
        if rows <= MOST_KEPT:
            kept.append(batch)
        else:
            kept.clear()
        yield batch


def _save(kept: list[tables.Batch], folder: Path) -> dict[str, str]:
    """The columns beside the certificate, so that anybody can count again."""
    columns: dict[str, Any] = {
        role: np.concatenate([coding.as_array(coding.plain(batch[role], role)) for batch in kept])
        for role in kept[0]
    }
    path = folder / EVIDENCE
    write_atomically(path, lambda stream: np.savez_compressed(stream, **columns))
    return {EVIDENCE: hashlib.sha256(path.read_bytes()).hexdigest()}


def attempt_of(tally: Tally, digests: Mapping[str, str]) -> Attempt:
    """The line of a test: its examples are those that its ids name, or else its labels.

    Without either nothing shows which examples were tested: only the same outcome is found again.
    """
    outcome = _digest(*(digests.get(role, "") for role in ("predictions", "losses")))
    known = _digest(*(digests[role] for role in ("labels", "ids") if role in digests))
    role = "ids" if "ids" in digests else "labels"
    named = _digest(role, str(tally.rows), tally.named.hexdigest()) if role in digests else ""
    return Attempt(
        examples=named,
        bound=known if "labels" in digests else named or outcome,
        config=_digest(tally.settings.model_dump_json(exclude={"name", "dataset", "attempts"})),
        paid=tally.settings.attempts,
        outcome=outcome,
        classes=tuple(sorted((int(n) for n in tally.truths), reverse=True)),
        command="evaluate",
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


def _check_classes(tally: Tally) -> None:
    """A mean is about all classes, not those that turned up; probabilities are no classes."""
    settings = tally.settings
    if settings.over_all_classes and settings.classes is None:
        seen = [str(value) for value in tally.classes.values]
        raise BadInput(
            f"{settings.words} is a mean over all classes, those included that no row of the test "
            f"has: declare them as classes (--classes). In the test there are "
            f"{', '.join(seen[:10])}{' ...' if len(seen) > 10 else ''}.",
            instead={"--classes": ",".join(seen) if len(seen) <= 10 else "A,B"},
        )
    if settings.metric == "brier" and tally.digests["predictions"].whole:
        raise BadInput(
            "predictions are 0 and 1 alone: these are classes, not probabilities. Give the "
            "probability of class 1, or of each class in its own column, as predict_proba does."
        )


def _check_names(tally: Tally) -> None:
    """Predictions that never name a class of the labels are a mistake, not a bad predictor."""
    if not len(tally.answers) or tally.errors < tally.counted:
        return
    truths = {str(v) for v, n in zip(tally.classes.values, tally.truths, strict=True) if n}
    answers = {str(v) for v, n in zip(tally.classes.values, tally.answers, strict=True) if n}
    if not truths & answers:
        some = ", ".join(sorted(answers)[:3]), ", ".join(sorted(truths)[:3])
        raise BadInput(
            f"no prediction is one of the labels: predictions say {some[0]}, labels {some[1]}. If "
            "predictions are positions, declare the classes in their order."
        )
