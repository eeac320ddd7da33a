from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from nonvacuous.data import NAMES, Dataset, digits, load
from nonvacuous.errors import BadInput

LABELS = np.arange(60) % 3


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("NONVACUOUS_DATA", raising=False)
    # The function load hides the module of that name, so the module is taken from where it is kept.
    monkeypatch.setattr(
        sys.modules["nonvacuous.data.load"], "_SYSTEM_FOLDER", tmp_path / "no such folder"
    )


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into the current folder and import it as a user would."""
    monkeypatch.chdir(tmp_path)

    def write(body: str, name: str = "my_data_module") -> str:
        (tmp_path / f"{name}.py").write_text("import numpy as np\n" + body)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    yield write
    sys.modules.pop("my_data_module", None)


def test_digits():
    dataset = load("digits")
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    assert dataset.train.example_shape == (1, 8, 8)
    assert (float(dataset.train.inputs.min()), float(dataset.train.inputs.max())) == (0.0, 1.0)
    assert dataset.train.content_hash() == digits().train.content_hash()
    assert dataset.train.content_hash() != digits(seed=1).train.content_hash()
    together = set(dataset.train.content_hashes()) | set(dataset.test.content_hashes())
    assert len(together) == 1797


def test_digits_stay_what_they_are():
    """A changed split would change every published number on digits."""
    dataset = digits()
    assert dataset.train.content_hash().startswith("c07357ccdea6e125")
    assert dataset.test.content_hash().startswith("3a1a42794ba775f4")


def test_named_data_from_argument_and_environment(tmp_path, write_idx, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 4, 4))
    labels = np.arange(60) % 10
    for part in ("train", "t10k"):
        write_idx(tmp_path / "mnist" / f"{part}-images-idx3-ubyte.gz", pixels)
        write_idx(tmp_path / "mnist" / f"{part}-labels-idx1-ubyte.gz", labels)
    dataset = load("mnist", data_dir=tmp_path)
    assert dataset.train.class_names == tuple("0123456789")
    assert dataset.test.name == "mnist (test)"
    monkeypatch.setenv("NONVACUOUS_DATA", str(tmp_path))
    assert load("mnist").train.content_hash() == dataset.train.content_hash()
    assert load(tmp_path / "mnist").train.content_hash() == dataset.train.content_hash()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(BadInput, match=r"no file t10k-labels-idx1-ubyte.gz"):
        load("mnist")


@pytest.mark.slow
def test_digits_are_scikit_learns_without_its_import():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    dataset = digits()
    inputs = torch.cat([dataset.train.inputs, dataset.test.inputs])[:, 0]
    assert inputs.sum() * 16 == bunch.images.sum()
    rows = {
        (image.tobytes(), label) for image, label in zip(bunch.images, bunch.target, strict=True)
    }
    images = (dataset.train.inputs[:, 0].double() * 16).numpy()
    labels = dataset.train.labels.tolist()
    assert all(
        (image.tobytes(), label) in rows for image, label in zip(images, labels, strict=True)
    )
    code = (
        "import sys; from nonvacuous.data import digits; digits(); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_missing_data_folder(tmp_path, monkeypatch, name):
    with pytest.raises(BadInput, match=r"no data folder is set. Set NONVACUOUS_DATA or --data-dir"):
        load(name)
    with pytest.raises(BadInput, match=f"has no folder {name}. Set NONVACUOUS_DATA or --data-dir"):
        load(name, data_dir=tmp_path)


def test_cifar10_from_shards(tmp_path, write_image_table):
    labels = [index % 10 for index in range(60)]
    write_image_table(tmp_path / "cifar10" / "train-00000-of-00002.parquet", labels=labels)
    with pytest.raises(BadInput, match="not complete"):
        load("cifar10", data_dir=tmp_path)
    write_image_table(tmp_path / "cifar10" / "train-00001-of-00002.parquet", seed=1, labels=labels)
    assert load("cifar10", data_dir=tmp_path).test is None
    write_image_table(tmp_path / "cifar10" / "test-00000-of-00001.parquet", 7, seed=2)
    dataset = load("cifar10", data_dir=tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (120, 7)
    assert dataset.train.class_names[0] == "airplane"


def test_cifar10_from_decoded_arrays(tmp_path, write_image_table):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3, 4, 4), dtype=np.uint8)
    np.save(folder / "train-inputs.npy", pixels)
    with pytest.raises(BadInput, match=r"has no file train-labels\.npy"):
        load("cifar10", data_dir=tmp_path)
    np.save(folder / "train-labels.npy", np.arange(60) % 10)
    assert load("cifar10", data_dir=tmp_path).test is None
    np.save(folder / "test-inputs.npy", pixels[:7])
    np.save(folder / "test-labels.npy", np.arange(7))
    dataset = load("cifar10", data_dir=tmp_path)
    assert dataset.train.class_names[0] == "airplane"
    assert (dataset.train.preprocessing, len(dataset.test)) == (("pixel/255",), 7)
    assert np.array_equal(dataset.train.inputs.numpy(), pixels.astype(np.float32) / 255)
    assert load(folder).train.name == "cifar10"
    # The published files come first where both are there.
    write_image_table(folder / "train.parquet", labels=[index % 10 for index in range(60)])
    assert load("cifar10", data_dir=tmp_path).test is None


@pytest.mark.parametrize("content", [b"not an array", b""])
def test_arrays_that_cannot_be_read(tmp_path, content):
    (tmp_path / "train-inputs.npy").write_bytes(content)
    with pytest.raises(BadInput, match=r"train-inputs\.npy cannot be read"):
        load(tmp_path)
    np.save(tmp_path / "train-inputs.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(BadInput, match="cannot be read as one plain array"):
        load(tmp_path)
    with open(tmp_path / "train-inputs.npy", "wb") as stream:
        np.savez(stream, a=np.zeros(3))
    with pytest.raises(BadInput, match="holds several arrays"):
        load(tmp_path)


def test_parquet_file_and_folder(tmp_path, write_image_table):
    write_image_table(tmp_path / "d" / "train.parquet")
    assert len(load(tmp_path / "d" / "train.parquet").train) == 60
    assert len(load(str(tmp_path / "d")).train) == 60
    (tmp_path / "d" / "train.parquet").rename(tmp_path / "d" / "other.parquet")
    with pytest.raises(BadInput, match="starts with train"):
        load(tmp_path / "d")


def test_npz_file(tmp_path):
    np.savez(tmp_path / "d.npz", inputs=np.random.default_rng(0).random((60, 4)), labels=LABELS)
    assert load(tmp_path / "d.npz").train.name == "d"


def test_image_folders(tmp_path, encode):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 4, 4), dtype=np.uint8)
    for part, count in (("train", 60), ("test", 6)):
        for position in range(count):
            path = tmp_path / "own" / part / f"class {position % 3}" / f"{position}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(pixels[position]))
    dataset = load(tmp_path / "own")
    assert (len(dataset.train), len(dataset.test)) == (60, 6)
    assert dataset.train.class_names == ("class 0", "class 1", "class 2")
    assert load(tmp_path / "own" / "train").test is None


@pytest.mark.parametrize(
    "body",
    [
        "return np.zeros((60, 2)), np.arange(60) % 3",
        "return [np.zeros((60, 2)), np.arange(60) % 3]",
        "return (np.zeros((60, 2)), np.arange(60) % 3), (np.zeros((5, 2)), np.arange(5) % 3)",
        "return {'train': (np.zeros((60, 2)), np.arange(60) % 3),"
        " 'test': (np.zeros((5, 2)), [0] * 5)}",
        "from nonvacuous.data import Examples\n"
        "    return Examples.of((np.zeros((60, 2)), np.arange(60) % 3))",
        "from nonvacuous.data import Dataset, Examples\n"
        "    return Dataset(Examples.of((np.zeros((60, 2)), np.arange(60) % 3)))",
        "import torch\n"
        "    return torch.utils.data.TensorDataset(torch.zeros(60, 2), torch.arange(60) % 3)",
    ],
)
def test_own_function(module, body):
    name = module(f"def make():\n    {body}\n")
    before = list(sys.path)
    dataset = load(f"{name}:make")
    assert sys.path == before
    assert isinstance(dataset, Dataset)
    assert len(dataset.train) == 60
    assert dataset.train.labels.tolist() == LABELS.tolist()


def test_own_function_that_imports_its_neighbor_when_called(module):
    module("def values():\n    return np.zeros((60, 2)), np.arange(60) % 3\n", "my_neighbor_module")
    name = module("def make():\n    import my_neighbor_module as n\n    return n.values()\n")
    try:
        assert len(load(f"{name}:make").train) == 60
    finally:
        sys.modules.pop("my_neighbor_module", None)


@pytest.mark.parametrize(
    ("body", "function", "message"),
    [
        ("", "make", "has nothing called make"),
        ("make = 3", "make", "is a int, not a function"),
        ("def make(): return None", "make", "returned nothing"),
        ("def make(): return 'hello'", "make", "cannot read examples from str"),
        ("def make(): return {'x': 1}", "make", r"keys \['x'\]"),
        ("def make(): raise KeyError('hm')", "make", "raised KeyError: 'hm'"),
        ("def make(argument): return 1", "make", "raised TypeError"),
        ("def make(): return np.zeros((60, 2)), np.zeros(60)", "make", "not an integer"),
        ("raise RuntimeError('at import')", "make", "RuntimeError: at import"),
        ("def make(:", "make", "SyntaxError"),
    ],
)
def test_bad_function(module, body, function, message):
    with pytest.raises(BadInput, match=message):
        load(f"{module(body)}:{function}")


def test_module_that_does_not_exist():
    with pytest.raises(BadInput, match=r"no_such_package.module cannot be imported"):
        load("no_such_package.module:load")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("fashion_mnist", "did you mean fashion-mnist"),
        ("minst", "did you mean mnist"),
        ("/no/such/file.npz", "check the spelling"),
        ("", "no data set ''"),
        ("a:b:c", "no data set"),
    ],
)
def test_unknown_source(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=message):
        load(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nofile.csv:outcome", "there is no file nofile.csv"),
        ("some/nofile.parquet:out come", "there is no file some/nofile.parquet"),
        ("mk.py:load", "write mk:load"),
        ("./mk.py:load", "write mk:load"),
        ("~nobody-of-this-name/x.csv:y", "is not the path of a file"),
        (f"{'a' * 5000}.csv:y", "a...' is not the path of a file"),
    ],
)
def test_files_that_are_not_there(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mk.py").write_text("def load():\n    return None\n")
    with pytest.raises(BadInput, match=re.escape(message)):
        load(source)


def test_unknown_file_type(tmp_path):
    (tmp_path / "d.pkl").write_text("x")
    with pytest.raises(BadInput, match=r"ending in .pkl cannot be read; expected .npz"):
        load(tmp_path / "d.pkl")


def test_load_checks_what_it_read(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, x=np.zeros((49, 2)), y=np.arange(49) % 2)
    with pytest.raises(BadInput, match="49 examples are too few"):
        load(path)
    np.savez(path, x=np.zeros((60, 2)), y=np.zeros(60, dtype=int))
    with pytest.raises(BadInput, match="only one class"):
        load(path)
    np.savez(
        path, x_train=np.zeros((60, 2)), y_train=LABELS,
        x_test=np.zeros((0, 2)), y_test=np.zeros(0, dtype=int),
    )  # fmt: skip
    with pytest.raises(BadInput, match="0 examples are too few"):
        load(path)


def test_a_misspelled_file_with_its_column_is_no_module_alone() -> None:
    with pytest.raises(BadInput, match=r"there is no file train\.csvv, and the module train\.csvv"):
        load("train.csvv:fruit")
