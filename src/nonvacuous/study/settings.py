"""What decides a study: one frozen model that is argument, flags, TOML file and record at once.

Fields with ``exclude=True`` say which part of the study is asked for this time: they are flags, but
no part of the record, and may differ from one call to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nonvacuous.errors import BadInput
from nonvacuous.foreign import SOURCES, read_toml
from nonvacuous.settings import in_words
from nonvacuous.study.sweep import slug

if TYPE_CHECKING:
    from nonvacuous.data import Examples


class Frozen(BaseModel):
    """A record whose names are all known and which nobody changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Derived(Frozen):
    """A record whose dictionary also holds some of its properties."""

    derived: ClassVar[tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json") | {name: getattr(self, name) for name in self.derived}


class CellRecord(Frozen):
    """What a cell gives, for a study that wants it back as it was."""

    def lines(self) -> Sequence[str]:
        """What to say when the cell has ended."""
        return ()


class Described(Frozen):
    """Settings that are described by the words below each, which the flags show too."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class StudySettings(Described):
    """What the settings of every study can do."""

    #: Ready-made settings by the name of their flag and of the method that makes them.
    presets: ClassVar[Mapping[str, str]] = {
        "quick": "The same steps on the small embedded digits, in seconds."
    }

    seed: int = Field(default=0, ge=0, description="Everything random follows from it.")

    @classmethod
    def from_toml(cls, path: str | Path, **more: Any) -> Self:
        """Read a file such as those in experiments/, with settings that it may leave out."""
        return cls.of({**more, **read_toml(Path(path))}, where=f"{path}: ")

    @classmethod
    def of(cls, record: Mapping[str, Any], *, where: str = "") -> Self:
        """Settings from plain values; an error says which one is wrong, and where it stands."""
        for name in record:
            if name not in cls.model_fields:
                listed = ", ".join(sorted(cls.model_fields))
                raise BadInput(f"{where}there is no setting {name!r}; there are {listed}")
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            said = in_words(error, spelled=lambda name: name.replace("_", "-"))
            raise BadInput(f"{where}{said}") from error

    def changed(self, **given: Any) -> Self:
        """The same with some settings replaced, checked again."""
        return self.of({**dict(self), **given}) if given else self

    def record(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


Listed = TypeVar("Listed")


def chosen(listed: Mapping[str, Listed], only: Sequence[str], what: str) -> dict[str, Listed]:
    """Those that ``only`` names, in its order; all where it names none."""
    for name in only:
        if name not in listed:
            raise BadInput(f"only: there is no {what} {name!r} here; there are {', '.join(listed)}")
    return {name: listed[name] for name in only or listed}


EXAMPLES = "Only so many training examples, the first ones."


class DataSettings(StudySettings):
    """Settings of a study of data that the user names."""

    presets: ClassVar[Mapping[str, str]] = {}

    data: str = Field(description=SOURCES)

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is read or announced."""


@contextmanager
def under(flag: str, remedy: str | None = None) -> Iterator[None]:
    """Within this block, what is wrong is wrong with a flag; ``remedy`` is a value that is not."""
    try:
        yield
    except BadInput as error:
        instead = error.instead if remedy is None else {f"--{flag}": remedy}
        raise BadInput(f"--{flag}: {error}", instead=instead) from error


def first_examples(train: Examples, count: int | None) -> Examples:
    """The first so many, or all of them; more than there are is refused."""
    if count is not None and count > len(train):
        raise BadInput(
            f"--examples {count:,}: {train.name} has {len(train):,} training examples.",
            instead={"--examples": str(len(train))},
        )
    return at_most(train, count)


def at_most(examples: Examples, count: int | None) -> Examples:
    """The first so many, or all of them where there are no more."""
    return examples.subset(range(len(examples))[:count])


def default_folder(data: str, model: str, seed: int) -> Path:
    """runs/DATA-MODEL-seedN, whatever characters the names have.

    >>> default_folder("my data/x<1>.npz", "mlp:256,64", 3).as_posix()
    'runs/x-1-mlp-256-64-seed3'
    """
    names = (slug(name) or "unnamed" for name in (data if ":" in data else Path(data).stem, model))
    return Path("runs") / f"{'-'.join(names)}-seed{seed}"
