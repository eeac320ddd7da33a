from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest
import torch

from nonvacuous.data import load, read_idx, read_images, read_npz, read_parquet
from nonvacuous.data.readers import FILE_READERS
from nonvacuous.data.readers.pictures import read_idx_array
from nonvacuous.data.readers.tables import other_labels
from nonvacuous.errors import BadInput

GENERATOR = np.random.default_rng(0)
PIXELS = GENERATOR.integers(0, 256, (60, 4, 5), dtype=np.uint8)
LABELS = np.arange(60) % 3


def unit(pixels: np.ndarray) -> np.ndarray:
    return pixels.astype(np.float32) / np.float32(255)


class Bomb:
    """Runs when it is unpickled; no reader may do that."""

    def __reduce__(self):
        return sys.exit, (13,)


# ---------------------------------------------------------------------------------- every reader


@pytest.mark.parametrize("suffix", FILE_READERS)
def test_every_reader_refuses_what_it_cannot_read_and_runs_nothing(tmp_path, suffix):
    """What enters the table inherits this."""
    file = tmp_path / f"broken{suffix}"
    texts = (b"", b"\n", b"\xff\xfe\x00", b"{", b"[" * 100_000, b"null", b"a,b\n1", b"PK\x03\x04")
    for content in (*texts, bytes(range(256)) * 4, pickle.dumps(Bomb(), protocol=2)):
        file.write_bytes(content)
        with pytest.raises(BadInput) as refusal:
            load(file)
        assert file.name in str(refusal.value)


# ------------------------------------------------------------------------------------------ IDX


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx(tmp_path, write_idx, suffix):
    images = write_idx(tmp_path / f"images{suffix}", PIXELS)
    labels = write_idx(tmp_path / f"labels{suffix}", LABELS)
    examples = read_idx(images, labels, name="tiny")
    assert examples.example_shape == (1, 4, 5)
    np.testing.assert_array_equal(examples.inputs[:, 0].numpy(), unit(PIXELS))
    assert examples.labels.tolist() == LABELS.tolist()
    assert examples.class_names == ("0", "1", "2")
    assert examples.preprocessing == ("pixel/255",)


def test_idx_of_floats(tmp_path):
    values = GENERATOR.random((3, 2)).astype(">f4")
    (tmp_path / "f").write_bytes(
        bytes([0, 0, 0x0D, 2]) + struct.pack(">2I", 3, 2) + values.tobytes()
    )
    np.testing.assert_array_equal(read_idx_array(tmp_path / "f"), values)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not an IDX file"),
        (b"hello there", "not an IDX file"),
        (bytes([0, 0, 7, 1]) + bytes(8), "not an IDX file"),
        (bytes([0, 0, 8, 0]), "not an IDX file"),
        (bytes([0, 0, 8, 3]) + bytes(5), "within its header"),
        (bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + b"1234", "announces"),
        (bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + b"1234", "announces"),
        (bytes([0, 0, 8, 2]) + b"\xff" * 8 + b"12", "announces"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"12", "announces|unpacked"),
        (
            gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 500) + bytes(500), mtime=0)[:-12],
            "unpacked",
        ),
        (b"\x1f\x8b" + b"garbage", "unpacked"),
    ],
)
def test_bad_idx(tmp_path, body, message):
    (tmp_path / "bad").write_bytes(body)
    with pytest.raises(BadInput, match=message):
        read_idx_array(tmp_path / "bad")


def test_idx_files_that_do_not_belong_together(tmp_path, write_idx):
    images = write_idx(tmp_path / "images", PIXELS)
    with pytest.raises(BadInput, match=r"60 images but .* 59 labels"):
        read_idx(images, write_idx(tmp_path / "labels", LABELS[:59]))
    with pytest.raises(BadInput, match="no file"):
        read_idx(images, tmp_path / "missing")


# ------------------------------------------------------------------------------------------ npz


@pytest.mark.parametrize("keys", [("inputs", "labels"), ("x", "y"), ("x_train", "y_train")])
def test_npz_keys(tmp_path, keys):
    inputs = GENERATOR.random((60, 4))
    np.savez(tmp_path / "d.npz", **{keys[0]: inputs, keys[1]: LABELS})
    dataset = read_npz(tmp_path / "d.npz")
    assert dataset.test is None and dataset.name == "d"
    np.testing.assert_array_equal(dataset.train.inputs.numpy(), inputs.astype(np.float32))
    assert dataset.train.labels.tolist() == LABELS.tolist()


def test_npz_with_test_set_and_text_labels(tmp_path):
    words = np.array(["b", "a", "<i>"])[LABELS]
    np.savez(
        tmp_path / "d.npz",
        x_train=PIXELS, y_train=words, x_test=PIXELS[:3], y_test=np.array(["b", "b", "a"]),
    )  # fmt: skip
    dataset = read_npz(tmp_path / "d.npz")
    assert dataset.train.class_names == ("<i>", "a", "b")
    assert dataset.test.labels.tolist() == [2, 2, 1]
    assert dataset.train.example_shape == (1, 4, 5)


def test_npz_with_class_names_and_column_labels(tmp_path):
    np.savez(
        tmp_path / "d.npz",
        x=PIXELS,
        y=LABELS[:, None],
        class_names=np.array(["x", "y", "z", "never"]),
    )
    assert read_npz(tmp_path / "d.npz").train.class_names == ("x", "y", "z", "never")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_npz_channels_last_are_turned(tmp_path, dtype):
    color = GENERATOR.integers(0, 2, (60, 6, 7, 3)).astype(dtype)
    np.savez(tmp_path / "d.npz", x=color, y=LABELS)
    train = read_npz(tmp_path / "d.npz").train
    assert train.example_shape == (3, 6, 7)
    scale = np.float32(255 if dtype == np.uint8 else 1)
    np.testing.assert_array_equal(train.inputs.numpy(), color.transpose(0, 3, 1, 2) / scale)
    np.savez(tmp_path / "d.npz", x=color.transpose(0, 3, 1, 2), y=LABELS)
    assert read_npz(tmp_path / "d.npz").train.content_hash() == train.content_hash()


def test_npz_shape_in_doubt_is_left_alone(tmp_path):
    values = GENERATOR.random((60, 3, 5, 3))
    np.savez(tmp_path / "d.npz", x=values, y=LABELS)
    train = read_npz(tmp_path / "d.npz").train
    np.testing.assert_array_equal(train.inputs.numpy(), values.astype(np.float32))


GOOD = {"x": np.zeros((60, 2)), "y": LABELS}
BAD_NPZ = {
    "missing keys": ({"a": GOOD["x"], "y": LABELS}, "Found: a, y. Expected: inputs and labels"),
    "no keys": ({}, "no keys at all"),
    "two pairs": (GOOD | {"inputs": GOOD["x"], "labels": LABELS}, "more than one pair"),
    "half a test set": (
        {"x_train": GOOD["x"], "y_train": LABELS, "x_test": GOOD["x"]},
        "only one of",
    ),
    "unequal lengths": ({"x": GOOD["x"], "y": LABELS[:5]}, "60 inputs but 5 labels"),
    "float labels": ({"x": GOOD["x"], "y": LABELS + 0.5}, "this is regression"),
    "label gap": ({"x": GOOD["x"], "y": LABELS * 2}, "no example has label 1"),
    "nan": ({"x": np.full((60, 2), np.nan), "y": LABELS}, "60 of 60 inputs contain NaN"),
    "objects": ({"x": np.full((60, 2), Bomb()), "y": LABELS}, "'x' .* Python objects are refused"),
    "object labels": ({"x": GOOD["x"], "y": np.full(60, Bomb())}, "Python objects are refused"),
    "odd class names": (GOOD | {"class_names": np.arange(3)}, "list of text"),
    "too few class names": (GOOD | {"class_names": np.array(["a"])}, "there are 1 class names"),
    "unknown test label": (
        {"x_train": GOOD["x"], "y_train": LABELS, "x_test": GOOD["x"][:1], "y_test": [3]},
        "labels go from 3 to 3 but there are 3 class names",
    ),
    "unknown test word": (
        {"x_train": GOOD["x"], "y_train": LABELS.astype(str), "x_test": GOOD["x"][:1],
         "y_test": ["new"]},
        "'new' is not one of the classes '0', '1', '2'; class names \\(--classes\\) must name all: "
        "0,1,2,new, and without them the training data must have examples of it",
    ),
    "test shape": (
        {"x_train": GOOD["x"], "y_train": LABELS, "x_test": np.zeros((1, 3)), "y_test": [0]},
        "must be equal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz(tmp_path, case):
    arrays, message = BAD_NPZ[case]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(BadInput, match=message):
        read_npz(tmp_path / "bad.npz")


def test_npz_that_is_none(tmp_path):
    path = tmp_path / "bad.npz"
    with pytest.raises(BadInput, match="no file"):
        read_npz(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput, match="cannot be read as an npz"):
        read_npz(path)
    path.write_bytes(b"")
    with pytest.raises(BadInput, match="cannot be read as an npz"):
        read_npz(path)
    with open(path, "wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(BadInput, match="single array"):
        read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:  # an array that claims to fill all memory
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)}
        )
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(BadInput, match=r"'x' .* cannot be read"):
        read_npz(path)
    np.savez(path, x=np.zeros((100, 100)), y=LABELS)
    body = bytearray(path.read_bytes())
    body[2000] ^= 0xFF
    path.write_bytes(body)
    with pytest.raises(BadInput, match=r"'x' .* damaged"):
        read_npz(path)


# -------------------------------------------------------------------------------------- parquet


def write_table(path, columns, metadata=None):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, path, row_group_size=7)
    return path


@pytest.mark.slow
def test_parquet_images_in_shards(tmp_path, write_image_table):
    first = write_image_table(tmp_path / "1.parquet", 30, seed=1)
    second = write_image_table(tmp_path / "2.parquet", 31, seed=2)
    examples = read_parquet([tmp_path / "1.parquet", tmp_path / "2.parquet"], name="two")
    expected = unit(np.concatenate([first, second]).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(examples.inputs.numpy(), expected)
    assert examples.labels[30:33].tolist() == [0, 1, 2]
    assert (examples.name, examples.preprocessing) == ("two", ("pixel/255",))


def test_parquet_labels_must_be_numbers_or_text(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number, labels in enumerate(([b"a", b"b", b"a\0"], [[0], [1], [0]])):
        path = tmp_path / f"{number}.parquet"
        parquet.write_table(arrow.table({"x": [0.1, 0.2, 0.3], "label": labels}), path)
        with pytest.raises(BadInput, match="give numbers or text"):
            read_parquet([path])


def test_parquet_plain_image_bytes(tmp_path, encode):
    path = write_table(
        tmp_path / "d.parquet",
        {"image": [encode(image) for image in PIXELS], "label": LABELS.tolist()},
    )
    np.testing.assert_array_equal(read_parquet(path).inputs[:, 0].numpy(), unit(PIXELS))


def test_parquet_numbers(tmp_path):
    path = write_table(
        tmp_path / "d.parquet",
        {"b": np.arange(60), "label": LABELS, "a": np.linspace(0, 1, 60), "c": [True] * 60},
    )
    examples = read_parquet(path)
    assert examples.example_shape == (3,)  # in the order of the file
    assert torch.equal(examples.inputs[:, 0], torch.arange(60.0))
    assert examples.preprocessing == ()
    pixels = {f"p{index}": PIXELS[:, 0, index] for index in range(5)}
    examples = read_parquet(write_table(tmp_path / "p.parquet", pixels | {"y": LABELS}))
    np.testing.assert_array_equal(examples.inputs.numpy(), unit(PIXELS[:, 0]))


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_the_column_of_labels_stands_behind_the_file(tmp_path, ending):
    """Whatever it is called; a column with a usual name is then an input like others."""
    columns = {"a": np.arange(60.0), "y": np.arange(60.0), "out come": LABELS}
    path = tmp_path / f"d.{ending}"
    if ending == "parquet":
        write_table(path, columns)
    else:
        rows = zip(*columns.values(), strict=True)
        mark = "," if ending == "csv" else "\t"
        path.write_text("\n".join(mark.join(map(str, row)) for row in (columns, *rows)))
    read = load(f"{path}:out come").train
    assert read.example_shape == (2,) and read.labels.tolist() == list(LABELS)
    assert read.name == "d:out come"  # of other labels it would be other data
    assert other_labels(path, "out come") == ["y"]
    with pytest.raises(
        BadInput, match=r"needs one column named outcome .* did you mean out come\?"
    ):
        load(f"{path}:outcome")


def test_a_column_of_labels_is_asked_for_by_name(tmp_path):
    names = [f"c{number}" for number in range(30)]
    (tmp_path / "d.csv").write_text(",".join(names) + "\n" + ",".join("1" * 30))
    with pytest.raises(BadInput, match=r"c9, \.\.\., c20.*c29'; .* FILE:COLUMN"):
        load(tmp_path / "d.csv")
    (tmp_path / "d.npz").write_bytes(b"")
    with pytest.raises(BadInput, match=r"which only tables have .*; leave :a out"):
        load(f"{tmp_path / 'd.npz'}:a")


@pytest.mark.parametrize("column", ["Label", "TARGET", "y", "Class"])
def test_parquet_labels_in_capitals_or_not(tmp_path, column):
    """As in a table of text: the same columns name the labels, whatever the file."""
    columns = {"a": np.arange(60.0), column: LABELS}
    of_parquet = load(write_table(tmp_path / "d.parquet", columns)).train
    rows = "".join(f"{number},{label}\n" for number, label in enumerate(LABELS))
    (tmp_path / "d.csv").write_text(f"a,{column}\n{rows}")
    assert of_parquet.content_hash() == load(tmp_path / "d.csv").train.content_hash()


def test_parquet_lists_and_text_labels(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    words = np.array(["<b>", "a\nb", "c"])[LABELS].tolist()
    rows = GENERATOR.random((60, 4))
    for number, labels in enumerate((words, arrow.array(words).dictionary_encode())):
        path = tmp_path / f"{number}.parquet"
        write_table(path, {"features": rows.tolist(), "label": labels})
        examples = read_parquet(path)
        np.testing.assert_array_equal(examples.inputs.numpy(), rows.astype(np.float32))
        assert examples.class_names == ("<b>", "a\nb", "c")
        assert [examples.class_names[label] for label in examples.labels] == words


def test_parquet_class_names_of_the_hub(tmp_path):
    features = {"label": {"names": ["</title>", "dog", "eel"], "_type": "ClassLabel"}}
    columns = {"a": np.arange(60.0), "label": LABELS}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path = write_table(tmp_path / "d.parquet", columns, metadata)
    assert read_parquet(path).class_names == ("</title>", "dog", "eel")
    assert read_parquet(path, class_names=("p", "q", "r")).class_names == ("p", "q", "r")
    for nonsense in ("{", "[]", '{"info": 3}', '{"info": {"features": {"label": {"names": [1]}}}}'):
        path = write_table(tmp_path / "d.parquet", columns, {"huggingface": nonsense})
        assert read_parquet(path).class_names == ("0", "1", "2")


def numbers(**changes):
    return {"a": np.arange(60.0), "label": LABELS} | changes


BAD_TABLES = {
    "no label": ({"a": [1.0], "goal": [0]}, "needs one column named label .*'a, goal'"),
    "two labels": (numbers(y=LABELS), "label and y are 2, rename"),
    "two spellings": (numbers(Label=LABELS), "label and Label are 2, rename"),
    "two images": ({"img": [b""], "image": [b""], "label": [0]}, "more than one image column"),
    "no inputs": ({"label": LABELS}, "and others beside it"),
    "no rows": ({"a": np.zeros(0), "label": np.zeros(0, dtype=int)}, "no rows"),
    "text column": (numbers(b=["x"] * 60), "'b' holds string"),
    "missing value": (numbers(b=[None] + [1.0] * 59), "'b' misses 1 values"),
    "missing label": (numbers(label=[None] + [1] * 59), "1 labels are missing"),
    "float labels": (numbers(label=LABELS + 0.5), "this is regression"),
    "label gap": (numbers(label=LABELS + 1), "no example has label 0"),
    "nan": (numbers(a=[float("nan")] * 60), "NaN"),
    "beyond float32": (numbers(a=[1e300] * 60), "infinity"),
    "uneven lists": ({"a": [[1.0], [1.0, 2.0]], "label": [0, 1]}, "one length"),
    "missing list": ({"a": [[1.0], None], "label": [0, 1]}, "one length"),
    "lists of text": ({"a": [["x"], ["y"]], "label": [0, 1]}, "hold numbers"),
    "lists with gaps": ({"a": [[1.0], [None]], "label": [0, 1]}, "hold numbers"),
    "numbers as images": ({"img": [1, 2], "label": [0, 1]}, "bytes of encoded images"),
    "no bytes": ({"img": [{"path": "a"}], "label": [0]}, r"fields \['path'\]"),
    "missing image": ({"img": [None, b""], "label": [0, 1]}, "1 images are missing"),
    "unreadable image": (
        {"img": [b"hello"], "label": [0]},
        "'img', row 0: the image cannot be read",
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_parquet(tmp_path, case):
    columns, message = BAD_TABLES[case]
    with pytest.raises(BadInput, match=message):
        read_parquet(write_table(tmp_path / "bad.parquet", columns))


def test_bad_parquet_files(tmp_path, write_image_table):
    pytest.importorskip("pyarrow")
    with pytest.raises(BadInput, match="no file"):
        read_parquet(tmp_path / "missing.parquet")
    with pytest.raises(BadInput, match="no files"):
        read_parquet([])
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(BadInput, match="cannot be read as a parquet"):
        read_parquet(tmp_path / "text.parquet")
    images, table = tmp_path / "images.parquet", tmp_path / "table.parquet"
    write_image_table(images)
    write_table(table, numbers())
    with pytest.raises(BadInput, match="not parts of one table"):
        read_parquet([images, table])
    words = write_table(tmp_path / "words.parquet", numbers(label=["a"] * 60))
    with pytest.raises(BadInput, match="different types"):
        read_parquet([table, words])


def test_parquet_with_two_columns_of_one_name(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [arrow.array([1.0]), arrow.array([2.0]), arrow.array([0])]
    parquet.write_table(arrow.table(columns, names=["a", "a", "label"]), tmp_path / "d.parquet")
    with pytest.raises(BadInput, match="two columns of the same name"):
        read_parquet(tmp_path / "d.parquet")


# --------------------------------------------------------------------------------------- images


def write_folder(folder, encode, pixels=PIXELS, names=("cat", "dog & <b>", "é"), kind="PNG"):
    for position, image in enumerate(pixels):
        path = folder / names[position % 3] / f"{position:03d}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(image, kind))
    return folder


def test_folder_of_gray_images(tmp_path, encode):
    folder = write_folder(tmp_path / "pictures", encode)
    (folder / "cat" / ".DS_Store").write_text("clutter")
    (folder / "cat" / "Thumbs.db").write_text("clutter")
    (folder / ".git").mkdir()
    examples = read_images(folder)
    assert examples.class_names == ("cat", "dog & <b>", "é")
    assert examples.labels.tolist() == sorted(LABELS.tolist())
    np.testing.assert_array_equal(examples.inputs[:20, 0].numpy(), unit(PIXELS[::3]))
    assert examples.name == "pictures"


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF", "PPM"])
def test_folder_of_color_images(tmp_path, encode, kind):
    color = GENERATOR.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    examples = read_images(write_folder(tmp_path / "p", encode, color, kind=kind))
    order = [0, 3, 1, 4, 2, 5]
    np.testing.assert_array_equal(examples.inputs.numpy(), unit(color[order].transpose(0, 3, 1, 2)))


def test_gray_joins_color(tmp_path, encode):
    folder = write_folder(tmp_path / "p", encode, PIXELS[:6])
    color = GENERATOR.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    (folder / "é" / "z.png").write_bytes(encode(color))
    examples = read_images(folder)
    assert examples.example_shape == (3, 4, 5)
    np.testing.assert_array_equal(examples.inputs[0].numpy(), unit(np.stack([PIXELS[0]] * 3)))


def test_bad_folders(tmp_path, encode):
    with pytest.raises(BadInput, match="no folder"):
        read_images(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="one folder of images per class"):
        read_images(tmp_path / "empty")
    folder = write_folder(tmp_path / "p", encode, PIXELS[:6])
    with pytest.raises(BadInput, match="'cat' that is none of the classes"):
        read_images(folder, class_names=("é", "dog & <b>"))
    cases = {
        "broken.png": (b"\x89PNG\r\n\x1a\n broken", "broken.png: the image cannot be read"),
        "empty.jpg": (b"", "empty.jpg: the image cannot be read"),
        "notes.txt": (b"hello", "notes.txt is not an image file"),
        "large.png": (encode(np.zeros((9, 5), dtype=np.uint8)), r"5 x 4 and .*large.png is 5 x 9"),
        "deep.png": (encode(np.zeros((4, 5), dtype=np.uint16)), "deep.png: .* 8 bits"),
        "cut.png": (encode(PIXELS[0])[:50], "cut.png: the image cannot be read"),
    }
    for name, (body, message) in cases.items():
        (folder / "cat" / name).write_bytes(body)
        with pytest.raises(BadInput, match=message):
            read_images(folder)
        (folder / "cat" / name).unlink()
    (folder / "cat" / "nested").mkdir()
    with pytest.raises(BadInput, match="folder inside a class"):
        read_images(folder)
    (folder / "cat" / "nested").rmdir()
    (folder / "zebra").mkdir()
    with pytest.raises(BadInput, match="zebra has no images"):
        read_images(folder)


def test_a_format_that_starts_programs_is_refused(tmp_path, encode):
    """Pillow hands PostScript to Ghostscript; a file with another name must not get there."""
    folder = write_folder(tmp_path / "p", encode, PIXELS[:6])
    (folder / "cat" / "trap.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\nshowpage\n"
    )
    with pytest.raises(BadInput, match=r"trap.png: the image cannot be read"):
        read_images(folder)


def test_only_the_listed_formats_are_decoded(tmp_path, encode):
    """The guard above must not rest on Ghostscript being absent from the test machine."""
    folder = write_folder(tmp_path / "p", encode, PIXELS[:6])
    (folder / "cat" / "other.png").write_bytes(encode(PIXELS[0], "PCX"))
    with pytest.raises(BadInput, match=r"other.png: the image cannot be read"):
        read_images(folder)


def test_a_bomb_of_pixels_is_refused(tmp_path, encode, monkeypatch):
    image_module = pytest.importorskip("PIL.Image")
    folder = write_folder(tmp_path / "p", encode, PIXELS[:6])
    monkeypatch.setattr(image_module, "MAX_IMAGE_PIXELS", 15)
    with pytest.raises(BadInput, match="cannot be read"):
        read_images(folder)


# -------------------------------------------------------------------------- missing packages


def test_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "d.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BadInput, match=r"pyarrow.*pip install nonvacuous\[data\]"):
        read_parquet(tmp_path / "d.parquet")


def test_without_pillow(tmp_path, encode, monkeypatch):
    folder = write_folder(tmp_path / "p", encode, PIXELS[:6])
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(BadInput, match=r"pillow.*pip install nonvacuous\[data\]"):
        read_images(folder)
