from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from nonvacuous.data import (
    Dataset,
    Examples,
    check_examples,
    count_repeats,
    describe,
    find_duplicates,
)
from nonvacuous.errors import BadInput


def test_good_examples_pass(make_examples):
    check_examples(make_examples())


def test_too_few(make_examples):
    check_examples(make_examples(50))
    with pytest.raises(BadInput, match="49 examples are too few"):
        check_examples(make_examples(49))
    check_examples(make_examples(3), minimum=3)


def test_one_class(make_examples):
    with pytest.raises(BadInput, match="only one class"):
        check_examples(make_examples(classes=1))


def test_label_gap(make_examples):
    examples = replace(make_examples(), class_names=("a", "b", "c", "d"))
    with pytest.raises(BadInput, match=r"no example of class 3 \('d'\)"):
        check_examples(examples)
    check_examples(examples, every_class=False)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_finite(make_examples, value):
    examples = make_examples()
    examples.inputs[17, 2] = value
    with pytest.raises(BadInput, match=r"1 of 60 inputs .* position 17"):
        check_examples(examples)


def test_duplicates_are_found_where_they_are(make_examples):
    first, second = make_examples(seed=0), make_examples(seed=1)
    assert len(find_duplicates(first, second)) == 0
    inputs, labels = second.inputs.clone(), second.labels.clone()
    inputs[9], labels[9] = first.inputs[30], first.labels[30]
    inputs[20], labels[20] = first.inputs[5], (first.labels[5] + 1) % 3
    mixed = Examples(inputs, labels, second.class_names, "mixed")
    exact = find_duplicates(first, mixed)
    assert exact.tolist() == [9]
    relabeled = find_duplicates(first, mixed, ignore_labels=True)
    assert relabeled.tolist() == [9, 20]


def test_repeats(make_examples):
    examples = make_examples()
    assert count_repeats(examples) == 0
    assert count_repeats(examples.subset([0, 1, 0, 2, 0])) == 2
    flipped = Examples(
        examples.inputs[[0, 0]], torch.tensor([0, 1]), examples.class_names, "flipped"
    )
    assert count_repeats(flipped) == 0
    assert count_repeats(flipped, ignore_labels=True) == 1


def test_describe_is_plain_json(make_examples):
    train = make_examples()
    test = train.subset([0, 1, 2, 2])
    record = json.loads(json.dumps(describe(Dataset(train, test))))
    assert record["classes"] == 3
    assert record["example_shape"] == [4]
    assert record["train"]["examples"] == 60
    assert record["train"]["label_counts"] == [20, 20, 20]
    assert record["train"]["content_hash"] == train.content_hash()
    assert record["test"]["label_counts"] == [1, 1, 2]
    assert record["test"]["repeats"] == {"inputs": 1, "inputs_and_labels": 1}
    assert record["duplicates_across"] == {"inputs": 4, "inputs_and_labels": 4}
    alone = describe(Dataset(train))
    assert alone["test"] is None and alone["duplicates_across"] is None
