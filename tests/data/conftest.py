"""What the data tests share: a cache of their own, and small files in every format."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from nonvacuous.data import Examples


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test may read or fill the cache of the person who runs it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NONVACUOUS_CACHE", str(folder))
    return folder


@pytest.fixture
def make_examples() -> Callable[..., Examples]:
    def make(count: int = 60, *, classes: int = 3, shape: tuple[int, ...] = (4,), seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        return Examples(
            torch.rand((count, *shape), generator=generator),
            torch.arange(count) % classes,
            tuple(f"class {index}" for index in range(classes)),
            "made up",
        )

    return make


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], Path]:
    def write(path: Path, array: np.ndarray) -> Path:
        body = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        body += array.astype(np.uint8).tobytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
        return path

    return write


@pytest.fixture
def encode() -> Callable[..., bytes]:
    image_module = pytest.importorskip("PIL.Image")

    def encode_pixels(pixels: np.ndarray, kind: str = "PNG") -> bytes:
        stream = io.BytesIO()
        image_module.fromarray(pixels).save(
            stream, kind, **({"lossless": True} if kind == "WEBP" else {})
        )
        return stream.getvalue()

    return encode_pixels


@pytest.fixture
def write_image_table(encode) -> Callable[..., np.ndarray]:
    """Write a table laid out as on the public hubs, and return its pixels (n, height, width, 3)."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(path: Path, count: int = 60, *, seed: int = 0, labels=None) -> np.ndarray:
        pixels = np.random.default_rng(seed).integers(0, 256, (count, 4, 5, 3), dtype=np.uint8)
        rows = [{"bytes": encode(image, "WEBP"), "path": None} for image in pixels]
        kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        labels = [index % 3 for index in range(count)] if labels is None else labels
        table = arrow.table({"img": arrow.array(rows, type=kind), "label": labels})
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)
        return pixels

    return write
