"""A study: settings, the cells that follow from them, and what becomes of the finished cells.

To write one, subclass :class:`Study`; the engine adds the folder, the claim, resuming, progress,
``--json`` and where cells are computed, here or on a cluster.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from nonvacuous.data import Dataset, load
from nonvacuous.progress import Progress
from nonvacuous.report.study import StudyPage, Table
from nonvacuous.rules.attempts import ledger_beside
from nonvacuous.study.settings import Frozen, StudySettings
from nonvacuous.study.sweep import Cell


def markdown(table: Table) -> str:
    """A table as Markdown, its caption below it.

    >>> print(markdown(Table(("network", "test"), (("MLP", "50.1"),))))
    | network | test |
    |:---|---:|
    | MLP | 50.1 |
    <BLANKLINE>
    """
    rule = ["---:" if table.is_numeric(column) else ":---" for column in range(len(table.headings))]
    lines = [_line(table.headings), "|" + "|".join(rule) + "|", *map(_line, table.rows)]
    return "\n".join(lines) + "\n" + (f"\n{table.caption}\n" if table.caption else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


Settings = TypeVar("Settings", bound=StudySettings)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Context:
    """Where a cell is computed: what it may use but must not depend on.

    folder   its own: checkpoints and whatever it leaves besides its result
    jobs     processes that may be used at once
    """

    folder: Path
    data_dir: Path | None = None
    device: str = "cpu"
    progress: Progress | None = None
    jobs: int = 1
    ledger: Path | None = None

    @property
    def ledger_file(self) -> Path:
        """The ledger for bounds on examples: the named one, else beside the study's folder."""
        return self.ledger or ledger_beside(self.folder.parent.parent)

    def dataset(self, name: str) -> Dataset:
        """The data set; cells of one process that follow one another load it once."""
        path = Path(name)
        stamp = path.stat().st_mtime_ns if path.is_file() else None
        return _loaded(name, self.data_dir, os.getcwd(), os.environ.get("NONVACUOUS_DATA"), stamp)

    def tell(self, phase: str, done: int, total: int, message: str) -> None:
        """Report progress, if anybody listens."""
        if self.progress is not None:
            self.progress(phase, done, total, message)


@lru_cache(maxsize=1)
def _loaded(name: str, data_dir: Path | None, *_seen: object) -> Dataset:
    return load(name, data_dir=data_dir)


@dataclass(frozen=True)
class Finished:
    """A cell that has ended well, what it found, and its folder."""

    cell: Any
    found: Mapping[str, Any]
    folder: Path


class Study(ABC, Generic[Settings, Result]):
    """One study. Its module holds the only instance, as STUDY."""

    name: ClassVar[str]
    #: One kind of settings, one kind of cell.
    settings: type[Settings]
    cell: ClassVar[type[Frozen]]
    #: Settings that finished cells do not depend on, or hold a record of themselves.
    may_change: ClassVar[frozenset[str]] = frozenset()
    #: What is not computed again after a stop.
    keeps: ClassVar[str] = "network"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    #: Cells at once on one machine unless the user says otherwise; None: one for each processor.
    jobs: ClassVar[int | None] = 1

    @abstractmethod
    def cells(self, settings: Settings, finished: Sequence[Finished]) -> Sequence[Frozen]:
        """The cells to compute, those among ``finished`` included or not.

        Asked again when they have ended, until nothing new is named. What cannot be meant is
        refused here, before anything is computed.
        """

    @abstractmethod
    def compute(self, cell: Any, at: Context) -> Mapping[str, Any] | BaseModel:
        """One cell, from nothing but itself: plain values, or a model or dataclass of them."""

    @abstractmethod
    def result(self, settings: Settings, finished: Sequence[Finished], at: Context) -> Result:
        """What the finished cells of the folder amount to."""

    @abstractmethod
    def page(self, result: Result, command: str) -> StudyPage | None:
        """The page, if there is one; ``command`` gives it again."""

    @abstractmethod
    def tables(self, result: Result) -> Sequence[Table]:
        """What a terminal shows."""

    def title(self, settings: Settings) -> str:
        """What is about to be computed."""
        return f"{len(self.cells(settings, ()))} cells, seed {settings.seed}"

    def told(self, cell: Any, found: Mapping[str, Any]) -> Sequence[str]:
        """What a finished cell gave, a line for each thing worth one."""
        return ()

    def claimed(self, settings: Settings) -> Mapping[str, Any]:
        """The settings that decide about the folder."""
        return settings.record()

    def record(self, result: Result) -> Mapping[str, Any]:
        """The result as plain values, for results.json."""
        return result.to_dict()  # type: ignore[attr-defined, no-any-return]

    def files(self, result: Result, page: StudyPage | None) -> Mapping[str, str]:
        """Texts to be written beside results.json and report.html."""
        tables = "\n".join(map(markdown, self.tables(result)))
        head = "" if page is None else f"# {page.title}\n\n{page.lead}\n\n"
        return {"table.md": head + tables}

    def next_command(self, result: Result, folder: Path) -> str:
        """What makes sense after this."""
        return f"nonvacuous reproduce {self.name} --help"

    @property
    def spec(self) -> str:
        """Where workers find the study."""
        return f"{type(self).__module__}:STUDY"

    def plan(self, cell: Frozen) -> Cell:
        """The cell as the engine knows it."""
        return Cell.of(
            self.spec, cell.model_dump(mode="json"), seed=0, label=str(getattr(cell, "key", ""))
        )

    def cell_of(self, settings: Mapping[str, Any], seed: int) -> Any:
        """The study's own cell out of the engine's."""
        known = {**settings, "seed": seed}
        return self.cell.model_validate({k: known[k] for k in known if k in self.cell.model_fields})

    def __call__(
        self,
        *,
        folder: Path,
        data_dir: Path | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
        ledger: Path | None = None,
        **cell: Any,
    ) -> Mapping[str, Any]:
        """Compute a cell of the engine's."""
        own = self.cell_of(cell, cell["seed"])
        found: Any = self.compute(own, Context(folder, data_dir, device, progress, ledger=ledger))
        if isinstance(found, BaseModel):
            return found.model_dump(mode="json")
        return found if isinstance(found, Mapping) else asdict(found)
