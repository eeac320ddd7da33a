"""The verdict on a measure, in worlds where the right one is known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from nonvacuous.measures.correlation_summary import QUANTILES, Court, Standing
from tests.measures.correlation_worlds import world

TRIALS = world(
    levels={"width": 3, "rate": 3, "noise": 2, "decay": 2},
    effects={"width": 0.05, "noise": 0.1, "rate": 0.03, "decay": 0.04},
    repetitions=3,
    noise=0.004,
)
COURT = Court(TRIALS, draws=200, information_draws=30)
GENERATOR = np.random.default_rng(5)


def test_the_gap_itself() -> None:
    found = COURT.judge("gap", TRIALS.gaps)
    assert found.verdict == "predicts"
    assert found.tau.value == found.tau.low == found.tau.high == pytest.approx(1.0)
    assert found.granulated_mean.value == 1.0
    assert found.sign_error.value == found.worst_error.value == 0.0
    assert found.sign_errors == (0.0,) * len(QUANTILES)
    assert found.information.value == pytest.approx(1.0)


@pytest.mark.slow
def test_random_numbers_say_nothing_within_their_intervals() -> None:
    verdicts = []
    for _ in range(20):
        found = COURT.judge("random", GENERATOR.normal(size=len(TRIALS)))
        verdicts.append(found.verdict)
        assert abs(found.tau.value) < 0.25
        assert 0.3 < found.sign_error.value < 0.7
        assert found.information.value < 0.03
    assert verdicts.count("nothing") >= 14
    assert verdicts.count("predicts") <= 2


@pytest.mark.slow
def test_intervals_of_random_numbers_cover_nothing_as_often_as_they_say() -> None:
    mean, one_axis, wrong, worlds = 0, 0, 0, 150
    for seed in range(worlds):
        trials = world(effects={"noise": 0.01}, repetitions=1, seed=seed)
        found = Court(trials, draws=100, information_draws=10, beyond=0.0, seed=seed)
        measure = np.random.default_rng(seed + 1000).normal(size=len(trials))
        each, whole = found._granulated(measure).values()
        error = found._sign_errors(measure)["sign_error"]
        mean += whole.low <= 0 <= whole.high
        one_axis += each["rate"].low <= 0 <= each["rate"].high
        wrong += error.low <= 0.5 <= error.high
    # 95 of 100, and rather more than less.
    for covered in (mean, one_axis, wrong):
        assert covered >= 0.91 * worlds


def test_the_opposite_is_inverted() -> None:
    found = COURT.judge("opposite", -TRIALS.gaps)
    assert found.verdict == "inverted"
    assert found.sign_error.value == 1.0
    # Information is not about the direction.
    assert found.information.value == pytest.approx(1.0)


def test_one_hyper_parameter_alone_is_no_prediction_of_the_others() -> None:
    measure = TRIALS.axes["noise"] + 1e-6 * GENERATOR.normal(size=len(TRIALS))
    found = COURT.judge("noise level", measure)
    assert found.tau.low > 0
    assert found.granulated["noise"].value > 0.95
    for axis in ("width", "rate", "decay"):
        assert abs(found.granulated[axis].value) < 0.4
    assert found.worst[0] != "noise"
    assert found.worst_error.value > 0.4
    assert found.information.value < 0.03
    assert "noise" in found.information_given


def test_right_on_the_whole_but_inverted_for_one_change_is_in_part_only() -> None:
    found = COURT.judge("mixed", TRIALS.gaps - 0.08 * TRIALS.axes["rate"])
    assert found.tau.low > 0
    assert found.granulated_mean.low > 0
    assert found.inverted_for == ("rate",)
    assert found.verdict == "in part"
    assert found.worst[0] == "rate"


def test_better_measures_stand_higher() -> None:
    noise = GENERATOR.normal(size=len(TRIALS))
    values = [
        COURT.judge("mixed", TRIALS.gaps + spread * noise).granulated_mean.value
        for spread in (0.01, 0.05, 0.2)
    ]
    assert values == sorted(values, reverse=True)


def test_the_record_survives_a_file() -> None:
    found = COURT.judge("mixed", TRIALS.gaps + 0.05 * GENERATOR.normal(size=len(TRIALS)))
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert TypeAdapter(Standing).validate_python(record) == found


def test_other_gaps_can_be_asked_about() -> None:
    other = GENERATOR.normal(size=len(TRIALS))
    found = COURT.tau(other, gaps=other)
    assert found.value == pytest.approx(1.0)
    assert abs(COURT.tau(other).value) < 0.25
