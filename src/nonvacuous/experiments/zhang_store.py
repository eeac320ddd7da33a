"""The finished networks of a reproduction of the randomization paper, on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonvacuous.claims import claim_folder, write_record
from nonvacuous.errors import BadInput
from nonvacuous.experiments.zhang_cells import Cell, CellResult
from nonvacuous.experiments.zhang_settings import ZhangSettings

#: What the stored networks do not depend on, or hold a record of themselves.
_MAY_CHANGE = {"networks", "solo_epochs", "method"}


@dataclass(frozen=True)
class GroupTiming:
    """The time of one training of several networks at once.

    networks        how many; epochs: how many each was trained for, at most
    seconds         for all of them, starting and measuring included
    solo_seconds    per epoch for one network of the same kind trained alone in the same run, start
                    left out; None: not measured
    """

    network: str
    networks: int
    epochs: int
    seconds: float
    method: str
    device: str
    solo_seconds: float | None = None

    @property
    def seconds_per_epoch(self) -> float:
        """Per epoch and network."""
        return self.seconds / self.networks / self.epochs

    @property
    def speedup(self) -> float | None:
        """How many times longer the same would have taken one network after another."""
        return None if self.solo_seconds is None else self.solo_seconds / self.seconds_per_epoch

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, derived ones included."""
        return asdict(self) | {
            "seconds_per_epoch": self.seconds_per_epoch,
            "speedup": self.speedup,
        }


class CellStore:
    """The finished networks of one reproduction: a file each, so that none is trained twice."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def open(self, settings: ZhangSettings, *, resume: bool, force: bool) -> None:
        """Write the settings into the folder, or find there what was computed with the same ones.

        Which networks are asked for may differ from one call to the next, and so may the recipe of
        a network that is not finished yet: see :meth:`find`.
        """
        claim_folder(
            self.folder,
            settings.to_dict(),
            results=("cells/*.json", "groups/*.json", "groups/*.checkpoint*"),
            may_change=_MAY_CHANGE,
            resume=resume,
            force=force,
        )

    def find(self, cell: Cell, settings: ZhangSettings) -> CellResult | None:
        """The stored result of a network, if there is one.

        One that was trained in another way than these settings say is refused.
        """
        path = self._cell_file(cell)
        if not path.is_file():
            return None
        result, wanted = CellResult.load(path), settings.training_record(cell)
        changed = sorted(name for name in wanted if result.training.get(name) != wanted[name])
        if changed:
            raise BadInput(
                f"{path} holds a network that was trained with other settings "
                f"({', '.join(changed)}); remove it to train it anew, or name another folder"
            )
        return result

    def add(self, results: Sequence[CellResult], timing: GroupTiming, name: str) -> None:
        """Keep what one training gave."""
        write_record(self.folder / "groups" / f"{name}.json", asdict(timing))
        for result in results:
            result.save(self._cell_file(result.cell))
        for old in self.folder.glob(f"groups/{name}.checkpoint*"):
            old.unlink()

    def timings(self) -> tuple[GroupTiming, ...]:
        """The time of every training in this folder."""
        return tuple(
            GroupTiming(**json.loads(path.read_text(encoding="utf-8")))
            for path in sorted((self.folder / "groups").glob("*.json"))
        )

    def checkpoint(self, name: str) -> Path:
        """Where the training of a group keeps its state."""
        return self.folder / "groups" / f"{name}.checkpoint"

    def _cell_file(self, cell: Cell) -> Path:
        return self.folder / "cells" / f"{cell.key}.json"
