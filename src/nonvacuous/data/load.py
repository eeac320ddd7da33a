"""load: a data set by its name, its path or the function that makes it; what is in it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.data.examples import (
    Dataset,
    Examples,
    check_examples,
    count_repeats,
    find_duplicates,
)
from nonvacuous.data.readers import FILE_READERS
from nonvacuous.data.readers.npz import has_arrays, read_arrays
from nonvacuous.data.readers.pictures import read_idx, read_images
from nonvacuous.data.readers.tables import read_parquet
from nonvacuous.errors import BadInput, Unrecognized, nearest
from nonvacuous.foreign import imported
from nonvacuous.kinds import DATA_SETS

DIGIT_NAMES = tuple(str(digit) for digit in range(10))
FASHION_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
NAMES = DATA_SETS
"""The data sets known by name. Only digits needs no files."""

# Debian's package dataset-fashion-mnist puts the files there.
_SYSTEM_FOLDER = Path("/usr/share/datasets")
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<index>\d+)-of-(?P<total>\d+)$")


def load(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A checked data set.

    source     digits, mnist, fashion-mnist or cifar10; a file of a kind in FILE_READERS, behind
               which a table's column of labels may be named (mine.csv:outcome); a folder (one
               folder per class, or train and test with one folder per class each, or IDX files,
               or parquet shards, or arrays train-inputs.npy and train-labels.npy); or
               "package.module:function", which is imported and called
    data_dir   the folder with mnist/, fashion-mnist/ and cifar10/; without it the environment
               variable NONVACUOUS_DATA
    class_names
               the classes in the order of the network's scores; without it, text labels in the
               order of the alphabet, and whole numbers as they are
    """
    dataset = read(source, data_dir=data_dir, class_names=class_names)
    check_examples(dataset.train, every_class=class_names is None)
    if dataset.test is not None:
        check_examples(dataset.test, minimum=1, every_class=False)
    return dataset


def read(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """What :func:`load` gives, however few its examples are."""
    text = str(source)
    if text in NAMES and class_names is not None:
        raise BadInput(f"{text} has class names of its own; leave class_names (--classes) out")
    if text == "digits":
        return digits()
    if text == "cifar10":
        folder = _named_folder(text, data_dir)
        if has_arrays(folder) and not any(folder.glob("*.parquet")):
            return read_arrays(folder, name=text, class_names=CIFAR_NAMES)
        return _read_shards(folder, name=text, class_names=CIFAR_NAMES)
    if text in NAMES:
        names = FASHION_NAMES if text == "fashion-mnist" else DIGIT_NAMES
        return _read_idx_folder(_named_folder(text, data_dir), name=text, class_names=names)
    path, column = file_and_column(source)
    reader = FILE_READERS.get(path.suffix.lower())
    if column is not None:
        if reader is None or path.suffix.lower() not in (".csv", ".tsv", ".parquet"):
            raise BadInput(
                f"{path}:{column} names a column of labels, which only tables have (.csv, .tsv, "
                f".parquet); leave :{column} out"
            )
        return reader(path, class_names=class_names, label=column)
    if text and path.is_dir():
        return _read_folder(path, class_names)
    if path.is_file():
        if reader is None:
            raise BadInput(
                f"{path}: files ending in {path.suffix or 'nothing'} cannot be read; expected "
                f"{', '.join(FILE_READERS)}, a folder of images, or package.module:function"
            )
        return reader(path, class_names=class_names)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text) or ".py:" in text:
        try:
            return _from_function(text, class_names)
        except Unrecognized as error:
            if not isinstance(error.__cause__, ModuleNotFoundError):
                raise
            # A file whose name is misspelled, with its column of labels, reads like a function.
            why = str(error).removeprefix(f"{text}: ")
            message = f"{text}: there is no file {text.partition(':')[0]}, and {why}"
            raise Unrecognized(message, instead=error.instead) from error
    endings = "|".join(map(re.escape, FILE_READERS))
    if named := re.match(rf"(.+?(?:{endings})):", text, flags=re.IGNORECASE):
        raise Unrecognized(f"{text}: there is no file {named[1]}; check the spelling of its path")
    alike = text.lower().replace("_", "-")
    raise Unrecognized(
        f"there is no data set {text!r}: it is neither one of {', '.join(NAMES)}, nor an existing "
        "file or folder, nor of the form package.module:function"
        + nearest(alike, NAMES, "; did you mean {}?", "; check the spelling of the path")
    )


Dataset.reader = read


def file_and_column(source: str | Path) -> tuple[Path, str | None]:
    """The path of a source, and the column of labels that is named behind the file, if any."""
    text = str(source)
    try:
        whole = Path(text).expanduser()
        if not whole.exists():
            for colon in re.finditer(":", text):
                path = Path(text[: colon.start()]).expanduser()
                if path.is_file() and path.suffix != ".py":
                    return path, text[colon.end() :]
    except (OSError, RuntimeError) as error:  # a name that is too long, a user who is not there
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        why = getattr(error, "strerror", None) or error
        raise BadInput(
            f"{shown!r} is not the path of a file ({why}); check its spelling"
        ) from error
    return whole, None


def _named_folder(name: str, data_dir: str | Path | None) -> Path:
    base = data_dir if data_dir is not None else os.environ.get("NONVACUOUS_DATA") or None
    if base is not None and (Path(base).expanduser() / name).is_dir():
        return Path(base).expanduser() / name
    if (_SYSTEM_FOLDER / name).is_dir():
        return _SYSTEM_FOLDER / name
    why = f"{base} has no folder {name}" if base is not None else "no data folder is set"
    raise BadInput(
        f"the files of {name} were not found: {why}. Set NONVACUOUS_DATA or --data-dir to the "
        f"folder that contains {name}/, or use digits, which needs no files"
    )


def _read_folder(folder: Path, class_names: Sequence[str] | None) -> Dataset:
    if any(folder.glob("*.parquet")):
        return _read_shards(folder, name=folder.name, class_names=class_names)
    if has_arrays(folder):
        return read_arrays(folder, class_names=class_names)
    if any(folder.glob("*-idx?-ubyte*")):
        return _read_idx_folder(folder, name=folder.name, class_names=class_names)
    train, test = folder / "train", folder / "test"
    if train.is_dir():
        second = test if test.is_dir() else None
        return Dataset.read(read_images, train, second, name=folder.name, class_names=class_names)
    return Dataset(read_images(folder, class_names=class_names))


def _read_idx_folder(folder: Path, *, name: str, class_names: Sequence[str] | None) -> Dataset:
    def pair(part: str, **names: Any) -> Examples:
        images = _idx_file(folder, f"{part}-images-idx3-ubyte")
        return read_idx(images, _idx_file(folder, f"{part}-labels-idx1-ubyte"), **names)

    return Dataset.read(pair, "train", "t10k", name=name, class_names=class_names)


def _idx_file(folder: Path, stem: str) -> Path:
    for candidate in (folder / f"{stem}.gz", folder / stem):
        if candidate.is_file():
            return candidate
    raise BadInput(f"{folder} has no file {stem}.gz; put the four IDX files there")


def _read_shards(folder: Path, *, name: str, class_names: Sequence[str] | None) -> Dataset:
    train, test = _shards(folder, "train"), _shards(folder, "test")
    if not train:
        raise BadInput(
            f"{folder} has no parquet file whose name starts with train; rename the files to "
            "train.parquet and test.parquet, or name one file"
        )
    return Dataset.read(read_parquet, train, test or None, name=name, class_names=class_names)


def _shards(folder: Path, part: str) -> list[Path]:
    files = sorted(
        path for path in folder.glob(f"{part}*.parquet") if re.match(rf"{part}\b", path.name)
    )
    matches = [_SHARD.match(path.stem) for path in files]
    totals = {int(match["total"]) for match in matches if match}
    # A missing shard would quietly make the training set smaller, and n with it.
    if totals and (len(totals) > 1 or None in matches or len(files) != totals.pop()):
        raise BadInput(
            f"{folder}: the {part} shards are not complete: found "
            f"{', '.join(path.name for path in files)}; add the missing ones"
        )
    return files


def _from_function(spec: str, class_names: Sequence[str] | None) -> Dataset:
    function = import_function(spec)
    with _current_folder_last():
        try:
            result = function()
        except Exception as error:  # the user's code may raise anything
            raise BadInput(
                f"{spec}() raised {type(error).__name__}: {error}; call it in Python to see why"
            ) from error
    return as_dataset(result, where=spec, class_names=class_names)


def import_function(spec: str) -> Any:
    """The callable behind "package.module:function"; the current folder is searched too."""
    file, _, name = spec.partition(":")
    if name and file.endswith(".py") and Path(file).is_file():
        path = Path(file)
        where = "" if path.parent == Path() else f", from the folder {path.parent}"
        raise Unrecognized(
            f"{spec}: a function is named by its module, not by its file; write "
            f"{path.stem}:{name}{where}"
        )
    with _current_folder_last():
        return imported(spec)


def as_dataset(result: Any, *, where: str, class_names: Sequence[str] | None = None) -> Dataset:
    """A Dataset out of what a function returned.

    Accepted: Dataset; Examples or anything `Examples.of` takes; a pair of two such things, for
    training and test; a mapping with the keys train and, optionally, test.
    """
    if isinstance(result, Dataset):
        return result
    train, test = result, None
    # A pair (inputs, labels) starts with an array; a pair (train, test) with something that holds
    # both. Only tuples count: a list may be an array written out.
    holds = (Examples, tuple, torch.utils.data.Dataset)
    if isinstance(result, Mapping):
        if "train" not in result or set(result) - {"train", "test"}:
            raise BadInput(
                f"{where} returned a mapping with the keys {sorted(map(str, result))}; expected "
                "train and, optionally, test"
            )
        train, test = result["train"], result.get("test")
    elif isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[0], holds):
        train, test = result
    elif result is None:
        raise BadInput(f"{where} returned nothing; it must return (inputs, labels)")
    elif isinstance(result, str):
        raise BadInput(f"{where}: cannot read examples from str; it must return (inputs, labels)")
    # Examples have a name of their own.
    named = None if isinstance(train, Examples) else where
    first = Examples.of(train, name=named, class_names=class_names)
    if test is not None and not isinstance(test, Examples):
        test = Examples.of(test, class_names=first.class_names, name=f"{where} (test)")
    return Dataset(first, test)


@contextmanager
def _current_folder_last() -> Iterator[None]:
    # An installed command does not search the current folder, unlike `python -m`. It comes last,
    # so that a file there cannot stand in for an installed package.
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        # From the end: the same folder may stand earlier in the path, for another reason.
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


def digits(seed: int = 0) -> Dataset:
    """Images of 8 x 8 pixels in [0, 1]: 1,437 for training and 360 for testing.

    The seed chooses which; the split is random, not stratified.
    """
    table = _digits_table()
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(table))
    images = torch.from_numpy(table[:, :-1].reshape(-1, 8, 8))
    everything = Examples(
        inputs=images.to(torch.float32).div_(16.0)[:, None],
        labels=torch.from_numpy(table[:, -1].astype(np.int64)),
        class_names=DIGIT_NAMES,
        name="digits",
        preprocessing=("pixel/16",),
    )
    return Dataset(
        everything.subset(np.sort(order[360:])),
        Examples.of(everything.subset(np.sort(order[:360])), name="digits (test)"),
    )


def _digits_table() -> np.ndarray:
    """One row a digit, 64 pixels and the label: scikit-learn's file, without its imports."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits  # which knows where another version keeps it

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


def describe(dataset: Dataset) -> dict[str, Any]:
    """Counts, shapes, class names, label histogram, duplicates and hashes; ready for JSON."""
    train, test = dataset.train, dataset.test
    return {
        "name": dataset.name,
        "classes": train.classes,
        "class_names": list(train.class_names),
        "example_shape": list(train.example_shape),
        "train": _describe_part(train),
        "test": None if test is None else _describe_part(test),
        "duplicates_across": None
        if test is None
        else {
            "inputs": len(find_duplicates(train, test, ignore_labels=True)),
            "inputs_and_labels": len(find_duplicates(train, test)),
        },
        "unused": list(dataset.unused),
    }


def _describe_part(examples: Examples) -> dict[str, Any]:
    counts = examples.class_counts()
    return {
        "name": examples.name,
        "examples": len(examples),
        "label_counts": list(counts),
        "largest_class_fraction": max(counts) / max(1, len(examples)),
        "lowest_input": float(examples.inputs.min()) if len(examples) else None,
        "highest_input": float(examples.inputs.max()) if len(examples) else None,
        "preprocessing": list(examples.preprocessing),
        "repeats": {
            "inputs": count_repeats(examples, ignore_labels=True),
            "inputs_and_labels": count_repeats(examples),
        },
        "content_hash": examples.content_hash(),
    }
