"""compare, plan, monitor and disagreement."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous import bounds
from nonvacuous.errors import BadInput

from .worlds import classes


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
    assert result.better is None and "more examples would" in result.verdict
    same = nv.compare(first, first, labels)
    assert same.verdict == "not told apart" and same.p_value == 1.0


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
    with pytest.raises(BadInput, match="curve"):
        nv.plan(0.1, 0.05, labeled=4000)


# ----------------------------------------------------------------------------- monitor


def test_single_and_batch_updates_agree() -> None:
    losses = (np.random.default_rng(0).random(5000) < 0.08).astype(float)
    one, many = nv.monitor(0.05), nv.monitor(0.05).update(losses)
    for loss in losses.tolist():
        one.update(loss)
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
    watch.update([0, None, 1], groups=["site=A", "site=A", "site=B"])
    assert watch.missing == 1 and watch.seen == 2
    watch.update([1] * 60, groups=["site=B"] * 60)
    assert "site=B" in watch.alarms and "site=A" not in watch.alarms
    with pytest.raises(BadInput, match="not watched"):
        watch.update([1], groups=["site=Z"])
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        watch.update([2.0])


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
