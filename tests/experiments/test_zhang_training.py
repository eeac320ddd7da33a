"""Training the networks of the randomization paper: what they see, what is kept, what is reused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from nonvacuous.data import load
from nonvacuous.data.image_preprocessing import center_crop
from nonvacuous.errors import BadInput
from nonvacuous.experiments import zhang_training
from nonvacuous.experiments.zhang_cells import Cell, CellResult
from nonvacuous.experiments.zhang_material import Material
from nonvacuous.experiments.zhang_store import CellStore, GroupTiming
from nonvacuous.experiments.zhang_training import train_cells
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.seeds import derived_seed

from .zhang_worlds import EXAMPLES, TEST, made_up, tiny, write_images


@pytest.fixture
def images(tmp_path):
    return write_images(tmp_path)


def opened(folder, settings):
    store = CellStore(folder)
    store.open(settings, resume=False, force=False)
    return store


CELLS = (
    Cell("small"),
    Cell("small", "random-labels", decay=True),
    Cell("small", "gaussian"),
    Cell("convolutional", "partial:0.5", "crop"),
    Cell("convolutional", "true", "full"),
)


def test_every_cell_is_trained_and_kept(tmp_path, images):
    settings = tiny(images)
    store = opened(tmp_path / "r", settings)
    told = []
    results = train_cells(CELLS, settings, store, progress=lambda *words: told.append(words))
    assert [result.cell for result in results] == list(CELLS)
    for result in results:
        assert (result.examples, result.test_examples) == (EXAMPLES, TEST)
        assert [point.epoch for point in result.history] == [1, 2]
        assert store.find(result.cell, settings) == result
    finished = [words for words in told if words[0] == "networks"]
    assert [words[1] for words in finished] == [1, 2, 3, 4, 5]
    assert {words[0] for words in told} >= {"training 3 × small", "training 2 × convolutional"}
    assert [(t.network, t.networks) for t in store.timings()] == [
        ("convolutional", 2),
        ("small", 3),
    ]
    assert not list((tmp_path / "r").glob("groups/*checkpoint*"))


def test_finished_cells_are_not_trained_again(tmp_path, images, monkeypatch):
    settings = tiny(images)
    store = opened(tmp_path / "r", settings)
    first = train_cells(CELLS[:2], settings, store)
    trained = []
    original = zhang_training.train_many

    def watched(*arguments, **options):
        trained.append(len(arguments[3]))
        return original(*arguments, **options)

    monkeypatch.setattr(zhang_training, "train_many", watched)
    assert train_cells(CELLS[:3], settings, store)[:2] == first
    assert trained == [1]
    monkeypatch.setattr(zhang_training, "train_many", None)
    assert train_cells(CELLS[:2], settings, store) == first


def test_who_is_trained_beside_a_network_does_not_matter(tmp_path, images):
    settings = tiny(images)
    together = train_cells(CELLS[:3], settings, opened(tmp_path / "a", settings))
    apart = replace(
        settings, networks={n: replace(r, together=1) for n, r in settings.networks.items()}
    )
    alone = train_cells(CELLS[:3], apart, opened(tmp_path / "b", apart))
    for one, other in zip(together, alone, strict=True):
        for left, right in zip(one.history, other.history, strict=True):
            assert left.loss == pytest.approx(right.loss, rel=1e-3)


def test_what_networks_see(images):
    settings = tiny(images, seed=3)
    dataset = load(images)
    cells = [Cell("small", c) for c in ("true", "partial:0.5", "shuffled-pixels", "random-labels")]
    material = Material(cells, settings, dataset)
    seed = derived_seed(3, "corruption")
    # Label corruptions share the whole images, so that training can crop them at random.
    assert [material.input_set(cell) for cell in cells] == [0, 0, 1, 0]
    assert torch.equal(material.inputs[0], dataset.train.inputs)
    assert material.inputs[1].shape == (EXAMPLES, 3, 8, 8)
    # Pixels are shuffled after the crop: the same values as in the window, elsewhere.
    window = center_crop(dataset.train.inputs, 8).flatten(2).sort(dim=2).values
    assert torch.equal(material.inputs[1].flatten(2).sort(dim=2).values, window)
    for cell in cells:
        drawn = corrupt(dataset, cell.corruption, seed=seed)
        assert torch.equal(material.labels[material.label_row(cell)], drawn.train.labels)
    assert material.redrawn(cells[0]) == material.redrawn(cells[2]) == 0
    assert material.redrawn(cells[3]) == EXAMPLES
    assert 0 < material.redrawn(cells[1]) < EXAMPLES
    for inputs, labels in material.test:
        assert len(inputs) == TEST
        assert torch.equal(labels, dataset.test.labels)


def test_redrawn_and_kept_labels_are_counted_apart(tmp_path, images):
    settings = tiny(images)
    cell = Cell("small", "partial:0.5")
    (result,) = train_cells([cell], settings, opened(tmp_path / "r", settings))
    for point in result.history:
        assert point.redrawn_errors + point.kept_errors == point.train_errors
    assert result.history[-1].redrawn_errors <= result.redrawn


def test_time_alone_is_measured_where_asked(tmp_path, images):
    settings = tiny(images, solo_epochs=1)
    store = opened(tmp_path / "r", settings)
    train_cells(CELLS[:2], settings, store)
    (timing,) = store.timings()
    assert timing.solo_seconds is None or timing.solo_seconds > 0
    timing = GroupTiming("small", 4, 10, 8.0, "matrices", "cpu", solo_seconds=1.0)
    assert (timing.seconds_per_epoch, timing.speedup) == (0.2, 5.0)
    assert replace(timing, solo_seconds=None).speedup is None


def test_a_folder_belongs_to_its_settings(tmp_path, images):
    settings = tiny(images)
    store = opened(tmp_path / "r", settings)
    train_cells(CELLS[:1], settings, store)
    with pytest.raises(BadInput, match="holds a reproduction already"):
        store.open(settings, resume=False, force=False)
    store.open(settings, resume=True, force=False)
    # A recipe may change as long as no network of it is asked for that is there already.
    changed = settings.with_epochs(3)
    store.open(changed, resume=True, force=False)
    assert json.loads((tmp_path / "r" / "settings.json").read_text()) == changed.to_dict()
    with pytest.raises(BadInput, match=r"other settings \(epochs\); remove it to train it anew"):
        train_cells(CELLS[:1], changed, store)
    assert train_cells(CELLS[1:2], changed, store)[0].history[-1].epoch == 3
    with pytest.raises(BadInput, match=r"other settings \(seed\)"):
        store.open(replace(settings, seed=1), resume=True, force=False)
    store.open(replace(settings, seed=1), resume=False, force=True)
    assert store.find(CELLS[0], settings) is None and store.timings() == ()


def test_another_reproduction_is_reused_only_where_it_was_trained_alike(tmp_path, images):
    settings = tiny(images)
    table = opened(tmp_path / "a", settings)
    (first,) = train_cells(CELLS[:1], settings, table)
    store = opened(tmp_path / "b", settings)
    assert train_cells(CELLS[:1], settings, store, reuse=table) == (first,)
    assert store.find(CELLS[0], settings) is None
    other = settings.with_epochs(3)
    with pytest.raises(BadInput, match=r"other settings \(epochs\)"):
        train_cells(CELLS[:1], other, opened(tmp_path / "c", other), reuse=table)


def test_damaged_and_unknown(tmp_path, images):
    settings = tiny(images)
    store = opened(tmp_path / "r", settings)
    train_cells(CELLS[:1], settings, store)
    path = next((tmp_path / "r" / "cells").iterdir())
    record = json.loads(path.read_text())
    del record["history"]
    path.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="remove it to compute it anew"):
        store.find(CELLS[0], settings)
    with pytest.raises(BadInput, match="there is no network 'huge'"):
        train_cells([Cell("huge")], settings, store)


def test_data_without_a_test_set_is_refused(tmp_path, images):
    import numpy as np

    stored = np.load(images)
    np.savez(tmp_path / "half.npz", x=stored["x_train"], y=stored["y_train"])
    settings = tiny(tmp_path / "half.npz")
    with pytest.raises(BadInput, match="no test set"):
        train_cells(CELLS[:1], settings, opened(tmp_path / "r", settings))


def test_fewer_examples(tmp_path, images):
    settings = tiny(images, examples=30)
    (result,) = train_cells(CELLS[:1], settings, opened(tmp_path / "r", settings))
    assert result.examples == 30


def test_points_of_a_history():
    result = made_up(Cell("alexnet"), ((500, 400), (4, 300), (0, 310), (2, 320)))
    assert result.train_accuracy == pytest.approx(99.8)
    assert result.test_accuracy == pytest.approx(68.0)
    assert result.fitted.epoch == result.at_fit.epoch == 6
    assert result.reached(99.0).epoch == result.best.epoch == 4
    assert made_up(Cell("alexnet"), ((5, 9), (3, 9))).at_fit.epoch == 4
    assert CellResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_random_labels_on_augmented_images_are_trained_longer(tmp_path, images):
    settings = tiny(images).with_recipes(moved_epochs=3, moved_rate_decay=0.5)
    cells = [
        Cell("small", "random-labels", augmentation) for augmentation in ("none", "crop", "full")
    ] + [Cell("small", "true", "crop")]
    store = opened(tmp_path / "r", settings)
    results = train_cells(cells, settings, store)
    assert [result.cell for result in results] == cells
    assert [result.history[-1].epoch for result in results] == [2, 3, 3, 2]
    assert [result.training["rate_decay"] == 0.5 for result in results] == [
        False, True, True, False
    ]  # fmt: skip
    assert sorted(timing.epochs for timing in store.timings()) == [2, 3]
    assert train_cells(cells, settings, store) == results
    assert settings.with_epochs(1).recipe(cells[1]).epochs == 1
