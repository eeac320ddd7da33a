"""The convolutional network of the figure: its crops, its schedule, what is inferred about it."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import pad

from nonvacuous.data import load
from nonvacuous.models import build
from nonvacuous.papers.rescaling.cnn import CnnSettings, inferred_weights
from nonvacuous.papers.rescaling.cnn_training import (
    CropTraining,
    cropped,
    train_on_crops,
)
from nonvacuous.papers.rescaling.settings import CNNS


def test_crops_are_windows_of_the_padded_images() -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(7, 3, 6, 5, generator=generator)
    padded = pad(images, (2, 2, 2, 2))
    batch = torch.tensor([4, 0, 6, 6, 2])
    corners = torch.randint(5, (2, 5), generator=generator)
    reflected = torch.tensor([True, False, True, False, False])
    found = cropped(padded, batch, corners, reflected, (6, 5))
    assert found.shape == (5, 3, 6, 5)
    for place, image in enumerate(batch.tolist()):
        top, left = corners[:, place].tolist()
        window = padded[image, :, top : top + 6, left : left + 5]
        expected = window.flip(2) if reflected[place] else window
        torch.testing.assert_close(found[place], expected, rtol=0, atol=0)
    middle = torch.full((2, 5), 2)
    unmoved = cropped(padded, batch, middle, torch.zeros(5, dtype=torch.bool), (6, 5))
    assert torch.equal(unmoved, images[batch])


def test_the_rate_rises_and_then_falls_to_zero() -> None:
    training = CropTraining(epochs=1, learning_rate=0.2, warm_up=0.1)
    assert training.rate(0.0) == 0
    assert training.rate(0.05) == pytest.approx(0.1)
    assert training.rate(0.1) == pytest.approx(0.2)
    assert training.rate(0.55) == pytest.approx(0.1)
    assert training.rate(1.0) == pytest.approx(0.0)


class Stop(Exception):
    """Thrown out of a progress report, as when a user interrupts."""


def test_training_goes_on_where_it_stopped_and_learns(tmp_path) -> None:
    digits = load("digits").train
    initial = build("cnn:8,16", digits.example_shape, digits.classes, seed=3)
    training = CnnSettings.quick().model_copy(update={"epochs": 6, "learning_rate": 0.1}).training
    device = torch.device("cpu")
    losses: list[str] = []

    def listen(phase: str, done: int, total: int, message: str) -> None:
        if "loss" in message:
            losses.append(message)

    whole = train_on_crops(initial, digits, training, device=device, progress=listen)
    assert len(losses) == 6 and losses[-1] != losses[0]
    first, last = (float(text.split("loss ")[1].split(",")[0]) for text in (losses[0], losses[-1]))
    assert last < 0.75 * first

    def interrupt(phase: str, done: int, total: int, message: str) -> None:
        if done > total // 2:
            raise Stop

    path = tmp_path / "cnn.checkpoint"
    with pytest.raises(Stop):
        train_on_crops(
            initial, digits, training, device=device, checkpoint=path, progress=interrupt
        )
    assert path.exists()
    resumed = train_on_crops(initial, digits, training, device=device, checkpoint=path)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not resumed.training


def test_the_size_inferred_explains_every_row_of_the_figure() -> None:
    weights, squares = inferred_weights()
    assert weights == pytest.approx(2.6e6, rel=0.02)
    for shown in CNNS:
        x = (shown.posterior_scale / shown.prior_scale) ** 2
        nats = weights * (x - 1 - math.log(x)) / 2 + squares / (2 * shown.prior_scale**2)
        # The risk that is left over for the row must be a risk, up to what reading off allows.
        risk = shown.bound - math.sqrt(nats / 100_000)
        assert 0.3 < risk < 0.95
    network = build(CnnSettings().architecture, (3, 32, 32), 10, seed=0)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(weights, rel=0.02)
