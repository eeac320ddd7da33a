"""Tests in worlds with known risks: ten thousand of each, false claims counted against delta."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import nonvacuous as nv
from nonvacuous import bounds
from nonvacuous.evaluation.tally import Tally
from nonvacuous.evaluation_records import Evaluation
from tests.validity.test_bounds_coverage import WORLDS, assert_covered, in_every_world

FAILURE = 0.1


def test_groups_all_at_once_and_the_worst_group() -> None:
    generator = np.random.default_rng(0)
    sizes, risks = np.array([30, 60, 90, 40]), np.array([0.3, 0.1, 0.05, 0.29])
    counts = generator.binomial(sizes, risks, size=(WORLDS, 4))
    together = np.zeros(WORLDS, dtype=bool)
    worst = np.zeros(WORLDS)
    for g in range(4):
        for share, joint in ((FAILURE / 4, True), (FAILURE, False)):
            ends = in_every_world(
                lambda errors, g=g, share=share: bounds.holdout(
                    errors=int(errors), examples=int(sizes[g]), failure=share
                ),
                errors=counts[:, g],
            )
            if joint:
                together |= ends < risks[g]
            else:
                worst = np.maximum(worst, ends)
    assert_covered(together, FAILURE)
    assert_covered(worst < risks.max(), FAILURE)


def test_the_worst_group_that_happens_to_occur_is_not_the_worst_group() -> None:
    """Of two columns, one with all errors in a rare group: exactly counted."""
    size, share, risk, failure = 300, 3.2 / 300, 0.9501, 0.05
    ends = [bounds.holdout(errors=k, examples=size, failure=failure) for k in range(40)]
    rare = occurring = 0.0
    for n in range(40):
        chance = stats.binom.pmf(n, size, share)
        if n == 0:
            occurring += chance * (ends[0] < share * risk)  # of everybody
        for k in range(n + 1) if n else ():
            own = bounds.holdout(errors=k, examples=n, failure=failure)
            rare += chance * stats.binom.pmf(k, n, risk) * (max(own, ends[k]) < risk)
    assert rare <= failure < rare + occurring
    assert round(rare + occurring, 3) == 0.057


def test_f1_and_balanced_error() -> None:
    generator = np.random.default_rng(1)
    hit, other = 0.4, 0.1
    draws = generator.multinomial(60, [hit, other, 1 - hit - other], size=WORLDS)
    lower = in_every_world(
        lambda hits, relevant: bounds.f1_lower(
            hits=int(hits), relevant=int(relevant), failure=FAILURE
        ),
        hits=draws[:, 0],
        relevant=draws[:, 0] + draws[:, 1],
    )
    rho = hit / (hit + other)
    assert_covered(lower > 2 * rho / (1 + rho), FAILURE)
    sizes, risks = (40, 25), np.array([0.1, 0.2])
    counts = generator.binomial(sizes, risks, size=(WORLDS, 2))
    tilt = bounds.balanced_tilt(examples=sizes, failure=FAILURE)
    for bound in (
        lambda a, b: bounds.balanced(errors=(int(a), int(b)), examples=sizes, failure=FAILURE),
        lambda a, b: bounds.balanced_tilted(
            errors=(int(a), int(b)), examples=sizes, tilt=tilt, failure=FAILURE
        ),
    ):
        ends = in_every_world(bound, a=counts[:, 0], b=counts[:, 1])
        assert_covered(ends < risks.mean(), FAILURE)


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.2, 0.02), (0.03, 0.0)])
def test_paired_differences(rates: tuple[float, float]) -> None:
    generator = np.random.default_rng(2)
    draws = generator.multinomial(40, [*rates, 1 - sum(rates)], size=WORLDS)
    lower = in_every_world(
        lambda wins, losses: bounds.paired_lower(
            wins=int(wins), losses=int(losses), examples=40, failure=FAILURE
        ),
        wins=draws[:, 0],
        losses=draws[:, 1],
    )
    assert_covered(lower > rates[0] - rates[1] + 1e-12, FAILURE)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["beta", "rare", "clusters"])
def test_betting(shape: str) -> None:
    generator = np.random.default_rng(3)
    if shape == "beta":
        losses, mean = generator.beta(0.5, 2.0, size=(WORLDS, 40)), 0.2
    elif shape == "rare":
        losses, mean = (generator.random((WORLDS, 40)) < 0.05) * 0.9, 0.045
    else:
        losses, mean = generator.binomial(3, 0.1, size=(WORLDS, 40)) / 3, 0.1
    ends = np.array([bounds.betting(sample, failure=FAILURE) for sample in losses])
    assert_covered(ends < mean, FAILURE)


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.2, 0.8)])
def test_a_sorted_file_of_two_values_is_not_bet_on_alone(values: tuple[float, float]) -> None:
    """Of sorted losses with two values each count has one order for ever: all are counted."""
    size, (low, high) = 60, np.array(values)
    ends, counts = np.ones((2, size + 1)), np.arange(size + 1)
    for count in counts:
        losses = np.repeat([low, high], [size - count, count])
        tally = Tally(Evaluation(metric="loss"))
        tally.add({"losses": losses})
        sample = tally.sample()
        ends[:, count] = sample.upper(FAILURE), 1.0 - sample.lower(FAILURE)
    for chance in np.linspace(0.01, 0.99, 99):
        mean = low + (high - low) * chance
        weights = stats.binom.pmf(counts, size, chance)
        assert weights[ends[0] < mean].sum() <= FAILURE
        assert weights[ends[1] < 1.0 - mean].sum() <= FAILURE


def test_a_learner_that_stops_when_lucky_does_not_fool_the_progressive_bounds() -> None:
    """Two batches: after a lucky first one the second checkpoint is bad on purpose."""
    generator = np.random.default_rng(4)
    half, good, bad = 50, 0.1, 0.5
    first = generator.binomial(half, good, WORLDS)
    second_risk = np.where(first <= 2, bad, good)
    errors = first + generator.binomial(half, second_risk)
    mean = (good + second_risk) / 2
    ends = in_every_world(
        lambda errors: bounds.progressive(
            errors=int(errors), trials=2 * half, tilt=0.7, failure=FAILURE
        ),
        errors=errors,
    )
    assert_covered(ends < mean, FAILURE)
    threshold = 0.3
    gate = in_every_world(
        lambda errors: bounds.gate_failure(
            errors=int(errors), trials=2 * half, threshold=threshold
        ),
        errors=errors,
    )
    assert_covered((gate <= FAILURE) & (mean >= threshold), FAILURE)


@pytest.mark.slow
def test_whole_reports_are_rarely_false() -> None:
    """Through the front door: promise, lower end and constant answer of 10,000 reports."""
    generator = np.random.default_rng(5)
    size, share, risk = 24, 0.7, 0.3
    reports: dict[tuple[int, ...], tuple[float, float, float]] = {}
    false = np.zeros((3, WORLDS), dtype=bool)
    for world in range(WORLDS):
        labels = (generator.random(size) > share).astype(int)
        predictions = np.where(generator.random(size) < risk, 1 - labels, labels)
        key = tuple(np.bincount(2 * labels + predictions, minlength=4).tolist())
        if key not in reports:
            report = nv.evaluate(
                predictions=predictions, labels=labels, confidence=1 - FAILURE, unseen=True,
                settings={"classes": (0, 1)},
            )  # fmt: skip
            reports[key] = report.risk_upper, report.risk_lower, report.baseline.margin_lower
        upper, lower, margin = reports[key]
        false[:, world] = upper < risk, lower > risk, margin > (1 - share) - risk + 1e-12
    for claims in false:
        assert_covered(claims, FAILURE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worlds", "looks"),
    [(1_000, 10_000), pytest.param(10_000, 100_000, marks=pytest.mark.nightly)],
)
def test_a_monitor_looked_at_all_the_time_is_rarely_false(worlds: int, looks: int) -> None:
    """Thousands of looks each, at the promise exactly: alarms at most alpha."""
    alpha = 0.1
    generator = np.random.default_rng(6)
    alarms = 0
    for _ in range(worlds):
        watch = nv.monitor(0.05, false_alarm=alpha)
        alarms += watch.update((generator.random(looks) < 0.05).astype(float)).alarm
    assert stats.binom.sf(alarms - 1, worlds, alpha) >= 1e-4, f"{alarms} of {worlds}"
    # It is not silent either: a test of this kind that never fires shows nothing.
    fired = sum(
        nv.monitor(0.05, false_alarm=alpha).update(generator.random(5000) < 0.08).alarm
        for _ in range(20)
    )
    assert fired >= 19


@pytest.mark.slow
def test_the_sequence_is_rarely_false_while_the_risk_wanders() -> None:
    generator = np.random.default_rng(7)
    steps, worlds = 300, WORLDS // 10
    risks = 0.2 + 0.15 * np.sin(np.arange(steps) / 20.0)
    mean = np.cumsum(risks) / np.arange(1, steps + 1)
    errors = np.cumsum(generator.random((worlds, steps)) < risks, axis=1)
    ends: dict[tuple[int, int], tuple[float, float]] = {}
    false = 0
    looks = range(9, steps, 10)
    for path in errors:
        for t in looks:
            key = (int(path[t]), t + 1)
            if key not in ends:
                call = {"errors": key[0], "trials": key[1], "failure": FAILURE / 2}
                ends[key] = bounds.sequence_lower(**call), bounds.sequence_upper(**call)
            low, high = ends[key]
            if not low <= mean[t] <= high:
                false += 1
                break
    assert stats.binom.sf(false - 1, worlds, FAILURE) >= 1e-4
