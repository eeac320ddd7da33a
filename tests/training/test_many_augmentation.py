"""Windows, mirroring, colors, dropout and the draws behind them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nonvacuous import models
from nonvacuous.data.preprocessing import center_crop, whiten_each_image
from nonvacuous.training.many_jobs import Job, ManyExamples, ManySettings
from nonvacuous.training.many_material import (
    PADDING,
    BandedResponseNorm,
    Chance,
    Material,
    draw_seed,
    dropped,
    uniforms,
)
from tests.training.many_worlds import CLASSES, images, labelings, largest_difference, train_many


def whole(value: int) -> Tensor:
    return torch.tensor(value)


def material(inputs: Tensor, job: Job, **options: object) -> Material:
    examples = ManyExamples([inputs], labelings(len(inputs)), **options)
    return Material(examples, [job], ManySettings(epochs=1), device=torch.device("cpu"))


def batch(source: Material, job: Job, chosen: list[int], step: int = 0) -> Tensor:
    return source.batch(
        job, torch.tensor(chosen), seed=whole(draw_seed(job.seed)), step=whole(step)
    )


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(0, 2000))
def test_draws_are_a_function_of_their_place(seed: int, step: int, purpose: int) -> None:
    one = whole(draw_seed(seed))
    drawn = uniforms(one, whole(step), purpose, (5, 7))
    assert torch.equal(drawn, uniforms(one, whole(step), purpose, (5, 7)))
    assert torch.equal(drawn.flatten()[:10], uniforms(one, whole(step), purpose, (10,)))
    several = uniforms(torch.tensor([3, int(one)]), whole(step), purpose, (5, 7))
    assert torch.equal(several[1], drawn)
    assert bool(((drawn >= 0) & (drawn < 1)).all())
    for other in (
        uniforms(one, whole(step + 1), purpose, (5, 7)),
        uniforms(one, whole(step), purpose + 1, (5, 7)),
    ):
        assert not torch.equal(other, drawn)


def test_draws_are_uniform_and_unrelated() -> None:
    seed = whole(draw_seed(0))
    draws = torch.stack([uniforms(seed, whole(step), 1, (2000,)) for step in range(50)]).double()
    counts = torch.histc(draws.flatten(), bins=20, min=0, max=1)
    chi_square = ((counts - 5000) ** 2 / 5000).sum().item()
    assert chi_square < 44  # 0.999 quantile with 19 degrees of freedom
    correlations = torch.corrcoef(draws).fill_diagonal_(0).abs()
    assert correlations.max() < 5 / 2000**0.5
    along = torch.corrcoef(torch.stack([draws[:, :-1].flatten(), draws[:, 1:].flatten()]))
    assert abs(along[0, 1]) < 4 / 100_000**0.5


def test_windows_are_parts_of_their_images_at_every_place() -> None:
    job = Job(augmentation="crop", seed=3)
    pictures = images(6, size=10)
    source = material(pictures, job, crop_size=8)
    seen = set()
    for step in range(60):
        for image, window in zip((4, 1), batch(source, job, [4, 1], step), strict=True):
            places = [
                (top, left)
                for top in range(3)
                for left in range(3)
                if torch.equal(window, pictures[image, :, top : top + 8, left : left + 8])
            ]
            assert len(places) == 1
            seen.add(places[0])
    assert len(seen) == 9


def test_without_a_crop_size_images_move_over_black() -> None:
    job = Job(augmentation="crop", seed=3)
    pictures = images(6) + 10.0
    source = material(pictures, job)
    padded = nn.functional.pad(pictures, (PADDING,) * 4)
    for step in range(20):
        (window,) = batch(source, job, [2], step)
        assert window.shape == (3, 8, 8)
        assert any(
            torch.equal(window, padded[2, :, top : top + 8, left : left + 8])
            for top in range(2 * PADDING + 1)
            for left in range(2 * PADDING + 1)
        )


def test_full_augmentation_mirrors_half_of_the_images_and_varies_colors() -> None:
    job = Job(augmentation="full", seed=3)
    ramp = torch.arange(8.0).expand(200, 3, 8, 8) + 1.0
    seen = batch(material(ramp, job, crop_size=8), job, list(range(200)))
    falling = seen[:, 0, 4, 5] < seen[:, 0, 4, 3]
    # Padding lies around images no larger than the window, so some columns are black.
    assert 60 < int(falling.sum()) < 140
    assert len({round(float(value), 4) for value in seen.amax(dim=(1, 2, 3))}) > 150


def test_preparation_follows_the_window_in_training_and_measuring() -> None:
    job = Job(augmentation="crop", seed=3)
    pictures = images(6, size=10)
    source = material(pictures, job, crop_size=8, prepare=whiten_each_image)
    seen = batch(source, job, [0, 1, 2])
    assert torch.allclose(seen.mean(dim=(1, 2, 3)), torch.zeros(3), atol=1e-6)
    assert torch.allclose(seen.std(dim=(1, 2, 3), correction=0), torch.ones(3), atol=1e-5)
    measured = source.train[0].permute(0, 3, 1, 2)
    assert torch.equal(measured, whiten_each_image(center_crop(pictures, 8)))


def test_plain_jobs_see_what_they_would_see_prepared_beforehand() -> None:
    def build(seed: int) -> nn.Module:
        return models.build("cnn:4/8", (3, 8, 8), CLASSES, seed=seed)

    pictures, settings = images(40, size=10), ManySettings(epochs=2, batch_size=16)
    inside = train_many(
        build,
        [pictures],
        labelings(40),
        [Job(seed=1), Job(seed=1, augmentation="crop")],
        settings=settings,
        crop_size=8,
        prepare=whiten_each_image,
        device="cpu",
    )
    before = train_many(
        build,
        [whiten_each_image(center_crop(pictures, 8))],
        labelings(40),
        [Job(seed=1)],
        settings=settings,
        device="cpu",
    )
    assert largest_difference(inside.jobs[0].state, before.jobs[0].state) < 1e-6
    assert largest_difference(inside.jobs[1].state, before.jobs[0].state) > 1e-4


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU()])
def test_a_layer_in_two_places_draws_by_the_seed_of_its_job_in_both(layer: nn.Module) -> None:
    def build(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Flatten(), nn.Linear(192, 9), layer, nn.Linear(9, 9), layer)

    states = []
    for others in range(2):
        torch.manual_seed(others)
        before = torch.get_rng_state()
        settings = ManySettings(epochs=2, batch_size=30)
        result = train_many(
            build, [images()], labelings(), [Job(seed=3)], settings=settings, device="cpu"
        )
        states.append(result.jobs[0].state)
        assert torch.equal(torch.get_rng_state(), before)
    assert largest_difference(*states) == 0.0


def test_dropout_drops_at_its_rate_and_keeps_the_mean() -> None:
    values = torch.ones(400, 50)
    chance = Chance(whole(draw_seed(1)), whole(0), torch.tensor(0.3))
    kept = dropped(values, chance, 0, 0.3)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert abs((kept == 0).float().mean().item() - 0.3) < 0.015
    channels = dropped(torch.ones(8, 6, 3, 3), chance, 0, 0.5, by_channel=True)
    assert all(len(channel.unique()) == 1 for image in channels for channel in image)


@pytest.mark.parametrize(("channels", "size"), [(7, 9), (12, 4), (12, 5), (3, 1)])
def test_the_faster_response_norm_is_that_of_torch(channels: int, size: int) -> None:
    layer = nn.LocalResponseNorm(size, alpha=0.3, beta=0.6, k=1.5)
    inputs = torch.randn(4, channels, 3, 5, dtype=torch.float64, requires_grad=True)
    ours = BandedResponseNorm(layer)(inputs)
    assert torch.allclose(ours, layer(inputs), rtol=1e-12)
    weights = torch.randn_like(ours)
    (slow,) = torch.autograd.grad((layer(inputs) * weights).sum(), inputs)
    (fast,) = torch.autograd.grad((BandedResponseNorm(layer)(inputs) * weights).sum(), inputs)
    assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-12)
