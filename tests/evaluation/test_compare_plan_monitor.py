"""compare, plan, monitor and disagreement."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous import bounds
from nonvacuous.errors import BadInput

from .worlds import classes

GOLDEN = Path(__file__).parents[1] / "golden" / "certificates"


def test_compare_counts_and_both_ends() -> None:
    first, labels, sites = classes(1500, errors=0.12)
    second, _, _ = classes(1500, errors=0.04)
    result = nv.compare(first, second, labels, groups={"site": sites})
    a, b = first != labels, second != labels
    assert (result.wins, result.losses) == (int((a & ~b).sum()), int((b & ~a).sum()))
    call = {"examples": 1500, "failure": 0.025}
    lower = bounds.paired_lower(wins=result.wins, losses=result.losses, **call)
    assert result.difference_lower == pytest.approx(lower, abs=1e-9)
    assert result.better == "B" and result.verdict.startswith("B errs less, by ")
    swapped = nv.compare(second, first, labels)
    assert swapped.difference_upper == pytest.approx(-result.difference_lower)
    assert swapped.better == "A"
    assert set(result.groups["site"]) == {"A", "B", "C"}
    assert result.p_value < 0.01


def test_compare_says_how_many_more_would_tell() -> None:
    labels = np.zeros(200, dtype=int)
    first = (np.arange(200) < 12).astype(int)
    second = (np.arange(200) >= 192).astype(int)
    result = nv.compare(first, second, labels)
    assert result.better is None and "more examples like these would tell" in result.verdict
    same = nv.compare(first, first, labels)
    assert same.verdict == "not told apart" and same.p_value == 1.0


def test_a_p_value_pays_for_those_that_were_chosen_from() -> None:
    labels = np.zeros(400, dtype=int)
    first, second = (np.arange(400) < 60).astype(int), (np.arange(400) < 48).astype(int)
    alone = nv.compare(first, second, labels).p_value
    five = nv.compare(first, {name: second for name in "abcde"}, labels)
    tried = nv.compare(first, second, labels, attempts=5)
    assert five.p_value == tried.p_value == pytest.approx(5 * alone)


def test_models_too_alike_for_any_chosen_one_are_rarely_told_apart() -> None:
    """Twenty challengers no better than the old model: the best of them looks better by itself."""
    generator, small = np.random.default_rng(0), 0
    for _ in range(60):
        wrong = (generator.random((21, 200)) < 0.3).astype(int)
        best = nv.compare(wrong[0], dict(enumerate(wrong[1:])), np.zeros(200, dtype=int))
        small += best.p_value < 0.05
    assert small <= 8


@pytest.mark.parametrize(("wins", "losses", "examples"), [(22, 10, 300), (6, 0, 90), (60, 40, 900)])
def test_about_so_many_more_do_tell(wins: int, losses: int, examples: int) -> None:
    def verdict(times: float) -> str:
        won, lost, n = (round(times * count) for count in (wins, losses, examples))
        rows = np.arange(n)
        return nv.compare((rows < won) * 1, (rows >= n - lost) * 1, np.zeros(n, int)).verdict

    found = re.search(r"about ([\d,]+) more examples like these would tell", verdict(1.0))
    more = int(found[1].replace(",", ""))
    assert "errs less" in verdict(1.0 + 1.3 * more / examples)
    assert "not told apart" in verdict(1.0 + 0.4 * more / examples)


def test_compare_losses_and_clusters_and_attempts() -> None:
    generator = np.random.default_rng(1)
    first, second = generator.random(600) * 0.6, generator.random(600) * 0.2
    result = nv.compare(first, second)
    assert 0.1 < result.difference_lower < 0.2 < result.difference_upper < 0.3
    assert result.p_value is None
    grouped = nv.compare(first, second, clusters=np.arange(600) // 20)
    assert grouped.examples == 30 and grouped.difference_lower < result.difference_lower
    paid = nv.compare(first, second, attempts=20)
    assert paid.difference_lower < result.difference_lower
    with pytest.raises(BadInput):
        nv.compare([0, 1], [0], [0, 1])
    with pytest.raises(BadInput, match="losses"):
        nv.compare([0, 3], [0, 1])
    with pytest.raises(BadInput, match="'score'"):
        nv.compare([0, 0.5], [0, 1], metric="success")
    with pytest.raises(BadInput, match="labels"):
        nv.compare([0, 1], [0, 1], [0, 1], metric="loss")
    with pytest.raises(BadInput, match="look like probabilities"):
        nv.compare([0.2, 0.7], [0, 1], [0, 1])
    with pytest.raises(BadInput, match="'clusters' has 3 rows for 600"):
        nv.compare(first, second, clusters=[0, 1, 2])
    for nothing in ([], np.zeros(0), np.zeros((0, 3))):
        with pytest.raises(BadInput, match="rows"):
            nv.compare(nothing, nothing, nothing)
    with pytest.raises(BadInput, match="single int"):
        nv.compare(1, 2, 3)


def test_compare_says_what_it_cannot_use() -> None:
    column = [0, 1] * 20
    masked = np.ma.masked_array(column, mask=[0, 1] * 20)
    for call, words in (
        ({"names": ("x",)}, "names are those of both"),
        ({"names": "AB"}, "names are those of both"),
        ({"groups": ["a"]}, "groups are columns by name"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 0.5}, "seed must be an integer"),
        ({"labels": masked}, "masked values"),
        ({"predictions_a": masked}, "masked values"),
        ({"predictions_a": set(column)}, "predictions_a is a set"),
    ):
        with pytest.raises(BadInput, match=words):
            nv.compare(
                **{"predictions_a": column, "predictions_b": column, "labels": column} | call
            )
    with pytest.raises(BadInput, match="masked values"):
        report = nv.evaluate(predictions=column, labels=column, unseen=True)
        nv.disagreement(report, masked, column)


def test_compare_refuses_classes_that_are_written_otherwise() -> None:
    """Whoever said CAT for cat was shown to be worse."""
    labels = np.array(["cat", "dog"] * 200)
    first = np.where(np.arange(400) < 40, "dog", labels)
    for named in np.char.upper(first), np.char.add(first, " "):
        with pytest.raises(BadInput, match="no answer of B is one of the labels"):
            nv.compare(first, named, labels)
        with pytest.raises(BadInput, match="no answer of old is one of the labels"):
            nv.compare(named, {"new": first}, labels, names=("old", ""))
    assert nv.compare(first, np.full(400, "bird"), np.append(labels[1:], "bird")).better == "A"


def test_compare_does_not_pair_series_by_position() -> None:
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series([0, 1, 2] * 50)
    shuffled = labels.sample(frac=1, random_state=0)
    with pytest.raises(BadInput, match="predictions_a and labels name their rows differently"):
        nv.compare(shuffled, labels.to_numpy(), labels)
    with pytest.raises(BadInput, match="labels and group g name their rows differently"):
        nv.compare(labels.to_numpy(), labels.to_numpy(), labels, groups={"g": shuffled})
    assert nv.compare(shuffled.loc[labels.index], labels, labels).p_value == 1.0


@pytest.mark.parametrize("metric", ["no such", "recall", "brier", "squared error"])
def test_compare_refuses_metrics_that_it_does_not_have(metric: str) -> None:
    with pytest.raises(BadInput, match="there are error, event, success, loss, score"):
        nv.compare([0.0, 1.0], [0.0, 0.5], metric=metric)  # type: ignore[arg-type]


def test_choosing_the_best_of_several_is_paid() -> None:
    wrong = np.random.default_rng(3).random((4, 200)) < np.array([[0.3], [0.3], [0.1], [0.2]])
    labels = np.zeros(200, dtype=int)
    answers = [column.astype(int) for column in wrong]
    names = ["same", "best", "better"]
    result = nv.compare(answers[0], dict(zip(names, answers[1:], strict=True)), labels)
    assert result.better == "best" and [c.names[1] for c in result.others] == ["same", "better"]
    for column, one in zip((2, 1, 3), (result, *result.others), strict=True):
        paid = nv.compare(answers[0], answers[column], labels, attempts=3)
        assert one.difference_lower == paid.difference_lower
        assert one.difference_upper == paid.difference_upper
    events = nv.compare(wrong[0], wrong[1], metric="event")
    scores = nv.compare(~wrong[0], ~wrong[1], metric="success")
    assert events == scores == nv.compare(answers[0], answers[1], labels)


def test_plan_is_the_known_number() -> None:
    plan = nv.plan(target=0.05, risk=0.03, chance=0.8, confidence=0.95)
    assert (plan.first, plan.examples) == (601, 694)
    assert [row.examples for row in plan.rows] == sorted(row.examples for row in plan.rows)
    assert 0.0 < plan.detectable_difference < 0.05
    with pytest.raises(BadInput):
        nv.plan(target=0.02, risk=0.03)


def test_the_detectable_difference_is_detected_as_often_as_said() -> None:
    from nonvacuous.evaluation.plan import detectable

    n, share = 300, 0.1
    difference = detectable(n, share, 0.8, 0.025)
    generator = np.random.default_rng(0)
    rates = [(share + difference) / 2, (share - difference) / 2, 1 - share]
    draws = generator.multinomial(n, rates, size=4000)
    shown = np.mean([bounds.sign_test(wins=int(w), losses=int(v)) <= 0.025 for w, v, _ in draws])
    assert shown == pytest.approx(0.8, abs=0.03)


def test_dividing_labeled_examples() -> None:
    plan = nv.plan(0.1, 0.05, labeled=4000, curve=[(100, 0.2), (400, 0.12), (1600, 0.08)])
    division = plan.division
    assert 100 < division.held_out < 3000 and 0.05 < division.test < 0.15
    # Without its price ln(2 sqrt(n)) a learned prior would be a plain test; with it, it is not.
    assert division.test < division.learned_prior < 0.2
    assert division.advice.split(" gives the smallest")[0] in (
        "a plain test", "testing while training (progressive)"
    )  # fmt: skip
    for curve in (None, ["a", "b"], [(0, 0.5), (100, 0.1)], [(1, 0.5), (2, np.nan)]):
        with pytest.raises(BadInput, match="curve"):
            nv.plan(0.1, 0.05, labeled=4000, curve=curve)


# ----------------------------------------------------------------------------- monitor


def test_single_and_batch_updates_agree() -> None:
    losses = (np.random.default_rng(0).random(5000) < 0.08).astype(float)
    one, many = nv.monitor(0.05), nv.monitor(0.05).update(losses)
    for loss in losses:
        one.update(loss == 1.0)  # as numpy says whether an answer was wrong
    assert one.alarms == many.alarms and one.alarm
    assert one.capital == pytest.approx(many.capital, rel=1e-6)
    assert one.history[-1][0] > 2500


def test_a_jump_is_noticed_soon() -> None:
    generator = np.random.default_rng(1)
    losses = np.r_[generator.random(2000) < 0.05, generator.random(3000) < 0.10].astype(float)
    watch = nv.monitor(0.05, false_alarm=0.01).update(losses)
    assert 2000 < watch.alarms[""] < 2900
    low, high = watch.interval()
    assert low < losses.mean() < high


def test_groups_are_watched_and_missing_labels_counted() -> None:
    predictions, labels, sites = classes(2000, errors=0.05)
    report = nv.evaluate(
        predictions=predictions, labels=labels, groups={"site": sites}, unseen=True
    )
    watch = nv.monitor(report, groups=True)
    watch.update([0, None, 1], groups={"site": ["A", "A", "B"]})
    assert watch.missing == 1 and watch.seen == 2
    assert "alarm at 400;" in str(watch), "everybody and three groups share a chance of 0.01"
    watch.update([1] * 60, groups={"site": ["B"] * 60})
    assert "site=B" in watch.alarms and "site=A" not in watch.alarms
    watch.update([1, 0], groups={"site": ["Z", "A"]})
    assert watch.unwatched == {"site=Z": 1} and "1 labels of site=Z, about which" in str(watch)
    seen = watch.seen
    for losses, groups, words in (
        ([1], {"ward": ["A"]}, "not watched"),
        ([1], {"site": ["A", "B"]}, "2 groups for 1"),
        ([2.0], None, r"\[0, 1\]"),
        (["x"], None, "numbers"),
    ):
        with pytest.raises(BadInput, match=words):
            watch.update(losses, groups)
    assert watch.seen == seen, "what is refused leaves no trace"
    assert set(nv.monitor(report, groups=["site"]).groups) == {"site"}
    with pytest.raises(BadInput, match="no groups 'ward'; it has site"):
        nv.monitor(report, groups=["ward"])
    with pytest.raises(BadInput, match="a number promises nothing about groups"):
        nv.monitor(0.05, groups=True)


@pytest.mark.parametrize("kind", ["yes or no", "whole", "as floats", "halves", "words"])
def test_groups_are_watched_under_the_names_that_the_test_gave_them(kind: str) -> None:
    codes = np.arange(800) % 2
    groups = {"yes or no": codes.astype(bool), "words": np.array(["a", "b"])[codes]}
    groups["halves"] = 0.5 * codes
    tested = groups.get(kind, codes)
    live = {"as floats": codes.astype(float)}.get(kind, tested)[:80].tolist()
    wrong = np.arange(800) % 100 == 0
    report = nv.evaluate(
        predictions=wrong * 1, labels=np.zeros(800, int), groups={"g": tested}, unseen=True
    )
    watch = nv.monitor(report, groups=True)
    live[3], live[5] = None, math.nan
    for start in (0, 1):  # of each group alone the numbers are whole, or none is
        watch.update([1] * 40, groups={"g": live[start::2]})
    assert len([name for name in watch.alarms if name]) == 2, "each group has its own watch"
    assert watch.unwatched == {"g=": 2}, "a missing group is nobody's"
    assert "2 labels without a g, about which nothing was promised" in str(watch)
    with pytest.raises(BadInput, match="g is a single int"):
        watch.update([1], groups={"g": 1})
    for losses in (1, [1]):
        with pytest.raises(BadInput, match="groups of 'g' are watched: give the group of each"):
            watch.update(losses)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(BadInput, match="name their rows differently"):
        watch.update(pandas.Series([1]), groups={"g": pandas.Series(live[:1], index=[7])})


def test_what_is_masked_is_missing() -> None:
    watch = nv.monitor(0.5).update(np.ma.masked_array([0, 1, 1], mask=[0, 1, 1]))
    assert (watch.seen, watch.missing, watch.errors) == (1, 2, 0.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metric": "event", "clusters": True}, "mean over clusters.*mean loss of each cluster"),
        ({"metric": "f1", "positive": 1}, "1 - F1 of 1.*metric 'error'"),
        ({"metric": "balanced error", "classes": (0, 1)}, "balanced error.*metric 'error'"),
        ({"metric": "recall", "positive": 1}, "1 - recall of 1"),
        ({"metric": "selective error", "abstain": 2}, "errors among rows that were answered"),
        ({"metric": "absolute error", "range": (0, 2)}, "clipped and scaled alike"),
        ({"metric": "loss", "range": (0, 2)}, r"nv.monitor\(0\."),
        ({"metric": "error", "where": ("kind=a",)}, "examples with kind=a alone.*these rows"),
    ],
)
def test_risks_that_are_no_mean_of_all_losses_are_not_watched(settings: dict, words: str) -> None:
    """Watched nevertheless, an unchanged world raised the alarm in nearly every run."""
    wrong = np.arange(400) % 10 == 0
    labels = np.arange(400) % 2
    given = {"predictions": np.where(wrong, 1 - labels, labels), "labels": labels}
    if settings["metric"] in ("event", "loss"):
        given = {"losses": wrong * 1}
    if settings.get("clusters"):
        settings = {"metric": "event"}
        given["clusters"] = np.arange(400) // 20
    if "where" in settings:
        given["kind"] = np.where(np.arange(400) % 3, "a", "b")
        given = {"data": given, "predictions": "predictions", "labels": "labels"}
    report = nv.evaluate(**given, settings=settings, unseen=True)
    with pytest.raises(BadInput, match=words):
        nv.monitor(report)


def test_late_labels_count_when_they_come_and_are_named(tmp_path) -> None:
    watch = nv.monitor(0.5).update([0, None, None, 1])
    assert (watch.seen, watch.missing, watch.late) == (2, 2, 0)
    watch.update(1, late=True)
    assert (watch.seen, watch.missing, watch.late) == (3, 1, 1)
    assert "1 labels late, 1 missing" in str(watch)
    with pytest.raises(BadInput, match="2 labels are late, but 1 were missing"):
        watch.update([0, 1], late=True)
    watch.update(float("nan"))
    assert watch.missing == 2

    def table(losses: list[float]) -> list[tuple[np.ndarray, None]]:
        """In batches of three rows, as a file is read."""
        return [(np.array(losses[i : i + 3]), None) for i in range(0, len(losses), 3)]

    gone = math.nan
    rows, path = [0.0, gone, gone, gone, 1.0, 0.0, gone], tmp_path / "watch.json"
    watch = nv.monitor(0.5, state=path).follow(table(rows))
    assert (watch.seen, watch.missing, watch.missing_rows) == (3, 4, ((1, 3), (6, 6)))
    rows[2], rows[6] = 1.0, 0.0
    again = nv.monitor(0.5, state=path).follow(table([*rows, 1.0, gone]))
    assert (again.seen, again.errors, again.late, again.missing) == (6, 3.0, 2, 3)
    assert again.missing_rows == ((1, 1), (3, 3), (8, 8))
    assert "(rows 1, 3, 8, counted from 0)" in str(again)
    assert nv.monitor(0.5, state=path).follow(table([*rows, 1.0, gone])).seen == 6
    with pytest.raises(BadInput, match="must only grow"):
        nv.monitor(0.5, state=path).follow(table(rows[:4]))
    path.write_text("{}")
    with pytest.raises(BadInput, match="not the state of a monitor"):
        nv.monitor(0.5, state=path)


def test_another_history_is_not_taken_for_one_that_was_read(tmp_path) -> None:
    path = tmp_path / "watch.json"
    good, gone = [0.0] * 50, math.nan

    def follow(losses: list[float], name: str = "a.csv") -> Any:
        batches = [(np.array(losses[i : i + 7]), None) for i in range(0, len(losses), 7)]
        return nv.monitor(0.1, state=path).follow(batches, source=tmp_path / name)

    follow([*good, gone])
    before = path.read_text()
    with pytest.raises(
        BadInput, match=r"51 rows of a\.csv, not of b\.csv.*append a new batch.*--state"
    ):
        follow([1.0] * 51, "b.csv")
    with pytest.raises(BadInput, match="first 51 rows are not those that were read before"):
        follow([1.0] * 51)
    with pytest.raises(BadInput, match="first 51 rows are not"):
        follow([gone, *good])
    assert path.read_text() == before, "what is refused leaves no trace"
    again = follow([*good, 1.0, -0.0])
    assert (again.seen, again.late, again.missing, again.alarm) == (52, 1, 0, False)
    assert follow([*good, 1.0, 0.0]).seen == 52, "a label that came is part of the history"
    watch = nv.monitor(0.1).follow([(np.array(good), None)])
    with pytest.raises(BadInput, match="not those that were read"):
        watch.follow([(np.ones(60), None)])
    assert (watch.seen, watch.errors, watch.alarm) == (50, 0.0, False)


def test_a_folder_is_no_state(tmp_path) -> None:
    with pytest.raises(BadInput, match="is a folder: name a file in it"):
        nv.monitor(0.5, state=tmp_path)


@pytest.mark.parametrize("capital", [5, None, "ab"])
def test_a_capital_that_is_none_is_no_state(tmp_path, capital: object) -> None:
    path = tmp_path / "state.json"
    nv.monitor(0.5, state=path).update([0.0, 1.0])
    record = json.loads(path.read_text())
    record["watches"][""]["capital"] = capital
    path.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="not the state of a monitor"):
        nv.monitor(0.5, state=path)


def test_a_state_that_lacks_something_is_not_read_as_if_nothing_had_been_seen(tmp_path) -> None:
    path = tmp_path / "state.json"
    nv.monitor(0.5, state=path).update([0.0, 1.0])
    whole = path.read_text()
    record = json.loads(whole)
    inner = [("watches", "", name) for name in record["watches"][""]]
    for *way, last in [*((name,) for name in record), *inner]:
        some = json.loads(whole)
        part = some
        for step in way:
            part = part[step]
        del part[last]
        path.write_text(json.dumps(some))
        with pytest.raises(BadInput, match="not the state of a monitor"):
            nv.monitor(0.5, state=path)
    record["watches"][""]["capital"].pop()
    path.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="not the state of a monitor"):
        nv.monitor(0.5, state=path)
    path.write_text(whole)
    assert nv.monitor(0.5, state=path).seen == 2


def test_batches_are_much_faster_than_single_labels() -> None:
    """A ratio, so that it does not depend on the machine: at 5 million a second it is over 20."""
    losses = (np.random.default_rng(2).random(300_000) < 0.04).astype(float)
    one, many = nv.monitor(0.05), nv.monitor(0.05)
    start = time.perf_counter()
    for loss in losses[:10_000].tolist():
        one.update(loss)
    single = (time.perf_counter() - start) / 10_000
    start = time.perf_counter()
    many.update(losses)
    assert single > 5 * (time.perf_counter() - start) / len(losses)


def _writer(path: str, count: int) -> None:
    watch = nv.monitor(0.05, state=path)
    for _ in range(count):
        watch.update([0, 1, 0])


def test_two_writers_and_a_kill_lose_nothing(tmp_path) -> None:
    path = str(tmp_path / "watch.json")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_writer, args=(path, 20)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert nv.monitor(0.05, state=path).seen == 120
    endless = context.Process(target=_writer, args=(path, 10**6))
    endless.start()
    time.sleep(0.3)
    os.kill(endless.pid, signal.SIGKILL)
    endless.join()
    after = nv.monitor(0.05, state=path)
    assert after.seen > 120 and after.seen % 3 == 0
    assert after.errors == after.seen / 3
    json.loads((tmp_path / "watch.json").read_text())
    with pytest.raises(BadInput, match="another promise"):
        nv.monitor(0.06, state=path)


def test_too_few_examples_tell_no_two_models_apart() -> None:
    few = nv.plan(target=0.5, risk=0.0)
    assert few.examples == 5 and few.detectable_difference is None
    assert "tell no two models apart" in few.told_apart


def test_nothing_is_inherited_from_a_network_drawn_for_each_input() -> None:
    """Half the weights err on every fifth input, half never: old answers are of one of them."""
    certificate = nv.Certificate.load(GOLDEN / "posterior.json")
    assert certificate.predictor == "stochastic"
    answers = np.zeros(100, dtype=int)
    with pytest.raises(BadInput, match="draws a network for each input"):
        nv.disagreement(certificate, answers, answers)


def test_disagreement_adds_both_failures() -> None:
    predictions, labels, _ = classes(1000)
    report = nv.evaluate(predictions=predictions, labels=labels, unseen=True)
    new = np.where(np.arange(1000) < 10, 4 - predictions, predictions)
    inherited = nv.disagreement(report, new, predictions, failure=0.01)
    differ = int((new != predictions).sum())
    end = bounds.holdout(errors=differ, examples=1000, failure=0.01)
    assert inherited.risk_upper == pytest.approx(report.risk_upper + end)
    assert inherited.confidence == pytest.approx(0.94)
    with pytest.raises(BadInput):
        nv.disagreement(report, [1], [1, 2])


def test_what_is_not_inherited_is_said() -> None:
    labels = np.arange(400) % 2
    call = {"predictions": labels, "labels": labels}
    report = nv.evaluate(**call, unseen=True)
    clusters = nv.evaluate(**call, clusters=np.arange(400) // 20, unseen=True)
    for wrong, words in (
        (lambda: nv.disagreement(clusters, labels, labels), "mean over clusters"),
        (lambda: nv.disagreement(report, labels, labels, failure=0.97), "leave no confidence"),
        (lambda: nv.disagreement(report, labels, labels, failure=None), "failure must be a number"),
        (lambda: nv.disagreement(report, labels, labels, models=2.5), "models must be an integer"),
        (lambda: nv.disagreement(report, labels, labels, models=True), "models must be an integer"),
        (lambda: nv.disagreement(report, labels, labels.astype(str)), "old model answers in words"),
        (lambda: nv.disagreement("runs/a", labels, labels), "a certificate.*not 'runs/a'"),
    ):
        with pytest.raises(BadInput, match=words):
            wrong()
    assert nv.disagreement(report, labels, labels).status == "valid"
    inherited = nv.disagreement(nv.evaluate(**call), labels, labels)
    assert inherited.status == "conditional"
    assert str(inherited).startswith("CONDITIONAL, as the certificate is: risk <= ")
    yes = nv.disagreement(report, labels.astype(bool), labels)
    assert yes.disagreements == 0, "true and 1 are one answer, as they are to evaluate"


def test_several_values_per_row_are_refused() -> None:
    table, column = np.zeros((6, 2), dtype=int), [0, 1] * 3
    report = nv.evaluate(predictions=column, labels=column, groups={"s": column}, unseen=True)
    for wrong in (
        lambda: nv.compare(column, column, column, groups={"s": table}),
        lambda: nv.compare(column, column, column, clusters=table),
        lambda: nv.disagreement(report, table, table),
        lambda: nv.monitor(0.1).update(table),
        lambda: nv.monitor(report, groups=True).update(column, groups={"s": table}),
    ):
        with pytest.raises(BadInput):
            wrong()


def test_a_promise_in_a_file_is_to_be_loaded() -> None:
    with pytest.raises(BadInput, match=r"read by nv\.Certificate\.load"):
        nv.monitor("runs/test")  # type: ignore[arg-type]


def test_no_sentence_is_certain() -> None:
    assert str(nv.plan(0.5, 0.1, confidence=1.0 - 1e-9)).endswith("(confidence 0.999999999)")
    call = {"predictions": [0] * 90, "labels": [0] * 90, "unseen": True}
    report = nv.evaluate(**call, confidence=1.0 - 1e-12)
    inherited = nv.disagreement(report, [0] * 90, [0] * 90, failure=1e-12)
    assert "with confidence 0.999999999998: they" in str(inherited)


def test_a_sorted_batch_is_no_order_of_arrival() -> None:
    """Ten errors in a hundred, errors first, were an alarm about a promise of .12."""
    errors = [1.0] * 10 + [0.0] * 90
    watch = nv.monitor(0.12)
    for batch in errors, errors[::-1], [0.9] * 4 + [0.2] * 60 + [0.1] * 50:
        with pytest.raises(BadInput, match=r"sorted.*generator\.permutation"):
            watch.update([*batch, None])
    assert watch.seen == watch.missing == 0
    for batch in np.random.default_rng(0).permutation(errors), [0] * 90, [1], [1, 0, 0], [0, 0, 1]:
        watch.update(batch)
    assert watch.seen == 197 and not watch.alarm
