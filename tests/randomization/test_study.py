"""The paired test on built-in networks: what it finds in worlds where the answer is known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.randomization import StudySettings, study
from nonvacuous.randomization.conditions import standardized
from nonvacuous.randomization.learners import Outcome
from nonvacuous.randomization.regularization import switch_batch_norm
from tests.randomization.study_worlds import SMALL, build, clouds

#: Networks are trained for them, once for all.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return study("mlp:48,48", clouds(), settings=SMALL)


def test_it_learns_and_could_have_memorized(result):
    true, random = result.condition("true"), result.condition("random-labels")
    assert true.train_error.value == random.train_error.value == 0
    assert true.test_error.high < 0.2
    assert random.test_error.low < 0.8 < random.test_error.high
    assert random.gap.low > true.gap.high
    assert random.fitting == "fit"
    assert random.relative_time.value > 1
    names = {finding.name for finding in result.findings}
    assert {"it can memorize", "it learns", "no leak", "nothing but the data changed"} <= names
    assert not result.problems
    assert result.permutations.p_value == pytest.approx(0.05)


def test_shuffled_pixels_are_as_good_as_true_ones_for_a_perceptron(result):
    shuffled = result.condition("shuffled-pixels")
    assert shuffled.test_error.high < 0.25
    assert result.condition("gaussian").test_error.low > 0.5


def test_nothing_but_the_data_changed(result):
    assert result.configuration is not None
    for seed in range(SMALL.seeds):
        outcomes = [entry.outcomes[seed] for entry in result.conditions]
        assert len({outcome.configuration for outcome in outcomes}) == 1
        assert len({outcome.data for outcome in outcomes}) == len(outcomes)
    seeds = {outcome.configuration for outcome in result.conditions[0].outcomes}
    assert len(seeds) == SMALL.seeds


def test_clean_examples_run_ahead_of_corrupted_ones(result):
    half = result.condition("partial:0.5")
    for outcome in half.outcomes:
        corrupted = outcome.corrupted_examples
        assert 0 < corrupted < outcome.train_examples
        early = outcome.curve[2]
        assert early.clean_errors + early.corrupted_errors == early.train_errors
        kept = outcome.train_examples - corrupted
        assert early.clean_errors / kept < early.corrupted_errors / corrupted
    assert all(outcome.curve[-1].epoch == SMALL.epochs for outcome in half.outcomes)


def test_random_signs_are_fitted(result):
    assert result.rademacher.complexity.value == pytest.approx(1, abs=0.05)
    assert result.rademacher.is_vacuous
    assert any("VC dimension" in line[0] for line in result.capacity.lines)


def test_the_record_is_plain_json(result):
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["format"] == "nonvacuous-randomization-study/1"
    assert record["permutations"]["p_value"] == pytest.approx(0.05)
    stored = record["conditions"][0]["outcomes"][0]
    assert TypeAdapter(Outcome).validate_python(stored) == result.conditions[0].outcomes[0]
    assert TypeAdapter(StudySettings).validate_python(record["settings"]) == SMALL


def test_the_same_seed_gives_the_same_study(result):
    settings = SMALL.changed(conditions=("true", "random-labels"), permutations=0, sign_vectors=0)
    again = study("mlp:48,48", clouds(), settings=settings)
    for name in ("true", "random-labels"):
        for mine, theirs in zip(
            again.condition(name).outcomes, result.condition(name).outcomes, strict=True
        ):
            assert (mine.data, mine.configuration) == (theirs.data, theirs.configuration)
            assert abs(mine.test_errors - theirs.test_errors) <= 1


def quick(**changes):
    return SMALL.changed(
        **{"conditions": ("true", "random-labels"), "permutations": 0, "sign_vectors": 0} | changes
    )


def test_running_out_of_epochs_is_not_running_out_of_learning_rate():
    few = study("mlp:8", clouds(), settings=quick(epochs=2, seeds=1, rate_decay=0.97))
    assert few.condition("random-labels").fitting == "did not fit"
    spent = study("mlp:8", clouds(), settings=quick(epochs=12, seeds=1, rate_decay=0.5))
    assert spent.condition("random-labels").fitting == "learning rate exhausted"
    texts = {f.name: f.text for f in spent.findings}
    assert "had fallen to nothing" in texts["not fitted (learning rate exhausted)"]
    assert spent.condition("random-labels").relative_time is None


def test_test_examples_in_the_training_set_are_found():
    dataset = clouds()
    train = replace(
        dataset.train,
        inputs=torch.cat([dataset.train.inputs, dataset.test.inputs[:40]]),
        labels=torch.cat([dataset.train.labels, dataset.test.labels[:40]]),
    )
    found = study("mlp:32", Dataset(train, dataset.test), settings=quick(epochs=10))
    assert found.leak.duplicates == 40
    assert [problem.name for problem in found.problems] == ["test examples occur in training"]


def test_a_test_part_is_split_off_where_there_is_none():
    found = study("mlp:8", Dataset(clouds(200).train), settings=quick(epochs=2, seeds=1))
    assert (found.examples, found.test_examples) == (160, 40)


def test_certificates_promise_nothing_on_random_labels():
    settings = quick(certificates=True, seeds=1, epochs=5, certificate_trials=2_000)
    found = study("mlp:32", clouds(600), settings=settings)
    true, random = found.certificates
    assert true.risk_upper is not None, true.reason
    assert true.risk_upper < 0.5 < random.floor <= random.risk_upper
    assert random.verdict == "promises nothing"
    assert "the certificate tells them apart" in {finding.name for finding in found.findings}


def test_the_regularization_matrix():
    settings = quick(regularization=True, seeds=1, epochs=40)
    found = study("mlp:48,48", clouds(), settings=settings)
    rows = {row.name: row for row in found.regularization}
    assert set(rows) == {
        "none",
        "early stopping",
        "weight decay",
        "dropout",
        "random crops",
        "batch normalization",
    }
    assert rows["random crops"].note == "the inputs are not images"
    for name in ("none", "weight decay", "batch normalization"):
        assert max(rows[name].true_test) < 0.25
        assert max(rows[name].random_train) < 0.1
    assert rows["early stopping"].true_test <= rows["none"].true_test


def test_batch_normalization_is_put_in_and_taken_out():
    module = build().eval()
    switched, how = switch_batch_norm(module)
    assert how == "batch normalization"
    assert [type(layer).__name__ for layer in switched] == [
        "Linear",
        "BatchNorm1d",
        "ReLU",
        "Linear",
    ]
    assert len(list(module)) == 3
    back, how = switch_batch_norm(switched)
    assert how == "no batch normalization"
    inputs = torch.randn(4, 12)
    assert torch.equal(back.eval()(inputs), module(inputs))
    assert switch_batch_norm(nn.Linear(3, 2))[0] is None
    with pytest.warns(FutureWarning, match="weight_norm"):
        computed = nn.utils.weight_norm(nn.Linear(3, 2))
    assert switch_batch_norm(nn.Sequential(computed, nn.ReLU()))[0] is not None
    norm = nn.BatchNorm1d(3)
    without, _ = switch_batch_norm(nn.Sequential(norm, nn.ReLU(), norm))
    assert not any(isinstance(layer, nn.BatchNorm1d) for layer in without.modules())


def test_a_study_goes_on_where_it_was_killed(tmp_path):
    class Killed(Exception):
        pass

    settings = quick(seeds=2, epochs=3, permutations=2)

    def kill(phase, done, total, message):
        if message.startswith("training (permutations)"):
            raise Killed

    with pytest.raises(Killed):
        study("mlp:8", clouds(), settings=settings, folder=tmp_path / "s", progress=kill)
    parts = {path.name: path.read_bytes() for path in (tmp_path / "s" / "parts").glob("*.json")}
    assert set(parts) == {"seed-0.json", "seed-1.json"}
    with pytest.raises(BadInput, match="holds a study already"):
        study("mlp:8", clouds(), settings=settings, folder=tmp_path / "s")
    with pytest.raises(BadInput, match=r"other settings \(epochs\)"):
        other = settings.changed(epochs=4)
        study("mlp:8", clouds(), settings=other, folder=tmp_path / "s", resume=True)
    resumed = study("mlp:8", clouds(), settings=settings, folder=tmp_path / "s", resume=True)
    for name, content in parts.items():
        assert (tmp_path / "s" / "parts" / name).read_bytes() == content
    whole = study("mlp:8", clouds(), settings=settings)
    assert resumed.permutations == whole.permutations
    assert not list((tmp_path / "s" / "parts").glob("*.checkpoint*"))


def test_progress_ends_at_the_whole():
    told = []
    settings = quick(seeds=1, epochs=2, permutations=3)
    study("mlp:8", clouds(), settings=settings, progress=lambda *words: told.append(words))
    dones = [done for _, done, _, _ in told]
    assert dones == sorted(dones)
    assert told[-1][1] == told[-1][2] == 500


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": ("true", "nonsense")}, "nonsense"),
        ({"conditions": ("true", "true")}, "twice"),
        ({"seeds": 0}, "seeds"),
        ({"confidence": 1.0}, "confidence"),
        ({"rate_decay": 1.5}, "rate_decay"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(BadInput, match=message):
        SMALL.changed(**changes)


def test_true_and_random_labels_are_always_there():
    assert StudySettings(conditions=("gaussian",)).conditions == (
        "true",
        "gaussian",
        "random-labels",
    )


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_inputs_in_any_unit_are_standardized(unit):
    train = clouds().train
    inputs = standardized(Dataset(replace(train, inputs=train.inputs * unit))).train.inputs
    torch.testing.assert_close(inputs, standardized(clouds()).train.inputs)


def test_networks_that_do_not_fit():
    with pytest.raises(BadInput, match="give a function that builds one"):
        study(build(), clouds(), settings=quick())
    with pytest.raises(BadInput, match="cannot take inputs of shape"):
        study(lambda: nn.Linear(3, 5), clouds(), settings=quick())
    with pytest.raises(BadInput, match="a classifier of 5 classes must give"):
        study(lambda: nn.Linear(12, 4), clouds(), settings=quick())
    with pytest.raises(BadInput, match="returned a int"):
        study(lambda: 3, clouds(), settings=quick())
    with pytest.raises(BadInput, match="all inputs are the same number"):
        flat = replace(clouds().train, inputs=torch.ones(120, 12))
        study("mlp:4", Dataset(flat, clouds().test), settings=quick())
