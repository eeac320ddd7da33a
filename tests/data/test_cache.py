from __future__ import annotations

import numpy as np
import pytest

from nonvacuous.data import cache_folder, read_parquet
from nonvacuous.data.readers import tables as parquet_reader


@pytest.fixture
def decoded(monkeypatch):
    """How many images have been decoded so far."""
    count = [0]
    original = parquet_reader.decode_image

    def counting(*arguments, **keywords):
        count[0] += 1
        return original(*arguments, **keywords)

    monkeypatch.setattr(parquet_reader, "decode_image", counting)
    return count


def test_second_reading_decodes_nothing(tmp_path, cache, write_image_table, decoded):
    pixels = write_image_table(tmp_path / "a.parquet")
    first = read_parquet(tmp_path / "a.parquet")
    assert decoded[0] == 60
    second = read_parquet(tmp_path / "a.parquet")
    assert decoded[0] == 60
    assert first.content_hash() == second.content_hash()
    np.testing.assert_array_equal(
        second.inputs.numpy(), pixels.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    )
    assert len(list(cache.iterdir())) == 1


def test_changed_source_is_decoded_again(tmp_path, write_image_table, decoded):
    path = tmp_path / "a.parquet"
    write_image_table(path, seed=0)
    first = read_parquet(path)
    write_image_table(path, seed=1)
    assert read_parquet(path).content_hash() != first.content_hash()
    assert decoded[0] == 120


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "other", "count"])
def test_damaged_cache_is_made_again(tmp_path, cache, write_image_table, decoded, damage):
    path = tmp_path / "a.parquet"
    write_image_table(path)
    expected = read_parquet(path).content_hash()
    (file,) = cache.iterdir()
    body = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(body[: len(body) // 2])
    elif damage == "flip":
        body[len(body) // 2] ^= 1
        file.write_bytes(body)
    elif damage == "text":
        file.write_text("not an archive")
    elif damage == "other":
        np.savez(file, something=np.zeros(3))
    else:
        np.savez(file, images=np.zeros((59, 3, 4, 5), dtype=np.uint8))
    assert read_parquet(path).content_hash() == expected
    assert decoded[0] == 120
    read_parquet(path)
    assert decoded[0] == 120


def test_a_cache_that_cannot_be_written_does_no_harm(
    tmp_path, monkeypatch, write_image_table, decoded, caplog
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NONVACUOUS_CACHE", str(tmp_path / "file"))
    write_image_table(tmp_path / "a.parquet")
    assert len(read_parquet(tmp_path / "a.parquet")) == 60
    assert "could not be kept" in caplog.text


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NONVACUOUS_CACHE")
    assert cache_folder() == tmp_path / ".cache" / "nonvacuous"
    monkeypatch.setenv("NONVACUOUS_CACHE", "~/elsewhere")
    assert cache_folder() == tmp_path / "elsewhere"
