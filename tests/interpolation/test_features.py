from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from nonvacuous.errors import BadInput
from nonvacuous.interpolation import features as filters
from nonvacuous.interpolation.features import (
    Standardizer,
    _halves,
    accumulate_distances,
    features_of,
    gabor_features,
    gabor_filters,
    random_patches,
)


def images(count: int = 30, channels: int = 3, side: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(seed))


def test_gabor_filters():
    even, odd = gabor_filters(9, 2.0, 5.0, 8)
    assert even.shape == odd.shape == (8, 9, 9)
    for bank in (even, odd):
        assert torch.allclose(bank.sum((1, 2)), torch.zeros(8), atol=1e-5)
        assert torch.allclose(bank.square().sum((1, 2)), torch.ones(8), atol=1e-5)
    # Orientation 4 of 8 is a right angle: the same filter turned.
    assert torch.allclose(even[0].T, even[4], atol=1e-5)
    assert torch.allclose(even, even.flip(1, 2), atol=1e-6)
    assert torch.allclose(odd, -odd.flip(1, 2), atol=1e-6)


def test_gabor_features_by_hand(monkeypatch):
    for name, value in (("SCALES", ((5, 1.5, 4.0),)), ("ORIENTATIONS", 2), ("_IMAGES_AT_ONCE", 7)):
        monkeypatch.setattr(filters, name, value)
    x = images(10, 1, 8)
    found = gabor_features(x)
    assert found.shape == (10, 2 * 2 * 2)
    even, odd = gabor_filters(5, 1.5, 4.0, 2)
    padded = np.pad(x[3, 0].numpy(), 2)
    magnitude = np.zeros((2, 8, 8))
    for o in range(2):
        for i in range(8):
            for j in range(8):
                patch = padded[i : i + 5, j : j + 5]
                first = float((patch * even[o].numpy()).sum())
                second = float((patch * odd[o].numpy()).sum())
                magnitude[o, i, j] = math.hypot(first, second)
    expected = magnitude.reshape(2, 2, 4, 2, 4).mean((2, 4)).flatten()
    assert np.allclose(found[3], expected, atol=1e-5)


def test_gabor_answers_do_not_depend_on_brightness_or_phase():
    bank = gabor_features
    x = images(3, 1, 28)
    middle = bank(x).reshape(3, 2, 8, 7, 7)[..., 2:5, 2:5]
    brighter = bank(x + 0.5).reshape(3, 2, 8, 7, 7)[..., 2:5, 2:5]
    assert torch.allclose(middle, brighter, atol=1e-4)
    across = torch.arange(28) * (2 * math.pi / 5)
    waves = torch.stack([torch.cos(across + shift).expand(28, 28) for shift in (0.0, 1.0)])
    answers = bank(waves[:, None]).reshape(2, 2, 8, 7, 7)[..., 2:5, 2:5].mean((3, 4))
    assert torch.allclose(answers[0, 0, 0], answers[1, 0, 0], rtol=0.05)
    assert int(answers[0, 0].argmax()) == 0


def test_random_patches_by_hand():
    x = images(20)
    made = random_patches(x, filters=5, seed=1, sampled=500)
    found = made(x[:4])
    assert found.shape == (4, 4 * 10)
    side = 12 - 6 + 1
    answers = np.zeros((10, side, side))
    for i in range(side):
        for j in range(side):
            patch = x[2, :, i : i + 6, j : j + 6].numpy().flatten().astype(np.float64) * 255
            patch = patch - patch.mean()
            patch = patch / np.sqrt(patch @ patch / 107 + 10)
            z = patch @ made.weights.double().numpy() + made.offsets.double().numpy()
            answers[:5, i, j] = np.maximum(z - 0.25, 0)
            answers[5:, i, j] = np.maximum(-z - 0.25, 0)
    quarters = [answers[:, a : a + 4, b : b + 4].sum((1, 2)) for a in (0, 3) for b in (0, 3)]
    assert np.allclose(found[2], np.concatenate(quarters), rtol=1e-3, atol=1e-3)


def test_quarters_are_those_of_the_paper():
    assert _halves(27) == (slice(0, 14), slice(13, 27))
    for length in range(1, 40):
        covered = {i for part in _halves(length) for i in range(length)[part]}
        assert covered == set(range(length))


def test_whitened_filters_have_unit_norm_and_the_seed_decides():
    x = images(20)
    one, same, other = (random_patches(x, filters=8, seed=s, sampled=400) for s in (1, 1, 2))
    assert torch.equal(one.weights, same.weights)
    assert not torch.equal(one.weights, other.weights)


def test_chunks_of_filters_are_the_whole():
    x = images(6)
    made = random_patches(x, filters=7, sampled=300)
    parts = [part for _, part in made.chunks(x, filters=3)]
    assert [part.shape[1] for part in parts] == [24, 24, 8]
    assert [done for done, _ in made.chunks(x, filters=3)] == [3, 6, 7]


def test_distances_accumulate_over_chunks():
    features = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * 3 + 1
    features[:, 7] = 2.5
    among, across, counted = accumulate_distances(features.split(16, dim=1), train=35)
    standard = Standardizer(features[:35])(features).half().double()
    expected = torch.cdist(standard, standard[:35]).square()
    assert counted == 39
    assert torch.allclose(among.double(), expected[:35], atol=1e-3)
    assert torch.allclose(across.double(), expected[35:], atol=1e-3)
    assert torch.equal(among, among.T)
    assert not among.diagonal().any()
    with pytest.raises(BadInput, match="no features"):
        accumulate_distances([], train=3)


def test_a_constant_feature_becomes_zero():
    features = torch.tensor([[1.0, 0.1], [3.0, 0.1]])
    found = Standardizer(features)
    assert found.varying == 1
    assert torch.allclose(found(features), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))


def test_features_by_name():
    x = images(12, 1, 8)
    raw = features_of("raw", x, x[:3])
    assert torch.equal(raw.train, x.reshape(12, -1)) and raw.test.shape == (3, 64)
    x[:, :, 0, 0] = 0.5
    assert features_of("raw", x).constant == 1
    assert features_of("raw", x).test is None
    patches = features_of("patches:4", x)
    assert patches.train.shape == (12, 32)
    assert torch.allclose(patches.train.mean(0), torch.zeros(32), atol=1e-5)
    assert features_of("gabor", x).train.shape == (12, 64)


@pytest.mark.parametrize(
    ("spec", "inputs", "message"),
    [
        ("wavelets", images(), "there are no features 'wavelets'"),
        ("raw:3", images(), "take no number"),
        ("gabor", images().flatten(1), "needs images"),
        ("gabor", images(side=3), "at least as large"),
        ("patches:10", images(side=6), "larger than that"),
        ("patches:0", images(), "filters must be between"),
        ("patches:10", torch.full((5, 1, 9, 9), 0.5), "almost constant"),
    ],
)
def test_bad_features(spec, inputs, message):
    with pytest.raises(BadInput, match=message):
        features_of(spec, inputs)
