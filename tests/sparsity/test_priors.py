"""Priors: which examples shape them, and that no other example does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nonvacuous.bounds.holdout import holdout
from nonvacuous.data import Examples, digits
from nonvacuous.errors import BadInput
from nonvacuous.kinds import prior_kind
from nonvacuous.sparsity.priors import make_prior, shifted_copies
from nonvacuous.sparsity.training import ChainTraining, chain_errors, unit_norm

BRIEF = ChainTraining(steps=60, batch_size=32)


@pytest.fixture(scope="module")
def train():
    return unit_norm(digits().train)


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5])
def test_a_learned_prior_has_examples_of_its_own(train, fraction):
    prior = make_prior(f"learned:{fraction}", train, (10,), settings=BRIEF, seed=0)
    assert not np.intersect1d(prior.split.prior, prior.split.bound).size
    assert len(prior.split.prior) + len(prior.bound) == len(train)
    assert len(prior.split.prior) == pytest.approx(fraction * len(train), abs=30)
    assert prior.errors == chain_errors(prior.center, prior.bound)
    assert prior.held_out_twin(failure=0.06) == holdout(
        errors=prior.errors, examples=len(prior.bound), failure=0.06
    )


def test_bound_examples_leave_no_trace_in_a_learned_prior(train):
    prior = make_prior("learned:0.2", train, (10,), settings=BRIEF, seed=0)
    inputs, labels = train.inputs.clone(), train.labels.clone()
    bound = torch.tensor(prior.split.bound)
    labels[bound] = (labels[bound] + 1) % 10
    changed = replace(train, inputs=inputs, labels=labels)
    again = make_prior("learned:0.2", changed, (10,), settings=BRIEF, seed=0)
    assert np.array_equal(again.split.prior, prior.split.prior)
    for mine, theirs in zip(prior.center, again.center, strict=True):
        assert torch.equal(mine, theirs)
    assert again.errors != prior.errors


def test_copies_stay_on_one_side(train):
    doubled = replace(
        train,
        inputs=torch.cat([train.inputs, train.inputs]),
        labels=torch.cat([train.labels, train.labels]),
    )
    prior = make_prior("learned:0.2", doubled, (6,), settings=BRIEF, seed=1)
    size = len(train)
    assert not np.intersect1d(prior.split.prior % size, prior.split.bound % size).size


def test_priors_that_saw_nothing_leave_everything_to_the_bound(train):
    zero = make_prior("zero", train, (8, 8), settings=BRIEF, seed=0)
    start = make_prior("initialization", train, (8, 8), settings=BRIEF, seed=0)
    for prior in (zero, start):
        assert len(prior.bound) == len(train) and prior.errors is None
        assert prior.held_out_twin(failure=0.05) is None
        assert not len(prior.split.prior)
    assert all(not matrix.any() for matrix in zero.center)
    for mine, theirs in zip(zero.start, start.center, strict=True):
        assert torch.equal(mine, theirs)


def test_moved_copies_are_the_images_moved(train):
    few = train.subset(np.arange(5))
    copies = shifted_copies(few, 1)
    assert len(copies) == 45 and torch.equal(copies.labels[:10], few.labels.repeat(2))
    assert torch.equal(shifted_copies(few, 0).inputs, few.inputs)
    for number, (down, right) in enumerate((d, r) for d in (1, 0, -1) for r in (1, 0, -1)):
        for index in range(5):
            image = few.inputs[index].reshape(8, 8)
            expected = torch.zeros(8, 8)
            for row in range(8):
                for column in range(8):
                    if 0 <= row + down < 8 and 0 <= column + right < 8:
                        expected[row + down, column + right] = image[row, column]
            expected = expected * (image.norm() / expected.norm())
            found = copies.inputs[5 * number + index].reshape(8, 8)
            assert torch.allclose(found, expected, atol=1e-6)
    with pytest.raises(BadInput, match="square images"):
        shifted_copies(replace(few, inputs=few.inputs[:, :63]), 1)


def test_learned_weights_are_taken_over(train):
    first = make_prior("learned:0.2", train, (6,), settings=BRIEF, seed=0)
    second = make_prior("learned:0.2", train, (6,), settings=BRIEF, seed=0, learned=first.center)
    assert second.errors == first.errors
    assert all(a is b for a, b in zip(second.center, first.center, strict=True))


@pytest.mark.parametrize("text", ["one", "learned", "learned:1", "learned:x", "zero:0.1", ""])
def test_unknown_priors(text):
    with pytest.raises(BadInput, match="prior"):
        prior_kind(text)


def test_short_names():
    assert prior_kind("init") == ("initialization", 0.0)
    assert prior_kind("learned:0.05") == ("learned", 0.05)


def test_copies_of_color_images_move_all_channels_alike_and_mirror():
    images = torch.arange(2 * 3 * 16.0).reshape(2, 3, 4, 4) + 1.0
    few = Examples(images.flatten(1), torch.tensor([0, 1]), ("a", "b"), "small")
    copies = shifted_copies(few, 1, mirrored=True)
    assert len(copies) == 2 * 9 * 2 and torch.equal(copies.labels[:4], torch.tensor([0, 1, 0, 1]))
    views = copies.inputs.reshape(18, 2, 3, 4, 4)
    # The ninth pair of copies is the one that is not moved; the first of a pair is not mirrored.
    assert torch.allclose(views[8], images) and torch.allclose(views[9], images.flip(3))
    scale = images[0].norm() / images[0, :, :3, :3].norm()
    assert torch.allclose(views[0, 0, :, 1:, 1:], images[0, :, :3, :3] * scale)
    assert torch.allclose(copies.inputs.norm(dim=1), few.inputs.norm(dim=1).repeat(18))
    only = shifted_copies(few, 0, mirrored=True)
    assert torch.allclose(only.inputs[2:].reshape(2, 3, 4, 4), images.flip(3))
