"""What decides a study: one frozen model that is argument, flags, TOML file and record at once.

Fields with ``exclude=True`` say which part of the study is asked for this time: they are flags, but
no part of the record, and may differ from one call to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nonvacuous.errors import BadInput
from nonvacuous.foreign import read_toml


class Frozen(BaseModel):
    """A record whose names are all known and which nobody changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StudySettings(Frozen):
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
            raise BadInput(where + _described(error)) from error

    def changed(self, **given: Any) -> Self:
        """The same with some settings replaced, checked again."""
        return self.of({**dict(self), **given}) if given else self

    def record(self) -> dict[str, Any]:
        """Plain values, as they stand in a file."""
        return self.model_dump(mode="json")


def _described(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"])).replace("_", "-")
    if first["type"] == "missing":
        return f"{name} is needed"
    if first["type"] == "value_error":
        text = str(first["ctx"]["error"])
        return text if not name or text.startswith(name) else f"{name}: {text}"
    return f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}, not {first['input']!r}"
