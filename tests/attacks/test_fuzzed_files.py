"""Damaged and hostile files of every kind that is read: the right answer or a clear error."""

from __future__ import annotations

import io
import json
import random
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.certificate import Certificate
from nonvacuous.data.files import read_npz_arrays
from nonvacuous.data.readers.pictures import decode_image
from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.errors import BadInput, NonvacuousError
from nonvacuous.foreign import read_json, read_toml
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint
from nonvacuous.training.events import read_events
from tests.certificates import sealed

FULL, QUICK = 2_000, 60
#: Bytes that mean something to one format or another.
HOT = (
    b"\xff" * 8,
    b"\0" * 8,
    b"\x7f\xff\xff\xff",
    b"PK\x01\x02",
    b"{",
    b"[" * 3_000,
    b"1e999",
    b'"',
)


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, inputs=np.eye(60, dtype=np.float32), labels=np.arange(60) % 3)
    return stream.getvalue()


def _parquet() -> bytes:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    stream = io.BytesIO()
    columns = {"a": np.arange(60.0), "b": np.arange(60.0) ** 2, "label": np.arange(60) % 3}
    parquet.write_table(arrow.table(columns), stream)
    return stream.getvalue()


def _image() -> bytes:
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(stream, "PNG")
    return stream.getvalue()


def _written(write: Callable[[Path], object], folder: Path) -> bytes:
    path = folder / "valid"
    write(path)
    return path.read_bytes()


def _kinds(folder: Path) -> dict[str, tuple[bytes, Callable[[Path], object]]]:
    tensors = {"a": torch.arange(6.0), "b": torch.ones(2, 3)}
    events = b'{"time": "t", "phase": "prior", "event": "epoch", "metrics": {"loss": 0.5}}\n' * 4
    certificate = sealed().model_dump_json(indent=2).encode()
    toml = b'mode = "posterior"\nscales = [0.1, 1.0]\n[recipe.plain]\nepochs = 3\nname = "x"\n'

    def checkpoint(path: Path) -> None:
        save_checkpoint(path, tensors=tensors, facts={"epoch": 1}, configuration={"seed": 0})

    def records(path: Path) -> None:
        for read in (Certificate.load, read_json, read_events):
            try:
                read(path)
            except NonvacuousError:
                continue

    return {
        "npz": (_npz(), nv.data.load),
        "parquet": (_parquet(), nv.data.load),
        "png": (_image(), lambda path: decode_image(path, where=str(path))),
        "safetensors": (
            _written(lambda path: save_tensors(path, tensors, kind="network"), folder),
            lambda path: load_tensors(path, kind="network", device="cpu"),
        ),
        "toml": (toml, read_toml),
        "csv": (b"a,b,label\n" + b"1.5,2,cat\n3,-4e1,dog\n" * 30, nv.data.load),
        "pt": (
            _written(lambda path: torch.save((torch.eye(60), torch.arange(60) % 3), path), folder),
            nv.data.load,
        ),
        "json": (certificate + b"\n" + events, records),
        "checkpoint": (
            _written(checkpoint, folder),
            lambda path: load_checkpoint(path, configuration={"seed": 0}),
        ),
    }


def _mutated(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        what = chance.randrange(5)
        if what == 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        elif what == 1:
            del changed[at : at + chance.randrange(1, 40)]
        elif what == 2:
            piece = chance.choice(HOT)
            changed[at : at + (len(piece) if chance.random() < 0.5 else 0)] = piece
        elif what == 3:
            start = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + 30]
        else:
            del changed[at:]
    return bytes(changed)


def _fuzz(kind: str, folder: Path, count: int) -> None:
    valid, read = _kinds(folder)[kind]
    path, chance = folder / f"x.{kind}", random.Random(kind)
    path.write_bytes(valid)
    read(path)
    refused = 0
    for number in range(count):
        path.write_bytes(_mutated(valid, chance))
        try:
            read(path)
        except NonvacuousError as error:
            refused += 1
            assert str(error).strip()
        except BaseException as error:
            raise AssertionError(
                f"{kind} number {number}: {type(error).__name__}: {error}"
            ) from error
    assert refused or kind == "json"


KINDS = ("csv", "pt", "npz", "parquet", "png", "safetensors", "toml", "json", "checkpoint")


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_damaged_files(kind: str, tmp_path: Path) -> None:
    _fuzz(kind, tmp_path, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("count", [FULL // 4, pytest.param(4 * FULL, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(kind: str, tmp_path: Path, count: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _fuzz(kind, tmp_path, count)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 500_000, f"{grown:,} kB more than before"


def _npy(shape: str, content: bytes = b"") -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(100000000,)", "(-5,)", "(2**9,)", "(1e9,)"]
)
def test_an_array_larger_than_its_file_is_not_made(tmp_path: Path, shape: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("inputs.npy", _npy(shape, b"\0" * 16))
    with pytest.raises(BadInput):
        read_npz_arrays(tmp_path / "x.npz")


@pytest.mark.slow
def test_a_zip_bomb_is_not_opened(tmp_path: Path) -> None:
    size = 2**29
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("inputs.npy", "w") as stream,
    ):
        stream.write(_npy(f"({size // 8},)"))
        for _ in range(size // 2**20):
            stream.write(b"\0" * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInput, match="times its size"):
        read_npz_arrays(tmp_path / "x.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_an_image_of_huge_dimensions_is_not_decoded(tmp_path: Path) -> None:
    content = bytearray(_image())
    content[16:24] = struct.pack(">II", 100_000, 100_000)
    with pytest.raises(BadInput):
        decode_image(bytes(content), where="x.png")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "x = " + "[" * 200_000])
def test_deep_nesting_is_refused(tmp_path: Path, text: str) -> None:
    path: Any = tmp_path / "record"
    path.write_text(text)
    for read in (read_json, read_toml, Certificate.load):
        with pytest.raises(NonvacuousError):
            read(path)


def test_a_table_of_a_billion_repeated_rows_is_not_made(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = 20_000_000
    table = arrow.table({"a": np.zeros(rows, np.float32), "label": np.zeros(rows, np.int8)})
    parquet.write_table(table, tmp_path / "x.parquet", compression="zstd")
    with pytest.raises(BadInput, match="times its size"):
        nv.data.load(tmp_path / "x.parquet")


@pytest.mark.slow
def test_json_keys_are_counted_in_linear_time() -> None:
    text = json.dumps({str(number): 0 for number in range(50_000)})
    with pytest.raises(NonvacuousError):
        Certificate.from_json(text)
