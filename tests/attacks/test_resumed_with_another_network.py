"""A run folder is gone on with for the network that it was begun with, and for no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.certification.run_folder import settings_digest
from nonvacuous.errors import FolderTaken
from nonvacuous.foreign import run_settings


def clouds() -> nv.data.Examples:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (200,), generator=generator)
    centers = 2.0 * torch.randn(3, 6, generator=generator)
    inputs = centers[labels] + torch.randn(200, 6, generator=generator)
    return nv.data.Examples(inputs, labels, ("a", "b", "c"), "clouds")


class Bent(nn.Module):
    """What bends its hidden layer is no tensor and no layer."""

    bend: Callable[[Tensor], Tensor] = staticmethod(torch.relu)

    def __init__(self, dropped: float = 0.0, factor: float = 1.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.dropped, self.factor = nn.Dropout(dropped), factor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.dropped(self.bend(self.first(inputs)))) * self.factor


QUICK = nv.Posterior(
    twin=False,
    trials=200,
    training=nv.PosteriorTraining(epochs=1),
    plain_training=nv.PlainTraining(epochs=1),
)


def certified(build: Any, folder: Path, **more: Any) -> nv.Certificate:
    return nv.certify(build, clouds(), method=QUICK, folder=folder, **more)


def stopped(build: Any, folder: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certified(build, folder, progress=stop)


@pytest.mark.parametrize("begin", [certified, stopped])
@pytest.mark.parametrize("change", ["code", "number", "layer"])
def test_a_network_that_changed(
    begin: Any, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, build = tmp_path / "run", Bent
    begin(Bent, folder)
    if change == "code":
        monkeypatch.setattr(Bent, "bend", staticmethod(lambda hidden: torch.sin(4.0 * hidden)))
    else:
        changed: dict[str, float] = {"number": {"factor": 1.01}, "layer": {"dropped": 0.5}}[change]
        build = lambda: Bent(**changed)  # noqa: E731
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with pytest.raises(FolderTaken, match="other layers" if change == "layer" else "answers"):
        certified(build, folder, resume=True)
    assert before == sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    certified(build, folder, force=True)


def test_the_same_network_goes_on(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", certified(Bent, tmp_path / "whole")
    stopped(Bent, folder)
    config = folder / "config.toml"
    # What another device rounds otherwise is no other network, and stays as it was.
    written = re.sub(r"(answers = \[-?[\d.]+\d\d)", r"\g<1>1", config.read_text())
    config.write_text(written)
    assert certified(Bent, folder, resume=True).risk_upper == whole.risk_upper
    assert certified(Bent, folder, resume=True).risk_upper == whole.risk_upper
    assert config.read_text() == written and nv.verify(folder, data=clouds(), model=Bent).passed


@pytest.mark.parametrize("finished", [True, False])
def test_runs_of_older_versions_go_on(finished: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped(Bent, folder)
    config = folder / "config.toml"
    now = run_settings(folder)
    old = config.read_text().replace("\n[beginning]\n" + _table(config, "beginning"), "")
    config.write_text(old)
    then = run_settings(folder)
    assert "beginning" in now and "beginning" not in then
    # The ledger of attempts knows it as the same attempt.
    assert settings_digest(now) == settings_digest(then)
    if finished:
        certified(Bent, folder, resume=True)
    certificate = certified(Bent, folder, resume=True)
    assert certificate.status == "valid" and config.read_text() == old


def _table(config: Path, name: str) -> str:
    return config.read_text().split(f"[{name}]\n")[1].split("\n[")[0]
