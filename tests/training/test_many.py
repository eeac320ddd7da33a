"""Every method trains each network as if it were alone, and as torch would."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nonvacuous import models
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.seeds import derived_seed
from nonvacuous.training.loop import batch_edges, shuffled
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_stacked import Stack
from nonvacuous.training.many_trainer import plain_stack
from tests.training.calls import train, train_posterior
from tests.training.many_worlds import (
    CLASSES,
    convolutional,
    images,
    labelings,
    largest_difference,
    perceptron,
    plain_convolutional,
    train_many,
)
from tests.training.worlds import blobs

SETTINGS = ManySettings(epochs=3, batch_size=32)
JOBS = (
    Job(seed=1),
    Job(labels=1, seed=2, learning_rate=0.05, weight_decay=1e-2),
    Job(seed=1, inputs=1, learning_rate=0.03),
    Job(labels=1, seed=4, dropout=0.3),
    Job(seed=5, augmentation="crop"),
    Job(seed=6, inputs=1, augmentation="full", dropout=0.1),
)


def world() -> dict[str, object]:
    tests = [(images(37, seed=7), labelings(37)[0]), (images(20, seed=8), labelings(20)[0])]
    marked = torch.rand(2, 90, generator=torch.Generator().manual_seed(3)) < 0.4
    return {"test": tests, "marked": marked, "settings": SETTINGS, "device": "cpu"}


def inputs() -> list[Tensor]:
    return [images(), images(seed=5)]


@pytest.mark.parametrize("build", [perceptron, plain_convolutional])
def test_matrices_agree_with_one_network_at_a_time(build: Callable[[int], nn.Module]) -> None:
    alone = train_many(build, inputs(), labelings(), JOBS, method="one at a time", **world())
    together = train_many(build, inputs(), labelings(), JOBS, method="matrices", **world())
    assert (alone.method, together.method) == ("one at a time", "matrices")
    for one, other in zip(alone.jobs, together.jobs, strict=True):
        assert largest_difference(one.state, other.state) < 1e-5
        for first, second in zip(one.history, other.history, strict=True):
            assert first.train_loss == pytest.approx(second.train_loss, abs=1e-5)
            assert replace(first, train_loss=0.0) == replace(second, train_loss=0.0)


@pytest.mark.slow_if("auto-convolutional")
@pytest.mark.parametrize("build", [perceptron, convolutional])
@pytest.mark.parametrize("method", ["auto", "one at a time"])
def test_a_job_does_not_depend_on_its_company(
    build: Callable[[int], nn.Module], method: str
) -> None:
    together = train_many(build, inputs(), labelings(), JOBS, method=method, **world())
    for place in (1, 3, 5):
        solo = train_many(build, inputs(), labelings(), [JOBS[place]], method=method, **world())
        assert largest_difference(solo.jobs[0].state, together.jobs[place].state) < 1e-5


@pytest.mark.parametrize("method", ["matrices", "one at a time"])
def test_nothing_is_left_in_memory_after_a_training(method: str, monkeypatch) -> None:
    """Without waiting for the collector of circles: on a GPU, memory would run out meanwhile."""
    made: list[weakref.ref[Stack]] = []
    seat = Stack._seat

    def noted(stack: Stack, numbered: Any) -> None:
        made.append(weakref.ref(stack))
        seat(stack, numbered)

    def train() -> None:
        train_many(perceptron, inputs(), labelings(), JOBS[:2], method=method, **world())

    train()  # once before: what torch loads for its first optimizer keeps frames alive
    monkeypatch.setattr(Stack, "_seat", noted)
    gc.disable()
    try:
        train()
        assert made and all(stack() is None for stack in made)
    finally:
        gc.enable()


def test_training_is_that_of_torch() -> None:
    """An independent loop over batches with torch's own optimizer and loss."""

    def build(seed: int) -> nn.Module:
        network = convolutional(seed)
        network[4], network[10] = nn.Identity(), nn.Identity()  # no draws
        return network

    job = Job(labels=1, seed=3, learning_rate=0.05, weight_decay=1e-2)
    ours = train_many(build, inputs(), labelings(), [job], **world()).jobs[0]
    network, wanted = build(3), labelings()[1]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
    edges = batch_edges(90, 32)
    for epoch in range(3):
        optimizer.param_groups[0]["lr"] = 0.05 * 0.95**epoch
        order = shuffled(90, seed=3, epoch=epoch)
        for start, end in pairwise(edges):
            batch = order[start:end]
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images()[batch]), wanted[batch]).backward()
            optimizer.step()
    network.eval()
    assert largest_difference(ours.state, network.state_dict()) < 1e-5
    with torch.no_grad():
        outputs = network(images())
    last, marked = ours.history[-1], world()["marked"][1]  # type: ignore[index]
    wrong = outputs.argmax(1) != wanted
    assert last.train_loss == pytest.approx(nn.functional.cross_entropy(outputs, wanted).item())
    assert last.train_errors == int(wrong.sum())
    assert last.marked_errors == int((wrong & marked).sum())
    assert last.unmarked_errors == int((wrong & ~marked).sum())
    with torch.no_grad():
        guesses = network(images(37, seed=7)).argmax(1)
    assert last.test_errors == int((guesses != labelings(37)[0]).sum())
    assert ours.stopped == "epochs"
    assert [record.rate for record in ours.history] == pytest.approx([0.05, 0.0475, 0.045125])
    assert [record.steps for record in ours.history] == [3, 6, 9]


def test_seeds_that_follow_from_others_are_taken() -> None:
    seed = max(derived_seed(number, "network") for number in range(8))
    assert seed > 2**53 and Job(seed=seed).seed == seed


def test_the_state_loads_into_a_fresh_network() -> None:
    for build in (perceptron, convolutional):
        result = train_many(build, inputs(), labelings(), JOBS[:2], **world())
        network = build(99)
        network.load_state_dict(result.jobs[1].state)
        network.eval()
        with torch.no_grad():
            wrong = network(images()).argmax(1) != labelings()[1]
        assert int(wrong.sum()) == result.jobs[1].history[-1].train_errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inception", "inception:no-bn", "alexnet"])
def test_the_classic_networks(name: str) -> None:
    shape = (3, 12, 12)

    def build(seed: int) -> nn.Module:
        return models.build(name, shape, CLASSES, seed=seed)

    arguments = ([images(16, size=12)], labelings(16), [Job(seed=1), Job(seed=2, labels=1)])
    settings = ManySettings(epochs=1, batch_size=8)
    trained = train_many(build, *arguments, settings=settings, device="cpu")
    for job in trained.jobs:
        assert largest_difference(job.state, build(job.job.seed).state_dict()) > 1e-4
        build(0).load_state_dict(job.state)


def test_bfloat16_keeps_weights_in_float32() -> None:
    settings = SETTINGS.changed(precision="bfloat16")
    options = {**world(), "settings": settings}
    for build in (perceptron, convolutional):
        exact = train_many(build, inputs(), labelings(), JOBS[:1], **world()).jobs[0]
        rounded = train_many(build, inputs(), labelings(), JOBS[:1], **options).jobs[0]
        assert {t.dtype for t in rounded.state.values()} <= {torch.float32, torch.int64}
        difference = largest_difference(exact.state, rounded.state)
        assert 0 < difference < 0.05
        assert rounded.history[-1].train_loss == pytest.approx(
            exact.history[-1].train_loss, abs=0.02
        )


def test_auto_chooses_matrices_for_perceptrons_only() -> None:
    def odd(seed: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Tanh(), nn.Linear(5, CLASSES))

    def twice(seed: int) -> nn.Module:
        inner = nn.Linear(192, 192)
        return nn.Sequential(nn.Flatten(), inner, nn.ReLU(), inner, nn.Linear(192, CLASSES))

    def rows(seed: int) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(120, CLASSES))

    chosen = [
        train_many(build, inputs(), labelings(), JOBS[:1], **world()).method
        for build in (perceptron, convolutional, plain_convolutional, odd, twice, rows)
    ]
    assert chosen == ["matrices", *["one at a time"] * 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda network: setattr(network.blocks[0], "stride", (2, 2)),
        lambda network: setattr(network.blocks[2], "kernel_size", 3),
        lambda network: network.blocks.__setitem__(1, nn.Tanh()),
        lambda network: network.blocks[0].register_forward_hook(lambda *_: None),
        lambda network: network.layers[0].weight.requires_grad_(False),
        lambda network: setattr(network.layers[0], "bias", network.blocks[3].bias),
        lambda network: network.register_parameter("spare", nn.Parameter(torch.zeros(3))),
    ],
)
def test_a_changed_network_is_not_trained_as_what_it_was(change: Callable[[Any], object]) -> None:
    network = plain_convolutional(0)
    assert plain_stack(network) is not None
    change(network)
    assert plain_stack(network) is None


@pytest.mark.parametrize("channels", [1, 3])
def test_networks_that_look_at_images_as_they_lie_in_memory(channels: int) -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(channels, 6, 3), nn.Linear(216, CLASSES)
            self.flattened = False

        def forward(self, images: Tensor) -> Tensor:
            maps = self.first(images).relu()
            return self.last(maps.flatten(1) if self.flattened else maps.view(len(maps), -1))

    def trained(network: nn.Module) -> dict[str, Tensor]:
        options = {"settings": SETTINGS, "device": "cpu"}
        pictures = [images()[:, :channels]]
        result = train_many(lambda _: network, pictures, labelings(), JOBS[:1], **options)
        return result.jobs[0].state

    viewing, other = Viewing(), Viewing()
    other.load_state_dict(viewing.state_dict())
    other.flattened = True
    assert largest_difference(trained(viewing), trained(other)) < 1e-5


def test_batches_that_a_layer_cannot_take_are_refused() -> None:
    network, examples = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), blobs()
    given, single = (
        ([examples.inputs], examples.labels[None], [Job()]),
        SETTINGS.changed(batch_size=1),
    )
    for training in (
        lambda: train(network, examples, batch_size=1),
        lambda: train_many(lambda _: network, *given, settings=single, device="cpu"),
    ):
        with pytest.raises(BadInput, match="batches of 1: Expected more than 1 value"):
            training()


@pytest.mark.parametrize("forbid", [torch.no_grad, torch.inference_mode])
def test_networks_that_compute_without_gradients_are_refused(forbid: Callable[[], Any]) -> None:
    class Fixed(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            with forbid():
                return super().forward(inputs)

    network, examples = Fixed(4, 3), blobs()
    given = [examples.inputs], examples.labels[None], [Job()]
    for training in (
        lambda: train(network, examples),
        lambda: train_posterior(network, DiagonalGaussian.around(network), examples),
        lambda: train_many(lambda _: network, *given, settings=SETTINGS, device="cpu"),
    ):
        with pytest.raises(BadInput, match="no gradient reaches the network's weights"):
            training()


def test_all_parts_are_in_training_mode_from_the_first_epoch() -> None:
    def built(seed: int) -> nn.Module:
        network = convolutional(seed)
        network[1].eval()
        return network

    (one,), (other,) = (
        train_many(build, inputs(), labelings(), JOBS[:1], **world()).jobs
        for build in (built, convolutional)
    )
    assert largest_difference(one.state, other.state) == 0.0


def test_networks_of_double_precision_and_frozen_layers() -> None:
    def build(seed: int) -> nn.Module:
        network = convolutional(seed).double()
        network[0].requires_grad_(False)
        return network

    for one in train_many(build, inputs(), labelings(), JOBS[:2], **world()).jobs:
        initial = build(one.job.seed).state_dict()
        assert {t.dtype for t in one.state.values()} <= {torch.float64, torch.int64}
        assert torch.equal(one.state["0.weight"], initial["0.weight"])
        assert largest_difference(one.state, initial) > 1e-4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("build", "method"),
    [
        (perceptron, "matrices"),
        (perceptron, "streams"),
        (convolutional, "streams"),
    ],
)
def test_recorded_steps_agree_with_the_processor(
    build: Callable[[int], nn.Module], method: str
) -> None:
    expected = train_many(build, inputs(), labelings(), JOBS, **world())
    options = {**world(), "device": "cuda"}
    recorded = train_many(build, inputs(), labelings(), JOBS, method=method, **options)
    for one, other in zip(expected.jobs, recorded.jobs, strict=True):
        # The GPU rounds factors to TF32.
        assert one.history[-1].train_loss == pytest.approx(other.history[-1].train_loss, abs=2e-3)
