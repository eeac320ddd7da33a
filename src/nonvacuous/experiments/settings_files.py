"""Settings that can be read from a TOML file, unknown names being errors."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from nonvacuous.errors import BadInput


class SettingsFile:
    """What the settings of every experiment can do; they are frozen dataclasses."""

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read a file such as those in experiments/."""
        try:
            record = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}; check the path") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} is not TOML: {error}") from error
        return cls.from_dict(record, where=str(path))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, where: str = "settings") -> Self:
        """Settings as they stand in a file; ``where`` is named in errors."""
        check_names(record, cls, where)
        return cls(**record)


def check_names(record: Mapping[str, Any], kind: type, where: str) -> None:
    """Refuse a name that the dataclass ``kind`` does not have."""
    known = {entry.name for entry in fields(kind)}
    for name in record:
        if name not in known:
            raise BadInput(
                f"{where}: there is no setting {name!r}; there are {', '.join(sorted(known))}"
            )
