"""A test counted again by somebody else: from the folder, from a file, from arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.errors import InvalidCertificate

from .worlds import classes


@pytest.fixture
def run(tmp_path):
    predictions, labels, sites = classes(400)
    report = nv.evaluate(
        predictions=predictions,
        labels=labels,
        groups={"site": sites},
        unseen=True,
        folder=tmp_path / "run",
    )
    return report, tmp_path / "run", (predictions, labels, sites)


@pytest.mark.slow
def test_the_folder_the_file_and_the_columns_verify(run) -> None:
    report, folder, (predictions, labels, sites) = run
    assert nv.Certificate.load(folder / "certificate.json") == report
    assert nv.verify(folder).verified
    columns = {"predictions": predictions, "labels": labels, "site": sites}
    assert nv.verify(folder / "certificate.json", data=columns).verified
    alone = nv.verify(folder / "certificate.json")
    assert alone.passed and not alone.verified


def test_other_columns_do_not_verify(run) -> None:
    _, folder, (_, labels, sites) = run
    columns = {"predictions": labels, "labels": labels, "site": sites}
    failed = nv.verify(folder / "certificate.json", data=columns)
    assert not failed.passed
    with pytest.raises(InvalidCertificate, match="or its rows are in another order"):
        failed.raise_if_failed()


@pytest.mark.parametrize(
    "path",
    [
        ("risk_upper",),
        ("evaluation", "risk_lower"),
        ("evaluation", "interval", 1),
        ("evaluation", "worst_group_upper"),
        ("evaluation", "groups", "site", "A", "risk_upper"),
        ("evaluation", "groups", "site", "A", "risk_upper_together"),
        ("evaluation", "scores", "1", "f1_lower"),
        ("baseline", "margin_lower"),
        ("bound", "inputs", "failure"),
    ],
)
def test_a_better_number_sealed_anew_is_noticed(run, tmp_path, path: tuple[str, ...]) -> None:
    """A forger who can compute digests still cannot change a number."""
    _, folder, _ = run
    record = json.loads((folder / "certificate.json").read_text())
    part = record
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] *= 0.9
    if path == ("risk_upper",):
        record["statement"] = record["statement"].rsplit(" ", 1)[0] + f" {part['risk_upper']:.4f}."
    from nonvacuous.verification.numbers import Unsealed

    loose = Unsealed.model_validate_json(json.dumps(record))
    fields = {name: getattr(loose, name) for name in type(loose).model_fields if name != "digest"}
    forged = nv.Certificate.sealed(**fields)
    assert not nv.verify(forged).passed


@pytest.mark.parametrize(
    "metric", ["loss", "balanced error", "mean f1", "f1", "recall", "precision", "selective error"]
)
def test_every_kind_of_metric_verifies(tmp_path, metric: str) -> None:
    predictions, labels, sites = classes(300)
    settings: dict[str, object] = {"metric": metric.removeprefix("mean ")}
    groups = {"site": sites}
    if metric in ("balanced error", "mean f1"):
        settings["classes"], groups = range(5), {}
    if metric in ("f1", "recall", "precision"):
        settings["positive"] = 1
    call = {"predictions": predictions, "labels": labels}
    if metric == "loss":
        call = {"losses": np.random.default_rng(0).random(300)}
    if metric == "selective error":
        settings["abstain"] = 4
    nv.evaluate(**call, groups=groups, unseen=True, settings=settings, folder=tmp_path / "run")
    verification = nv.verify(tmp_path / "run")
    assert verification.verified, str(verification)


def test_clusters_and_attempts_verify(tmp_path) -> None:
    wrong = (np.random.default_rng(0).random(300) < 0.1).astype(int)
    nv.evaluate(
        losses=wrong,
        clusters=np.arange(300) // 3,
        unseen=True,
        settings={"metric": "event", "attempts": 4},
        folder=tmp_path / "run",
    )
    assert nv.verify(tmp_path / "run").verified


def resealed(report: nv.Certificate, **changes: object) -> nv.Certificate:
    """What a forger makes of it, who can compute digests."""
    fields = {name: getattr(report, name) for name in type(report).model_fields}
    del fields["digest"]
    return nv.Certificate.sealed(**{**fields, **changes})


@pytest.fixture
def strict(tmp_path):
    """A test of some rows only, and all rows."""
    predictions, labels, _ = classes(400)
    kinds = np.where(np.arange(400) % 4 == 0, "loose", "strict")
    data = {"p": predictions, "y": labels, "filter": kinds}
    settings = {"where": ("filter=strict",)}
    call = {"predictions": "p", "labels": "y", "unseen": True, "settings": settings}
    return nv.evaluate(data=data, **call, folder=tmp_path / "run"), data, tmp_path / "run"


def test_every_sentence_says_of_which_rows_it_is(strict, tmp_path) -> None:
    report, data, folder = strict
    assert " on new examples with filter=strict is at most " in report.statement
    assert " of predictor on examples with filter=strict <= " in str(report)
    page = nv.report(report, tmp_path / "page.html").read_text()
    assert "new examples with filter=strict." in page
    assert nv.verify(folder).verified and nv.verify(folder, data=data).verified
    losses = nv.evaluate(
        data={"loss": np.full(200, 0.2), "g": ["a", "b"] * 100},
        losses="loss",
        unseen=True,
        settings={"metric": "loss", "where": ("g=a",)},
    )
    assert "predictor on examples with g=a is at most" in (
        nv.report(losses, tmp_path / "losses.html").read_text()
    )


def test_a_sentence_that_leaves_the_rows_out_is_not_verified(strict) -> None:
    """As older versions wrote it: nothing is wrong with the numbers, but much with the sentence."""
    report, data, _ = strict
    older = report.statement.replace(" with filter=strict", "")
    verification = nv.verify(resealed(report, statement=older), data=data)
    assert verification.passed and not verification.verified
    assert "with filter=strict is at most" in str(verification)
    other = report.statement.replace("filter=strict", "filter=none")
    assert not nv.verify(resealed(report, statement=other), data=data).passed


def test_a_column_that_was_compared_with_itself_is_named(tmp_path) -> None:
    predictions, labels, _ = classes(400)
    report = nv.evaluate(
        data={"p": predictions, "y": labels}, predictions="p", labels="y", unseen=True
    )
    data = {"p": predictions, "y": labels}
    verification = nv.verify(report, data=data)
    assert verification.verified and "predictions 'p', labels 'y'" in str(verification)
    own = report.evaluation.model_copy(update={"columns": {"predictions": "y", "labels": "y"}})
    failed = nv.verify(resealed(report, evaluation=own)).failures
    assert [finding.field for finding in failed] == ["evaluation.columns"]
    assert "compared with itself" in failed[0].detail


def test_columns_that_are_gone_leave_it_unverified(run, tmp_path) -> None:
    report, folder, _ = run
    (folder / "columns.npz").unlink()
    for given in ({"run_folder": folder}, {"data": tmp_path / "nowhere.csv"}):
        verification = nv.verify(report, **given)
        assert verification.passed and not verification.verified
        assert verification.wanted == ("the data",)
    (folder / "columns.npz").write_bytes(b"something else")
    assert not nv.verify(folder).passed


def test_what_the_library_says_itself_has_no_class_of_an_exception(run, tmp_path) -> None:
    report, _, _ = run
    (tmp_path / "bad.csv").write_text("predictions,labels,site\n1,1,A\n,1,B\n")
    (failed,) = nv.verify(report, data=tmp_path / "bad.csv").failures
    assert "line 3 of" in failed.detail and "(Bad" not in failed.detail


def test_a_planted_mistake_that_was_hidden_is_noticed(run) -> None:
    """A certificate that says nothing of its groups, although they were made from the errors."""
    predictions, labels, _ = classes(400)
    hard = np.where(predictions != labels, "hard", "easy")
    report = nv.evaluate(predictions=predictions, labels=labels, groups={"g": hard}, unseen=True)
    asserted = {"status": "asserted", "effect": "none"}
    forged = resealed(
        report,
        assumptions=tuple(a.model_copy(update=asserted) for a in report.assumptions),
        status="valid",
    )
    columns = {"predictions": predictions, "labels": labels, "g": hard}
    assert not nv.verify(forged, data=columns).passed


def test_what_the_inputs_showed_stands_in_the_record_alone(tmp_path) -> None:
    """Repeated inputs make a test conditional; columns cannot show them, and do not refute it."""
    inputs = np.random.default_rng(0).normal(size=(100, 40))
    inputs[50:] = inputs[:50]
    labels = (inputs[:, 0] > 0).astype(int)
    report = nv.evaluate(
        lambda rows: (rows[:, 0] > 0).astype(int), (inputs, labels), unseen=True, folder=tmp_path
    )
    assert report.status == "conditional"
    assert nv.verify(tmp_path).verified


def test_the_ledger_is_counted_as_the_certificate_counts_it(run) -> None:
    _, folder, (predictions, labels, _) = run
    named = [f"class {label}" for label in labels]
    again = [f"class {answer}" for answer in predictions]
    second = nv.evaluate(
        predictions=again, labels=named, folder=folder.parent / "named", settings={"name": "net"}
    )
    # Two conditions in doubt are two clauses of one sentence.
    assert "--unseen); “every test" in second.lines()[3]
    assert "has 1 other test on these examples" in second.lines()[3]
    said = str(nv.verify(folder.parent / "named"))
    assert "with its own; 1 before it with as many of each class." in said
    assert "as many of each class" not in str(nv.verify(folder))


def test_a_better_promise_of_f1_is_noticed_without_the_columns() -> None:
    predictions, labels, _ = classes(400)
    settings = {"metric": "f1", "positive": 1}
    report = nv.evaluate(predictions=predictions, labels=labels, unseen=True, settings=settings)
    assert nv.verify(report).passed
    said = report.statement.rsplit(" ", 1)[0] + " 0.0501."
    assert not nv.verify(resealed(report, risk_upper=0.05, statement=said)).passed


def test_a_line_of_the_same_losses_with_ids_is_not_taken_for_its_own(tmp_path) -> None:
    predictions, labels, _ = classes(200)
    losses, ids = np.random.default_rng(0).random(200), [f"row {i}" for i in range(200)]
    nv.evaluate(predictions=predictions, labels=labels, ids=ids, folder=tmp_path / "first")
    call = {"losses": losses, "settings": {"metric": "loss"}, "unseen": True}
    nv.evaluate(**call, ids=ids, folder=tmp_path / "second")
    report = nv.evaluate(**call, folder=tmp_path / "third")
    assert report.status == "valid"
    nv.verify(tmp_path / "third").raise_if_failed()


def test_plain_errors_of_groups_beside_another_metric_are_not_believed() -> None:
    predictions, labels, sites = classes(400)
    call = {"predictions": predictions, "labels": labels, "groups": {"site": sites}, "unseen": True}
    report = nv.evaluate(**call, settings={"metric": "recall", "positive": 1})
    assert nv.verify(report).passed
    plain = nv.evaluate(**call).groups["site"]
    worst = max(part.risk_upper for part in plain.values())
    older = report.evaluation.model_copy(
        update={"groups": {**report.groups, "site": plain}, "worst_group_upper": worst}
    )
    (failed,) = nv.verify(resealed(report, evaluation=older)).failures
    assert "an earlier version bounded the plain error of groups" in failed.detail
