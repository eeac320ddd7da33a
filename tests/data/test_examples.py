from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from nonvacuous.data import Dataset as ExampleDataset
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput

HOSTILE = (
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "{{ 7 * 7 }}",
    "line\nbreak\ttab",
    "'; DROP TABLE runs; --",
    "\u202egnp.exe",
    "%s%n{0}",
    "",
    " leading and trailing ",
    "\N{PILE OF POO}",
)


def slow_hash(row: np.ndarray, label: int) -> str:
    """The definition, written out once more."""
    text = f"float32 {row.shape}\n".encode()
    return hashlib.sha256(
        text + row.astype("<f4").tobytes() + label.to_bytes(8, "little")
    ).hexdigest()


def test_hashes_follow_their_definition(make_examples):
    examples = make_examples(5000, shape=(1, 2, 3))  # more than one chunk
    expected = [
        slow_hash(row.numpy(), int(label))
        for row, label in zip(examples.inputs, examples.labels, strict=True)
    ]
    assert [value.decode() for value in examples.content_hashes()] == expected
    assert examples.content_hash() == hashlib.sha256("".join(expected).encode()).hexdigest()


def test_hashes_tell_values_labels_and_shapes_apart():
    row = torch.arange(4.0).reshape(1, 4)
    names = ("a", "b")
    base = Examples(row, torch.tensor([0]), names, "x")
    other_label = Examples(row, torch.tensor([1]), names, "x")
    other_shape = Examples(row.reshape(1, 2, 2), torch.tensor([0]), names, "x")
    other_value = Examples(row + 1e-7, torch.tensor([0]), names, "x")
    hashes = {value.content_hash() for value in (base, other_label, other_shape, other_value)}
    assert len(hashes) == 4
    assert base.input_hashes() == other_label.input_hashes()
    assert base.input_hashes() != other_shape.input_hashes()


def test_order_matters_for_the_whole_but_not_for_one(make_examples):
    examples = make_examples()
    reversed_order = examples.subset(np.arange(len(examples))[::-1])
    assert examples.content_hash() != reversed_order.content_hash()
    assert set(examples.content_hashes()) == set(reversed_order.content_hashes())


def test_memory_layout_does_not_matter(make_examples):
    examples = make_examples(shape=(2, 3))
    strided = examples.inputs.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    again = Examples(strided, examples.labels, examples.class_names, "x")
    assert again.content_hash() == examples.content_hash()


def test_hashes_are_computed_once_and_handed_to_subsets(make_examples):
    examples = make_examples()
    first = examples.content_hashes()
    assert examples.content_hashes() is first
    assert not first.flags.writeable
    part = examples.subset([5, 3])
    assert part.content_hashes().tolist() == [first[5], first[3]]
    fresh = Examples(part.inputs, part.labels, part.class_names, "x")
    assert fresh.content_hashes().tolist() == part.content_hashes().tolist()
    assert examples.to("cpu").content_hashes().tolist() == first.tolist()


def test_writing_into_the_tensors_is_noticed(make_examples):
    examples = make_examples()
    before = examples.content_hash()
    examples.inputs[0, 0] += 1
    assert examples.content_hash() != before
    before = examples.content_hash()
    examples.labels[0] = 2
    assert examples.content_hash() != before


def test_all_examples_in_their_order_are_not_copied(make_examples):
    examples = make_examples()
    hashes = examples.content_hashes()
    everything = examples.subset(np.arange(len(examples)))
    assert everything.inputs is examples.inputs and everything.labels is examples.labels
    assert everything.content_hashes() is hashes
    assert examples.subset(np.arange(len(examples) - 1)).inputs is not examples.inputs


def test_subset_keeps_order_and_names(make_examples):
    examples = make_examples()
    for indices in ([7, 2, 2], np.array([7, 2, 2]), torch.tensor([7, 2, 2]), np.uint8([7, 2, 2])):
        part = examples.subset(indices)
        assert torch.equal(part.inputs, examples.inputs[[7, 2, 2]])
        assert part.labels.tolist() == [1, 2, 2]
        assert part.class_names == examples.class_names
    assert len(examples.subset([])) == 0


@pytest.mark.parametrize(
    "indices", [[60], [-1], [0.5], [[1]], [True, False], np.ones(60, dtype=bool), ["a"]]
)
def test_subset_refuses(make_examples, indices):
    with pytest.raises(BadInput, match="made up"):
        make_examples().subset(indices)


@pytest.mark.parametrize(
    "inputs",
    [
        torch.rand(6, 2),
        np.random.default_rng(0).random((6, 2)),
        np.random.default_rng(0).random((6, 2)).astype(">f4"),
        np.random.default_rng(0).random((2, 6)).T[::-1],
        np.arange(12, dtype=np.uint16).reshape(6, 2),
        np.arange(12, dtype=np.longdouble).reshape(6, 2),
        [[0.0, 1.0]] * 6,
        torch.rand(6, 2, dtype=torch.bfloat16),
        torch.rand(6, 2, requires_grad=True),
        np.zeros((6, 2), dtype=bool),
    ],
)
def test_of_takes_many_kinds_of_numbers(inputs):
    examples = Examples.of((inputs, [0, 1, 0, 1, 0, 1]))
    expected = inputs.detach().float().numpy() if isinstance(inputs, torch.Tensor) else inputs
    assert examples.inputs.dtype == torch.float32
    assert not examples.inputs.requires_grad
    np.testing.assert_array_equal(examples.inputs.numpy(), np.asarray(expected, dtype=np.float32))
    assert examples.preprocessing == ()
    assert examples.class_names == ("0", "1")


@pytest.mark.parametrize("convert", [torch.from_numpy, lambda array: array])
def test_of_divides_pixels_by_255_and_says_so(convert):
    pixels = np.array([[0, 51], [102, 255]], dtype=np.uint8)
    examples = Examples.of((convert(pixels), np.array([0, 1])))
    np.testing.assert_array_equal(
        examples.inputs.numpy(), pixels.astype(np.float32) / np.float32(255)
    )
    assert examples.preprocessing == ("pixel/255",)
    assert pixels.max() == 255  # the argument is left alone


def test_of_keeps_the_shape_the_network_was_built_for():
    assert Examples.of((torch.rand(4, 5, 5, 3), torch.tensor([0, 1, 0, 1]))).example_shape == (
        5,
        5,
        3,
    )


def test_of_examples_and_torch_datasets(make_examples):
    examples = make_examples()
    assert Examples.of(examples) is examples
    assert Examples.of(examples, name="other").name == "other"
    same = Examples.of(TensorDataset(examples.inputs, examples.labels))
    assert same.content_hash() == examples.content_hash()

    class Items(Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, index):
            return examples.inputs[index].numpy(), int(examples.labels[index])

    assert Examples.of(Items()).content_hash() == examples.content_hash()
    part = torch.utils.data.Subset(TensorDataset(examples.inputs, examples.labels), [3, 4, 5])
    assert Examples.of(part).labels.tolist() == [0, 1, 2]


def test_text_labels_become_classes_in_sorted_order():
    examples = Examples.of((np.zeros((4, 1)), np.array(["dog", "cat", "dog", "Ant"])))
    assert examples.class_names == ("Ant", "cat", "dog")
    assert examples.labels.tolist() == [2, 1, 2, 0]
    as_bytes = Examples.of((np.zeros((2, 1)), np.array(["é".encode(), b"a"])))
    assert as_bytes.class_names == ("a", "é")


def test_hostile_class_names_pass_through_unharmed():
    labels = np.array(HOSTILE)
    examples = Examples.of((np.zeros((len(labels), 1)), labels))
    assert examples.class_names == tuple(sorted(HOSTILE))
    assert [examples.class_names[label] for label in examples.labels] == list(HOSTILE)


def test_column_labels_and_booleans():
    assert Examples.of((np.zeros((2, 1)), [[1], [0]])).labels.tolist() == [1, 0]
    assert Examples.of((np.zeros((2, 1)), [True, False])).labels.tolist() == [1, 0]


def test_named_classes_may_be_absent():
    examples = Examples.of((np.zeros((2, 1)), [0, 2]), class_names=("a", "b", "c"))
    assert examples.labels.tolist() == [0, 2]


class Growing(Dataset):
    """An augmentation: another input each time."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.rand(2), index % 2


class WithAltered(Growing):
    """Altered copies of a rare class, after the others."""

    def __len__(self):
        return 200

    def __getitem__(self, index):
        return (torch.rand(2) if index >= 150 else torch.full((2,), index)), index % 2


def test_altered_copies_are_found_wherever_they_stand():
    with pytest.raises(BadInput, match=r"item 1\d\d of the dataset is different each time"):
        Examples.of(WithAltered())


def test_examples_lead_to_no_gradient():
    inputs = torch.randn(4, 2, requires_grad=True)
    examples = Examples(inputs, torch.tensor([0, 1, 0, 1]), ("a", "b"), "w")
    assert not examples.inputs.requires_grad
    assert examples.inputs.data_ptr() == inputs.data_ptr()


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_sparse_inputs_are_refused_by_their_layout(layout):
    with pytest.raises(BadInput, match=r"not torch\.sparse"):
        Examples.of((getattr(torch.eye(4), layout)(), [0, 1, 0, 1]))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


class Bare(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.rand(2)


class Pictures(Bare):
    def __getitem__(self, index):
        return object(), 0


class Uneven(Bare):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.zeros(index + 1), 0


X = np.zeros((4, 2))
BAD = {
    "not a pair": (3, "pair"),
    "three things": ((X, X, X), "pair"),
    "text inputs": ((np.array([["a"], ["b"]]), [0, 1]), "inputs must be numbers"),
    "complex inputs": ((torch.zeros(2, 2, dtype=torch.complex64), [0, 1]), "real numbers"),
    "flat inputs": ((np.zeros(4), [0, 1, 0, 1]), r"shape \(4,\)"),
    "empty inputs": ((np.zeros((4, 0)), [0, 1, 0, 1]), "empty"),
    "ragged inputs": (([[1, 2], [3]], [0, 1]), "cannot be read as an array"),
    "object inputs": ((np.array([[None], [1]]), [0, 1]), "Python objects"),
    "unequal lengths": ((X, [0, 1, 0]), "4 inputs but 3 labels"),
    "float labels": ((X, [0.0, 1.0, 0.0, 1.0]), "not an integer"),
    "bfloat16 labels": ((X, torch.zeros(4, dtype=torch.bfloat16)), "not an integer"),
    "nan labels": ((X, [0.0, np.nan, 0.0, 1.0]), "not an integer"),
    "one-hot labels": ((X, np.eye(4, dtype=int)), "argmax"),
    "scalar labels": ((X, 3), "one label per example"),
    "object labels": ((X, np.array([None, 1, 2, 3])), "Python objects"),
    "label gap": ((X, [0, 1, 3, 3]), "no example has label 2"),
    "labels from one": ((X, [1, 2, 1, 2]), "no example has label 0"),
    "huge label": ((X, [0, 1, 10**15, 0]), "no example has label 2"),
    "overflowing label": ((X, np.array([0, 1, 2**64 - 1, 0], dtype=np.uint64)), "too large"),
    "negative label": ((X, [0, 1, -1, 0]), "negative"),
    "no examples": ((np.zeros((0, 2)), np.zeros(0, dtype=int)), "no labels"),
    "bytes that are not text": ((X[:2], np.array([b"\xff", b"a"])), "UTF-8"),
    "nan": ((np.array([[0.0], [np.nan], [1.0]]), [0, 1, 0]), "1 of 3 inputs .* position 1"),
    "infinity": ((np.array([[0.0], [1.0], [-np.inf]]), [0, 1, 0]), "position 2"),
    "overflow to infinity": ((np.array([[0.0], [1e300]]), [0, 1]), "infinity"),
    "three tensors": (
        TensorDataset(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2)),
        "3 tensors",
    ),
    "augmentation": (Growing(), "random augmentation"),
    "endless": (Endless(), "no length"),
    "no labels": (Bare(), "not a pair"),
    "images": (Pictures(), "not a tensor"),
    "uneven": (Uneven(), "different shapes"),
}


@pytest.mark.parametrize("case", BAD)
def test_of_refuses(case):
    value, message = BAD[case]
    with pytest.raises(BadInput, match=message):
        Examples.of(value)


def test_constructor_refuses():
    inputs, labels = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    with pytest.raises(BadInput, match="float32"):
        Examples(inputs.double(), labels, ("a", "b"), "x")
    with pytest.raises(BadInput, match="int64"):
        Examples(inputs, labels.int(), ("a", "b"), "x")
    with pytest.raises(BadInput, match="tensors"):
        Examples(inputs.numpy(), labels, ("a", "b"), "x")
    with pytest.raises(BadInput, match="shape"):
        Examples(inputs, labels[:2], ("a", "b"), "x")
    with pytest.raises(BadInput, match="0 to 1"):
        Examples(inputs, labels, ("a",), "x")
    with pytest.raises(BadInput, match="different strings"):
        Examples(inputs, labels, ("a", "a"), "x")
    with pytest.raises(BadInput, match="not valid text"):
        Examples(inputs, labels, ("a", "\udcff"), "x")


def test_dataset_parts_must_fit_together(make_examples):
    train = make_examples(shape=(4,))
    assert ExampleDataset(train).test is None
    with pytest.raises(BadInput, match="shape"):
        ExampleDataset(train, make_examples(shape=(5,)))
    with pytest.raises(BadInput, match="different classes"):
        ExampleDataset(train, make_examples(classes=4))
