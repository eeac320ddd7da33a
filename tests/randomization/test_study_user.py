"""Training functions of users: honest ones, broken ones, and ones that cheat."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from nonvacuous.errors import BadInput
from nonvacuous.randomization import study
from nonvacuous.training.user_training import call
from tests.randomization.study_worlds import SMALL, build, clouds, fit, fit_quietly

QUICK = SMALL.changed(
    conditions=("true", "partial:0.5", "random-labels"), permutations=0, sign_vectors=1
)


def run(train, **changes):
    return study(build, clouds(), train=train, settings=QUICK.changed(**changes))


@pytest.mark.slow
def test_an_honest_function_with_learning_curves():
    found = run(fit)
    assert not found.problems
    assert found.configuration is not None
    assert found.trained_by == "fit"
    true, noisy = found.condition("true"), found.condition("random-labels")
    assert true.test_error.value < 0.15 < noisy.test_error.low
    for outcome in true.outcomes:
        assert len(outcome.curve) == outcome.epochs == 25
        first_fit = next(p.epoch for p in outcome.curve if p.train_errors == 0)
        assert outcome.fit_epoch == first_fit
        assert outcome.curve[-1].train_errors == outcome.train_errors
        assert outcome.curve[-1].test_errors == outcome.test_errors
    assert found.condition("partial:0.5").outcomes[0].curve[0].clean_errors is not None


@pytest.mark.slow
def test_a_function_that_only_returns_the_model_gives_the_same_network():
    watched, quiet = run(fit, seeds=1), run(fit_quietly, seeds=1)
    for name in ("true", "random-labels"):
        ours, theirs = (found.condition(name).outcomes[0] for found in (watched, quiet))
        assert ours.answers == theirs.answers
        assert theirs.curve == () and theirs.epochs is None
        if theirs.train_errors:
            assert theirs.fitting == "errors left"
    assert quiet.condition("true").relative_time is None


@pytest.mark.slow
def test_a_function_that_has_the_true_labels_from_elsewhere():
    true = clouds().train.labels
    found = run(lambda model, inputs, labels, *, seed: fit_quietly(model, inputs, true, seed=seed))
    names = [problem.name for problem in found.problems]
    assert names[0] == "the labels given are ignored"
    assert "exactly alike" in found.problems[0].text
    assert "it can memorize" not in {finding.name for finding in found.findings}


@pytest.mark.slow
def test_a_function_that_mixes_in_the_true_labels():
    true = clouds().train.labels

    def cheat(model, inputs, labels, *, seed):
        mixed = torch.where(torch.arange(len(labels)) % 10 > 0, true, labels)
        return fit_quietly(model, inputs, mixed, seed=seed)

    problem = run(cheat).problems[0]
    assert problem.name == "the labels given are ignored"
    assert "has the true labels from somewhere else" in problem.text


@pytest.mark.slow
def test_a_function_that_learns_from_the_test_set_is_caught():
    test = clouds().test

    def cheat(model, inputs, labels, *, seed):
        inputs, labels = torch.cat([inputs, test.inputs]), torch.cat([labels, test.labels])
        for trained in fit(model, inputs, labels, seed=seed, epochs=60):
            model = trained
        return model

    found = run(cheat)
    assert [problem.name for problem in found.problems] == ["the test set has leaked"]
    assert found.leak.chance.p_value < 1e-3
    assert found.leak.duplicates == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_honest_functions_are_not_accused(seed):
    found = run(fit_quietly, seed=10 * seed, sign_vectors=0)
    assert not found.problems


def test_layers_that_a_function_froze_stay_frozen_while_it_is_watched():
    modes = []

    def train(model, inputs, labels, *, seed):
        model.train()
        model[0].eval()
        for _ in range(2):
            yield model
            modes.append([part.training for part in model])

    network = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    given = network, torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)
    call(train, *given, seed=0, name="train", watch=lambda network: network.eval())
    assert modes == [[False, True]] * 2


def in_place_inputs(model, inputs, labels, *, seed):
    inputs -= inputs.mean()
    return fit_quietly(model, inputs, labels, seed=seed)


def in_place_labels(model, inputs, labels, *, seed):
    labels[0] = (labels[0] + 1) % 5
    return model


def returns_nothing(model, inputs, labels, *, seed):
    fit_quietly(model, inputs, labels, seed=seed)


def returns_a_pair(model, inputs, labels, *, seed):
    return model, {"loss": 0.1}


def yields_losses(model, inputs, labels, *, seed):
    yield 0.3


def yields_never(model, inputs, labels, *, seed):
    yield from ()


def raises(model, inputs, labels, *, seed):
    return cross_entropy(model(inputs), labels.float())


def other_outputs(model, inputs, labels, *, seed):
    return nn.Linear(12, 2)


def too_few(model, data, *, seed):
    return model


def no_seed(model, inputs, labels):
    return model


def one_more(model, inputs, labels, epochs, *, seed):
    return model


async def asynchronous(model, inputs, labels, *, seed):
    return model


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (in_place_inputs, "changed the inputs it was given, in place"),
        (in_place_labels, "changed the labels it was given, in place"),
        (returns_nothing, "returned nothing.*return model"),
        (returns_a_pair, "returned a tuple.*return the network alone"),
        (yields_losses, "returned a float"),
        (yields_never, "returned nothing"),
        (raises, r"raised RuntimeError: .*line \d+.*whole-number labels"),
        (other_outputs, "one score for each of the 5 classes"),
        (too_few, r"too_few\(model, data, \*, seed\) cannot be called"),
        (no_seed, "unexpected keyword argument 'seed'"),
        (one_more, "missing a required argument: 'epochs'"),
        (asynchronous, "asynchronous"),
        (3, "is a int, not a function"),
    ],
)
def test_functions_that_cannot_be_used(train, message):
    with pytest.raises(BadInput, match=message):
        run(train, seeds=1)


def test_lazy_layers_are_refused_before_anything_is_trained():
    with pytest.raises(BadInput, match="lazy layers"):
        study(lambda: nn.LazyLinear(5), clouds(), train=raises, settings=QUICK)


@pytest.mark.slow
def test_arguments_may_be_more_general_than_asked_for():
    def train(*arguments, **options):
        return fit_quietly(*arguments, **options)

    assert run(train, seeds=1, sign_vectors=0).condition("true").train_error.value < 0.05


def test_global_randomness_is_seeded_and_given_back():
    drawn = []

    def train(model, inputs, labels, *, seed):
        drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
        return model

    random.seed(5)
    before = random.getstate()
    run(train, seeds=2, sign_vectors=0)
    assert random.getstate() == before
    # Three conditions: the same numbers in each, others for the other seed.
    assert len(set(drawn)) == 2
    assert drawn[:3] == drawn[:1] * 3


@pytest.mark.slow
def test_a_model_that_is_not_the_same_twice_is_noticed():
    generator = torch.Generator().manual_seed(0)

    def restless():
        module = build()
        with torch.no_grad():
            module[0].bias.copy_(torch.randn(32, generator=generator))
        return module

    found = study(restless, clouds(), train=fit_quietly, settings=QUICK.changed(seeds=1))
    assert found.configuration is None
    assert "something else changed" in [problem.name for problem in found.problems]


def test_every_network_is_kept_by_itself(tmp_path):
    calls = []

    def train(model, inputs, labels, *, seed):
        calls.append(seed)
        if len(calls) == 3:
            raise RuntimeError("power cut")
        return model

    where = {"folder": tmp_path / "s", "settings": QUICK.changed(seeds=1, sign_vectors=0)}
    with pytest.raises(BadInput, match="power cut"):
        study(build, clouds(), train=train, **where)
    study(build, clouds(), train=train, resume=True, **where)
    assert len(calls) == 4


def test_regularizers_are_inside_the_function():
    with pytest.raises(BadInput, match="Leave one of them out"):
        run(fit, regularization=True)
