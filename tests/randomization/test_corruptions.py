from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nonvacuous.data import Dataset, Examples, digits
from nonvacuous.errors import BadInput
from nonvacuous.randomization import (
    CORRUPTIONS,
    CorruptedDataset,
    Setting,
    corrupt,
    corruption_findings,
    parse_corruption,
    register_corruption,
)
from tests.examples import some


def world(count: int = 60, shape: tuple[int, ...] = (3, 5, 4), classes: int = 4) -> Dataset:
    generator = torch.Generator().manual_seed(0)

    def part(size: int) -> Examples:
        inputs = torch.randn((size, *shape), generator=generator) * 2 + 1
        labels = torch.randint(classes, (size,), generator=generator)
        return Examples(inputs, labels, tuple("abcdefgh"[:classes]), "a world")

    return Dataset(part(count), part(count // 2))


def test_true_changes_nothing() -> None:
    data = world()
    made = corrupt(data, "true", seed=3)
    assert made.train.content_hash() == data.train.content_hash()
    assert made.train.preprocessing == data.train.preprocessing
    assert made.test is data.test
    assert not made.changed.any()
    assert not made.corrupted.any()


def test_shuffled_pixels_use_one_order_for_all_and_move_colors_together() -> None:
    data = world()
    made = corrupt(data, "shuffled-pixels", seed=1)
    assert data.test is not None
    assert made.test is not None
    # Where did pixel p go? The first image tells; every other image, training and test, agrees.
    old = data.train.inputs[0].flatten(1).T
    new = made.train.inputs[0].flatten(1).T
    order = [next(q for q in range(20) if torch.equal(old[q], new[p])) for p in range(20)]
    assert sorted(order) == list(range(20))
    assert order != list(range(20))
    for clean, corrupted in [(data.train, made.train), (data.test, made.test)]:
        assert torch.equal(clean.inputs.flatten(2)[:, :, order], corrupted.inputs.flatten(2))
        assert torch.equal(clean.labels, corrupted.labels)


def test_random_pixels_use_an_order_per_image() -> None:
    data = world()
    made = corrupt(data, "random-pixels", seed=1)
    orders = set()
    for clean, corrupted in zip(data.train.inputs, made.train.inputs, strict=True):
        old, new = clean.flatten(1).T, corrupted.flatten(1).T
        match = (old[None] == new[:, None]).all(2)
        assert (match.sum(1) == 1).all()
        orders.add(tuple(match.int().argmax(1).tolist()))
    assert len(orders) == len(data.train)


def test_gaussian_has_the_moments_of_each_channel() -> None:
    shift = torch.tensor([0.0, 5.0, -3.0]).reshape(1, 3, 1, 1)
    spread = torch.tensor([1.0, 0.2, 4.0]).reshape(1, 3, 1, 1)
    data = world(3000)
    data = Dataset(replace(data.train, inputs=data.train.inputs * spread + shift))
    made = corrupt(data, "gaussian", seed=0)
    values, clean = made.train.inputs.transpose(0, 1).flatten(1), data.train.inputs
    for channel in range(3):
        expected = clean[:, channel].double()
        mean, deviation = float(expected.mean()), float(expected.std(correction=0))
        assert float(values[channel].mean()) == pytest.approx(mean, abs=5 * deviation / 60_000**0.5)
        assert float(values[channel].std()) == pytest.approx(deviation, rel=5 / 120_000**0.5)
        sample = values[channel].double().numpy()
        fourth = np.mean(((sample - mean) / deviation) ** 4)
        assert fourth == pytest.approx(3, abs=0.2)
    # Nothing of the image is left: noise and image do not correlate.
    noise, image = made.train.inputs - made.train.inputs.mean(0), clean - clean.mean(0)
    correlation = (noise * image).mean() / (noise.std() * image.std())
    assert abs(float(correlation)) < 5 / noise.numel() ** 0.5


@pytest.mark.parametrize("shape", [(7,), (4, 5), (2, 3, 4), (2, 3, 2, 2)])
@pytest.mark.parametrize("name", ["shuffled-pixels", "random-pixels", "gaussian"])
def test_other_shapes(shape: tuple[int, ...], name: str) -> None:
    data = world(30, shape)
    made = corrupt(data, name, seed=0)
    assert made.train.example_shape == shape
    if name != "gaussian":
        for clean, new in zip(data.train.inputs, made.train.inputs, strict=True):
            assert torch.equal(clean.flatten().sort().values, new.flatten().sort().values)
    means, deviations = Setting(data.train, 1.0, 0).channel_statistics
    inputs = data.train.inputs.double().numpy()
    axes = {1: (0,), 2: (0, 1, 2), 3: (0, 2, 3), 4: (0, 2, 3, 4)}[len(shape)]
    expected = inputs.mean(axes)
    np.testing.assert_allclose(means.squeeze().numpy(), np.squeeze(expected), atol=1e-12)
    np.testing.assert_allclose(deviations.squeeze().numpy(), inputs.std(axes), atol=1e-12)


@settings(deadline=None, max_examples=some(60))
@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**40))
def test_weaker_corruptions_are_part_of_stronger_ones(one: float, two: float, seed: int) -> None:
    data = world()
    weak, strong = (
        corrupt(data, f"partial:{strength}", seed=seed) for strength in sorted((one, two))
    )
    assert not (weak.corrupted & ~strong.corrupted).any()
    assert torch.equal(weak.train.labels[weak.corrupted], strong.train.labels[weak.corrupted])
    assert torch.equal(
        corrupt(data, "partial:1", seed=seed).train.labels,
        corrupt(data, "random-labels", seed=seed).train.labels,
    )


def test_steps_are_recorded_and_text_is_canonical() -> None:
    data = world()
    made = corrupt(data, "partial:0.50", seed=4)
    assert made.spec == "partial:0.5"
    assert made.train.preprocessing == ("corruption partial:0.5, seed 4",)
    assert made.test is data.test
    shuffled = corrupt(data, "shuffled-pixels", seed=4)
    assert shuffled.test is not None
    assert shuffled.test.preprocessing == ("corruption shuffled-pixels, seed 4",)
    assert str(parse_corruption("partial:-0.0")) == "partial:0"


def test_the_given_data_set_and_global_randomness_are_left_alone() -> None:
    data = world()
    before = data.train.inputs.clone(), data.train.labels.clone()
    torch.manual_seed(1)
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    for name in CORRUPTIONS:
        corrupt(data, f"{name}:1" if CORRUPTIONS[name].takes_strength else name, seed=0)
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert torch.equal(before[0], data.train.inputs)
    assert torch.equal(before[1], data.train.labels)


def test_drawn_values_do_not_change_between_versions_of_the_library() -> None:
    """Whoever gives a seed in a paper relies on it."""
    made = corrupt(digits(), "random-labels", seed=0)
    assert made.train.labels[:12].tolist() == FIRST_LABELS


FIRST_LABELS = [5, 8, 2, 6, 3, 9, 1, 0, 9, 4, 8, 7]


def test_a_view_travels_to_another_process_and_reads_both_parts() -> None:
    data = world()
    eager = corrupt(data, "random-pixels", seed=5)
    assert eager.test is not None
    for part, examples in (("train", eager.train), ("test", eager.test)):
        here = CorruptedDataset(data, "random-pixels", seed=5, part=part)  # type: ignore[arg-type]
        view = pickle.loads(pickle.dumps(here))
        assert len(view) == len(examples)
        value, label = view[-1]
        assert torch.equal(value, examples.inputs[-1])
        assert label == int(examples.labels[-1])
        with pytest.raises(IndexError):
            view[len(examples)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("random_labels", "did you mean random-labels"),
        ("", "there is no corruption ''"),
        ("partial", "a number from 0 to 1 must follow"),
        ("partial:", "a number from 0 to 1 must follow"),
        ("partial:1.5", "a number from 0 to 1 must follow"),
        ("partial:nan", "a number from 0 to 1 must follow"),
        ("partial:half", "a number from 0 to 1 must follow"),
        ("gaussian:0.5", "takes no strength"),
        ("true:", "takes no strength"),
    ],
)
def test_bad_text(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        corrupt(world(), spec, seed=0)


def test_other_bad_input() -> None:
    with pytest.raises(BadInput, match="not a whole number"):
        corrupt(world(), "gaussian", seed=0.5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="has no test set"):
        CorruptedDataset(Dataset(world().train), "true", seed=0, part="test")
    with pytest.raises(BadInput, match="write 'train' or 'test'"):
        CorruptedDataset(world(), "true", seed=0, part="both")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="there is a corruption gaussian already"):
        register_corruption("gaussian", description="", what="inputs")
    with pytest.raises(BadInput, match="cannot be a name"):
        register_corruption("a:b", description="", what="inputs")
    with pytest.raises(BadInput, match="write 'labels' or 'inputs'"):
        register_corruption("mine", description="", what="both")  # type: ignore[arg-type]


ALL = torch.ones(60, dtype=torch.bool)


@pytest.mark.parametrize(
    ("what", "result", "message"),
    [
        ("labels", torch.zeros(60), "it must return the pair"),
        ("labels", (torch.zeros(59).long(), ALL), "one of each per example"),
        ("labels", (torch.zeros(60), ALL), "labels must be integers"),
        ("labels", (torch.zeros(60).long(), ALL.long()), "the mask boolean"),
        ("labels", (torch.full((60,), 4), ALL), "classes 0 to 3 only"),
        ("labels", (torch.full((60,), -1), ALL), "classes 0 to 3 only"),
        ("labels", (torch.zeros(60).long(), ~ALL), "outside the mask"),
        ("inputs", lambda image, random: image[0], "mend its function"),
        ("inputs", lambda image, random: image.double(), "mend its function"),
        ("inputs", lambda image, random: image.numpy(), "returned a ndarray"),
    ],
)
def test_a_corruption_that_returns_something_else(what, result, message: str) -> None:
    register_corruption("odd", description="", what=what)(lambda setting: result)
    try:
        with pytest.raises(BadInput, match=message):
            corrupt(world(), "odd", seed=0)
    finally:
        CORRUPTIONS.pop("odd", None)


@pytest.mark.slow
def test_the_ten_lines_of_the_documentation_work() -> None:
    page = Path(__file__).parents[2] / "docs" / "corruptions.md"
    code = page.read_text().split("```python\n")[2].split("```")[0]
    names = set(CORRUPTIONS)
    scope: dict[str, object] = {"dataset": digits()}
    try:
        exec(code, scope)
        assert set(CORRUPTIONS) - names == {"erased-half"}
        assert corruption_findings("erased-half", digits()) == ()
        made = corrupt(digits(), "erased-half", seed=0)
        erased: Tensor = made.train.inputs == 0
        assert (erased.flatten(1).float().mean(1) >= 0.5).all()
    finally:
        for name in set(CORRUPTIONS) - names:
            CORRUPTIONS.pop(name)
