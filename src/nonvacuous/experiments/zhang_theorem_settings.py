"""What the reproduction of the memorization theorem computes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.experiments.settings_files import SettingsFile


@dataclass(frozen=True)
class TheoremSettings(SettingsFile):
    """One reproduction.

    data     the data set
    sizes    numbers of examples, the first ones each; empty: all of them
    depths   layers of weights
    seed     decides random labels and directions
    """

    data: str = "mnist"
    sizes: tuple[int, ...] = (6_000, 20_000, 60_000)
    depths: tuple[int, ...] = (2, 3, 11, 101, 601)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("sizes", 1), ("depths", 2)):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            for value in values:
                if not isinstance(value, int) or isinstance(value, bool) or value < least:
                    raise BadInput(f"{name}: {value!r} is not a whole number from {least} up")
        if not self.depths:
            raise BadInput("depths: there are none; give at least one, such as 2")

    @classmethod
    def quick(cls) -> TheoremSettings:
        """The same steps on the embedded digits, in seconds."""
        return cls(data="digits", sizes=(140, 470, 1_437), depths=(2, 3, 11))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, as they stand in a file."""
        record = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in record.items()}
