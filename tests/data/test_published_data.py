"""The well-known data sets as published: their bytes, counts and statistics."""

from __future__ import annotations

import gzip
import hashlib

import numpy as np
import pytest

from nonvacuous.data import Standardize, describe, load, read_parquet
from nonvacuous.data.load import CIFAR_NAMES


@pytest.mark.slow
def test_mnist(data_dir):
    with gzip.open(data_dir / "mnist" / "train-images-idx3-ubyte.gz") as stream:
        assert hashlib.file_digest(stream, "md5").hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    dataset = load("mnist", data_dir=data_dir)
    record = describe(dataset)
    assert record["train"]["label_counts"] == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert record["test"]["label_counts"] == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert record["example_shape"] == [1, 28, 28]
    assert record["duplicates_across"]["inputs"] == 0
    # Widely quoted: mean .1307, standard deviation .3081.
    transform = Standardize.fit(dataset.train)
    assert transform.means[0] == pytest.approx(0.1307, abs=5e-5)
    assert transform.scales[0] == pytest.approx(0.3081, abs=5e-5)


def test_fashion_mnist(data_dir):
    dataset = load("fashion-mnist", data_dir=data_dir)
    assert np.bincount(dataset.train.labels.numpy()).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels.numpy()).tolist() == [1000] * 10
    assert dataset.train.class_names[9] == "Ankle boot"
    assert int(dataset.train.labels[0]) == 9


@pytest.mark.nightly  # by day its test images, below
def test_cifar10(data_dir):
    dataset = load("cifar10", data_dir=data_dir)
    assert dataset.train.inputs.shape == (50_000, 3, 32, 32)
    assert np.bincount(dataset.train.labels.numpy()).tolist() == [5000] * 10
    assert np.bincount(dataset.test.labels.numpy()).tolist() == [1000] * 10
    transform = Standardize.fit(dataset.train)
    assert transform.means == pytest.approx((0.49140, 0.48216, 0.44653), abs=5e-6)
    assert transform.scales == pytest.approx((0.24703, 0.24349, 0.26159), abs=5e-6)


def test_cifar10_test_images(data_dir):
    examples = read_parquet(
        data_dir / "cifar10" / "test-00000-of-00001.parquet", class_names=CIFAR_NAMES
    )
    assert np.bincount(examples.labels.numpy()).tolist() == [1000] * 10
    # The first test image shows a cat.
    assert examples.class_names[int(examples.labels[0])] == "cat"
