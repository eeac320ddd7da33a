"""A study: settings, the cells that follow from them, and what becomes of the finished cells.

To write one, subclass :class:`Study`; the engine adds the folder, the claim, resuming, progress,
``--json`` and where cells are computed, here or on a cluster.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter

from nonvacuous.errors import BadInput, nearest
from nonvacuous.progress import NOTE, Progress
from nonvacuous.report import html
from nonvacuous.report.study import StudyPage, Table
from nonvacuous.rules.attempts import ledger_beside
from nonvacuous.study.settings import CellRecord, DataSettings, Frozen, StudySettings
from nonvacuous.study.sweep import Cell

if TYPE_CHECKING:
    from rich.console import Console

    from nonvacuous.data import Dataset

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
        from nonvacuous.data.load import file_and_column

        path, _ = file_and_column(name)
        stamp = path.stat().st_mtime_ns if path.is_file() else None
        return _loaded(name, self.data_dir, os.getcwd(), os.environ.get("NONVACUOUS_DATA"), stamp)

    def tell(self, phase: str, done: int, total: int, message: str) -> None:
        """Report progress, if anybody listens."""
        if self.progress is not None:
            self.progress(phase, done, total, message)

    def say(self, sentence: str) -> None:
        """Tell whoever listens something worth a line of its own."""
        self.tell(NOTE, 0, 0, sentence)


def named_data(source: str, data_dir: Path | None, classes: str | None = None) -> Dataset:
    """The data set behind --data; an error says which command shows more."""
    from nonvacuous.data import NAMES, load

    names = None if classes is None else [name.strip() for name in classes.split(",")]
    try:
        return load(source, data_dir=data_dir, class_names=names)
    except BadInput as error:
        close = nearest(source.lower().replace("_", "-"), NAMES)
        error.instead = "nonvacuous data --help"
        if close and source != "digits":
            # A known name without its files, or a slip of the finger.
            error.instead = f"nonvacuous data {'digits' if source in NAMES else close}"
        raise


@lru_cache(maxsize=1)
def _loaded(name: str, data_dir: Path | None, *_seen: object) -> Dataset:
    return named_data(name, data_dir)


@dataclass(frozen=True)
class FinishedCell:
    """A cell that has ended well, what it gave, and its folder."""

    cell: Any
    result: Any
    folder: Path


Finished = Sequence[FinishedCell]


@dataclass(frozen=True)
class Answer:
    """What a command says without computing anything."""

    record: Mapping[str, Any]
    show: Callable[[Console], None]
    next: str | Mapping[str, str | None]


class Study(ABC, Generic[Settings, Result]):
    """One study. Its module holds the only instance, as STUDY."""

    name: ClassVar[str]
    #: What it is called where a folder holds one.
    kind: ClassVar[str] = "reproduction"
    #: One kind of settings, one kind of cell.
    settings: type[Settings]
    cell: ClassVar[type[Frozen]]
    #: What a cell gives: plain values, or one of these records.
    gives: ClassVar[Any] = dict[str, Any]
    #: The module with the functions page and tables, loaded when there is a result to show.
    pages: ClassVar[str] = ""
    #: Settings that finished cells do not depend on, or hold a record of themselves.
    may_change: ClassVar[frozenset[str]] = frozenset()
    #: What is not computed again after a stop.
    keeps: ClassVar[str] = "network"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    #: Cells at once on one machine unless the user says otherwise; None: one for each processor.
    jobs: ClassVar[int | None] = 1
    #: Where it goes by default, for the help, if not to runs/NAME.
    usual_folder: ClassVar[str] = ""
    #: The command that makes sense after it.
    then: ClassVar[str] = ""
    #: Files that cells leave and that belong beside the results.
    kept: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def cells(self, settings: Settings, finished: Finished) -> Sequence[Frozen]:
        """The cells to compute, those among ``finished`` included or not.

        Asked again when they have ended, until nothing new is named. What cannot be meant is
        refused here, before anything is computed.
        """

    @abstractmethod
    def compute(self, cell: Any, at: Context) -> Any:
        """One cell, from nothing but itself: what ``gives`` says, or a dataclass."""

    @abstractmethod
    def result(self, settings: Settings, finished: Finished, at: Context) -> Result:
        """What the finished cells of the folder amount to."""

    def page(self, result: Result, command: str) -> StudyPage:
        """The page; ``command`` gives it again."""
        page: StudyPage = import_module(self.pages).page(result, command)
        return page

    def tables(self, result: Result) -> Sequence[Table]:
        """What a terminal shows."""
        tables: Sequence[Table] = import_module(self.pages).tables(result)
        return tables

    def folder(self, settings: Settings, preset: str) -> Path | None:
        """Where it goes unless the user says otherwise; None: nothing is kept unasked."""
        return Path("runs") / "-".join(filter(None, (self.name, preset)))

    def answer(self, settings: Settings, at: Context) -> Answer | None:
        """What is asked for instead of the study; ``at.folder`` is where the study would go."""
        return None

    def show(self, result: Result, console: Console) -> None:
        """Print the result; its tables where a study has no better way."""
        for table in self.tables(result):
            table.print(console)

    def problem(self, result: Result) -> str:
        """Why the command must fail though the study is done, if it must."""
        return ""

    def title(self, settings: Settings) -> str:
        return f"{len(self.cells(settings, ()))} cells, seed {settings.seed}"

    def cell_lines(self, cell: Any, result: Any) -> Sequence[str]:
        """What a finished cell gave, a line for each thing worth one."""
        if isinstance(result, CellRecord):
            return result.lines()
        return (str(getattr(cell, "key", self.name)),)

    def claimed(self, settings: Settings) -> Mapping[str, Any]:
        """The settings that decide about the folder."""
        return settings.record()

    def record(self, result: Result) -> Mapping[str, Any]:
        return result.to_dict()  # type: ignore[attr-defined, no-any-return]

    def files(self, result: Result, page: StudyPage) -> Mapping[str, str]:
        """Texts to be written beside results.json and report.html: the page as Markdown."""
        return {"table.md": html.page("study.md.jinja", page=page)}

    def next_command(self, result: Result, folder: Path | None) -> str | Mapping[str, str | None]:
        """What makes sense after this: a command, or other flags for the same one.

        A flag has a value, None where it is a switch, or "" where it goes.
        """
        command = f"reproduce {self.name}" if self.kind == "reproduction" else self.name
        return self.then or f"nonvacuous {command} --help"

    @property
    def spec(self) -> str:
        """Where workers find the study."""
        return f"{type(self).__module__}:STUDY"

    def plan(self, cell: Frozen) -> Cell:
        return Cell.of(
            self.spec, cell.model_dump(mode="json"), seed=0, label=str(getattr(cell, "key", ""))
        )

    def cell_of(self, settings: Mapping[str, Any], seed: int) -> Any:
        known = {**settings, "seed": seed}
        return self.cell.model_validate({k: known[k] for k in known if k in self.cell.model_fields})

    def read(self, stored: Mapping[str, Any]) -> Any:
        """What a cell gave, from its file."""
        return _adapter(self.gives).validate_python(stored)

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
        own = self.cell_of(cell, cell["seed"])
        result: Any = self.compute(own, Context(folder, data_dir, device, progress, ledger=ledger))
        if isinstance(result, BaseModel):
            return result.model_dump(mode="json")
        return result if isinstance(result, Mapping) else asdict(result)


_adapter = lru_cache(TypeAdapter[Any])


class Single(CellRecord):
    """The result of a study of one cell.

    record   what it amounts to, as it is written and printed with --json
    drawn    what only the page needs
    """

    record: Mapping[str, Any]
    drawn: Mapping[str, Any] = {}


OneCell = TypeVar("OneCell", bound=DataSettings)


class SingleStudy(Study[OneCell, Single]):
    """A study of one cell, which has all of its settings: ``compute`` gives a :class:`Single`."""

    gives = Single
    kind = "study"
    keeps = "part"

    usual_folder = "nothing is kept"

    def cells(self, settings: OneCell, finished: Finished) -> Sequence[Frozen]:
        settings.check()
        return (settings,)

    def result(self, settings: OneCell, finished: Finished, at: Context) -> Single:
        # A folder may hold several where settings may change that decide nothing but how.
        asked = settings.record()
        single: Single = next(e.result for e in finished if e.cell.record() == asked)
        return single

    def folder(self, settings: OneCell, preset: str) -> Path | None:
        return None

    def record(self, result: Single) -> Mapping[str, Any]:
        return result.record

    def show(self, result: Single, console: Console) -> None:
        import_module(self.pages).write_text(result, console)

    def files(self, result: Single, page: StudyPage) -> Mapping[str, str]:
        return {}
