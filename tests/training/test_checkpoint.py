"""Checkpoint files: whole or absent, checked, and tied to their configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nonvacuous.errors import BadInput
from nonvacuous.training.checkpoint import (
    CorruptCheckpoint,
    OtherConfiguration,
    load_checkpoint,
    save_checkpoint,
)

CONFIGURATION = {"learning_rate": 0.1, "epochs": 3}


def save(path: Path, value: float = 1.0) -> dict[str, torch.Tensor]:
    base = torch.arange(6, dtype=torch.float32) * value
    tensors = {"view": base[:3], "other view": base[1:4], "step": torch.tensor(7)}
    save_checkpoint(
        path, tensors=tensors, facts={"epoch": 2, "loss": 0.1 + 0.2}, configuration=CONFIGURATION
    )
    return tensors


def test_round_trip_keeps_every_bit_and_every_fact(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "prior.checkpoint"
    tensors = save(path)
    loaded = load_checkpoint(path, configuration=CONFIGURATION)
    assert loaded.tensors.keys() == tensors.keys()
    assert all(torch.equal(loaded.tensors[name], tensors[name]) for name in tensors)
    assert loaded.tensors["step"].dtype == torch.int64
    assert loaded.facts == {"epoch": 2, "loss": 0.1 + 0.2}


def test_a_kill_before_the_rename_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prior.checkpoint"
    save(path, value=1.0)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            save(path, value=2.0)
    monkeypatch.undo()
    assert load_checkpoint(path, configuration=CONFIGURATION).tensors["view"][1] == 1.0
    assert len(list(tmp_path.iterdir())) == 1
    save(path, value=3.0)
    assert load_checkpoint(path, configuration=CONFIGURATION).tensors["view"][1] == 3.0
    assert list(tmp_path.iterdir()) == [path]


def test_every_cut_and_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "prior.checkpoint"
    save(path)
    content = path.read_bytes()
    for length in range(0, len(content), 37):
        path.write_bytes(content[:length])
        with pytest.raises(CorruptCheckpoint, match=r"prior\.checkpoint.*Delete the file"):
            load_checkpoint(path, configuration=CONFIGURATION)
    for place in range(0, len(content), 11):
        damaged = bytearray(content)
        damaged[place] ^= 0x04
        path.write_bytes(bytes(damaged))
        with pytest.raises(BadInput, match=r"prior\.checkpoint"):
            load_checkpoint(path, configuration=CONFIGURATION)


def test_another_safetensors_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(CorruptCheckpoint, match="not a checkpoint"):
        load_checkpoint(path, configuration=CONFIGURATION)


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "prior.checkpoint"
    save(path)
    with pytest.raises(OtherConfiguration) as caught:
        load_checkpoint(path, configuration={"learning_rate": 0.2, "epochs": 3})
    message = str(caught.value)
    assert "learning_rate was 0.1 and is now 0.2" in message
    assert "epochs" not in message and "delete the file" in message
