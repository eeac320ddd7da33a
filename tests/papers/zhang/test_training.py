"""Training the networks of the randomization paper: what they see, what is kept, what is reused."""

from __future__ import annotations

import json

import pytest
import torch

from nonvacuous.data import load
from nonvacuous.data.preprocessing import center_crop
from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang import training
from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming
from nonvacuous.papers.zhang.settings import Longer
from nonvacuous.papers.zhang.training import conditions_of
from nonvacuous.randomization.conditions import many_examples
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.seeds import derived_seed
from nonvacuous.study.running import finished_cells

from .worlds import EXAMPLES, STUDY, TEST, made_up, tiny, train_cells, write_images


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path)


CELLS = (
    Cell("small"),
    Cell("small", "random-labels", decay=True),
    Cell("small", "gaussian"),
    Cell("convolutional", "partial:0.5", "crop"),
    Cell("convolutional", "true", "full"),
)


def test_every_cell_is_trained_and_kept(tmp_path, images):
    told = []
    results = train_cells(
        CELLS, tiny(images), tmp_path / "r", progress=lambda *words: told.append(words)
    )
    assert [result.cell for result in results] == list(CELLS)
    for result in results:
        assert (result.examples, result.test_examples) == (EXAMPLES, TEST)
        assert [point.epoch for point in result.history] == [1, 2]
    lines = [words[3] for words in told if words[0] == "cells"]
    assert [line.split(":")[0] for line in lines] == [str(cell) for cell in CELLS]
    assert {words[0] for words in told} >= {"training 3 × small", "training 2 × convolutional"}
    timings = STUDY.timings(finished_cells(STUDY, tmp_path / "r"))
    assert [(t.network, t.networks) for t in timings] == [("convolutional", 2), ("small", 3)]
    assert not list((tmp_path / "r").rglob("*checkpoint*"))


def test_finished_cells_are_not_trained_again(tmp_path, images, monkeypatch):
    settings = tiny(images)
    first = train_cells(CELLS[:2], settings, tmp_path / "r")
    trained = []
    original = training.train_many

    def watched(*arguments, **options):
        trained.append(len(arguments[2]))
        return original(*arguments, **options)

    monkeypatch.setattr(training, "train_many", watched)
    assert train_cells(CELLS[:3], settings, tmp_path / "r", resume=True)[:2] == first
    assert trained == [1]
    monkeypatch.setattr(training, "train_many", None)
    assert train_cells(CELLS[:2], settings, tmp_path / "r", resume=True) == first


def test_who_is_trained_beside_a_network_does_not_matter(tmp_path, images):
    settings = tiny(images)
    together = train_cells(CELLS[:3], settings, tmp_path / "a")
    apart = settings.changed(
        networks={n: r.model_copy(update={"together": 1}) for n, r in settings.networks.items()}
    )
    alone = train_cells(CELLS[:3], apart, tmp_path / "b")
    for one, other in zip(together, alone, strict=True):
        for left, right in zip(one.history, other.history, strict=True):
            assert left.loss == pytest.approx(right.loss, rel=1e-3)


def test_what_networks_see(images):
    settings = tiny(images, seed=3)
    dataset = load(images)
    cells = [Cell("small", c) for c in ("true", "partial:0.5", "shuffled-pixels", "random-labels")]
    seen = conditions_of(cells, dataset, crop=settings.crop, seed=settings.seed)
    material, inputs = many_examples(list(seen.values()))
    seed = derived_seed(3, "corruption")
    # Label corruptions share the whole images, so that training can crop them at random.
    assert inputs == [0, 0, 1, 0]
    assert torch.equal(material.inputs[0], dataset.train.inputs)
    assert material.inputs[1].shape == (EXAMPLES, 3, 8, 8)
    # Pixels are shuffled after the crop: the same values as in the window, elsewhere.
    window = center_crop(dataset.train.inputs, 8).flatten(2).sort(dim=2).values
    assert torch.equal(material.inputs[1].flatten(2).sort(dim=2).values, window)
    for cell, labels in zip(cells, material.labels, strict=True):
        drawn = corrupt(dataset, cell.corruption, seed=seed)
        assert torch.equal(labels, drawn.train.labels)
    none, some, neither, every = material.marked.sum(dim=1).tolist()
    assert none == neither == 0
    assert every == EXAMPLES
    assert 0 < some < EXAMPLES
    for inputs, labels in material.test:
        assert len(inputs) == TEST
        assert torch.equal(labels, dataset.test.labels)


def test_redrawn_and_kept_labels_are_counted_apart(tmp_path, images):
    settings = tiny(images)
    cell = Cell("small", "partial:0.5")
    (result,) = train_cells([cell], settings, tmp_path / "r")
    for point in result.history:
        assert point.redrawn_errors + point.kept_errors == point.train_errors
    assert result.history[-1].redrawn_errors <= result.redrawn


def test_time_alone_is_measured_where_asked(tmp_path, images):
    train_cells(CELLS[:2], tiny(images, solo_epochs=1), tmp_path / "r")
    (timing,) = STUDY.timings(finished_cells(STUDY, tmp_path / "r"))
    assert timing.solo_seconds is None or timing.solo_seconds > 0
    timing = GroupTiming(
        network="small",
        networks=4,
        epochs=10,
        seconds=8.0,
        method="matrices",
        device="cpu",
        solo_seconds=1.0,
    )
    assert (timing.seconds_per_epoch, timing.speedup) == (0.2, 5.0)
    assert timing.model_copy(update={"solo_seconds": None}).speedup is None


def test_a_folder_belongs_to_its_settings(tmp_path, images):
    settings, folder = tiny(images), tmp_path / "r"
    (first,) = train_cells(CELLS[:1], settings, folder)
    with pytest.raises(BadInput, match="holds a reproduction already"):
        train_cells(CELLS[:1], settings, folder)
    # A network with another recipe is another one: it is trained, and the first one kept.
    changed = settings.changed(epochs=3)
    (longer,) = train_cells(CELLS[:1], changed, folder, resume=True)
    assert json.loads((folder / "settings.json").read_text()) == changed.record()
    assert longer.history[-1].epoch == 3
    assert train_cells(CELLS[:1], settings, folder, resume=True) == (first,)
    with pytest.raises(BadInput, match=r"other settings \(seed\)"):
        train_cells(CELLS[:1], settings.changed(seed=1), folder, resume=True)
    train_cells(CELLS[:1], settings.changed(seed=1), folder, force=True)
    assert len(finished_cells(STUDY, folder)) == 1


def test_another_reproduction_is_reused_only_where_it_was_trained_alike(
    tmp_path, images, monkeypatch
):
    settings = tiny(images)
    (first,) = train_cells(CELLS[:1], settings, tmp_path / "a")
    reusing = settings.changed(table=tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_many", None)
        assert train_cells(CELLS[:1], reusing, tmp_path / "b") == (first,)
    assert finished_cells(STUDY, tmp_path / "b") == ()
    (longer,) = train_cells(CELLS[:1], reusing.changed(epochs=3), tmp_path / "c")
    assert longer.history[-1].epoch == 3


def test_damaged_and_unknown(tmp_path, images):
    settings, folder = tiny(images), tmp_path / "r"
    (first,) = train_cells(CELLS[:1], settings, folder)
    (path,) = folder.glob("cells/*/result.json")
    path.write_text(path.read_text()[:-100])
    # Half a file is none; what was there is computed anew.
    assert finished_cells(STUDY, folder) == ()
    path.unlink()
    (again,) = train_cells(CELLS[:1], settings, folder, resume=True)
    assert again.history == first.history
    with pytest.raises(KeyError):
        train_cells([Cell("huge")], settings, folder, resume=True)


def test_data_without_a_test_set_is_refused(tmp_path, images):
    import numpy as np

    stored = np.load(images)
    np.savez(tmp_path / "half.npz", x=stored["x_train"], y=stored["y_train"])
    settings = tiny(tmp_path / "half.npz")
    with pytest.raises(BadInput, match="no test set"):
        train_cells(CELLS[:1], settings, tmp_path / "r")


def test_fewer_examples(tmp_path, images):
    settings = tiny(images, examples=30)
    (result,) = train_cells(CELLS[:1], settings, tmp_path / "r")
    assert result.examples == 30


def test_points_of_a_history():
    result = made_up(Cell("alexnet"), ((500, 400), (4, 300), (0, 310), (2, 320)))
    assert result.train_accuracy == pytest.approx(99.8)
    assert result.test_accuracy == pytest.approx(68.0)
    assert result.fit_epoch == result.at_fit.epoch == 6
    assert result.reached(99.0).epoch == result.best.epoch == 4
    assert made_up(Cell("alexnet"), ((5, 9), (3, 9))).at_fit.epoch == 4
    assert CellResult(**json.loads(result.model_dump_json())) == result


def longer(settings):
    slower = tuple(
        Longer(regularizer=name, epochs=3, rate_decay=0.5) for name in ("crop", "full", "dropout")
    )
    recipes = {n: r.model_copy(update={"longer": slower}) for n, r in settings.networks.items()}
    return settings.changed(networks=recipes)


def test_random_labels_are_trained_longer_where_no_example_comes_twice_alike(tmp_path, images):
    settings = longer(tiny(images))
    cells = [
        *(Cell("small", "random-labels", kind) for kind in ("none", "crop", "full")),
        Cell("small", "random-labels", dropout=True),
        Cell("small", "true", "crop"),
        Cell("small", dropout=True),
    ]
    results = train_cells(cells, settings, tmp_path / "r")
    assert [result.cell for result in results] == cells
    assert [result.history[-1].epoch for result in results] == [2, 3, 3, 3, 2, 2]
    assert [result.training["rate_decay"] == 0.5 for result in results] == [
        False, True, True, True, False, False
    ]  # fmt: skip
    timings = STUDY.timings(finished_cells(STUDY, tmp_path / "r"))
    assert sorted(timing.epochs for timing in timings) == [2, 3]
    assert train_cells(cells, settings, tmp_path / "r", resume=True) == results
    assert settings.changed(epochs=1).recipe(cells[1]).epochs == 1


def test_stronger_decay_and_dropout_reach_the_training(tmp_path, images, monkeypatch):
    jobs = []
    original = training.train_many

    def watched(*arguments, **options):
        jobs.extend(arguments[2])
        return original(*arguments, **options)

    monkeypatch.setattr(training, "train_many", watched)
    cells = [
        Cell("small", decay=True),
        Cell("small", decay=True, decay_times=8.0),
        Cell("small", dropout=True),
    ]
    settings = tiny(images)
    train_cells(cells, settings, tmp_path / "r")
    decay = settings.networks["small"].weight_decay
    assert [job.weight_decay for job in jobs] == [decay, 8 * decay, 0.0]
    assert [job.dropout for job in jobs] == [0.0, 0.0, 0.5]
    assert len({cell.key for cell in cells}) == 3
    # Dropping another share is another training.
    recipes = {n: r.model_copy(update={"dropout": 0.2}) for n, r in settings.networks.items()}
    train_cells(cells, settings.changed(networks=recipes), tmp_path / "r", resume=True)
    assert [job.dropout for job in jobs[3:]] == [0.2]
