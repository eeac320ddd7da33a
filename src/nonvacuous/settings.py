"""Settings: frozen, checked when they are made, and the one source of flags and records.

What a settings object holds is a function's argument, a flag of the command, a key of TOML and the
record of a run; a :class:`Flag` in a field's annotation gives its words on the command line.
No torch here: the command line reads these before it loads anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput

PROMISE, TRAINING = "The promise", "Training"


@dataclass(frozen=True)
class Flag:
    """A field as a flag of the command line.

    help     one or two sentences for a person
    group    the heading it stands under
    name     where it differs from the field's; one flag may fill several fields
    """

    help: str
    group: str = PROMISE
    name: str | None = None


class Settings(BaseModel):
    """What all settings share: nothing unknown, nothing unchecked, nothing changed afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    if not TYPE_CHECKING:  # else every keyword would be accepted there

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise in_words(error, type(self)) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        """The flags' words are the documentation of the fields, too."""
        lines = [f"{name:20} {flag.help}" for name, flag, _ in flags_of(cls, nested=False)]
        cls.__doc__ = "\n    ".join([(cls.__doc__ or "").rstrip(), "", *lines])

    def changed(self, **changes: Any) -> Self:
        """The same settings with some others, checked like the first ones."""
        return type(self)(**{**dict(self), **changes})

    def record(self) -> dict[str, Any]:
        """The settings as plain values, for TOML."""
        return self.model_dump(mode="python")


def flags_of(kind: type[Settings], *, nested: bool = True) -> Iterator[tuple[str, Flag, FieldInfo]]:
    """Every flag of a settings class: its name, its words, and the field that it fills."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if nested and isinstance(inner, type) and issubclass(inner, Settings):
            yield from flags_of(inner)
        for flag in field.metadata:
            if isinstance(flag, Flag):
                yield flag.name or name, flag, field


def from_flags(kind: type[Settings], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a settings class out of flags by name; what no field takes is left over."""
    arguments: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings):
            arguments[name] = inner(**from_flags(inner, given))
        for flag in field.metadata:
            if isinstance(flag, Flag) and (flag.name or name) in given:
                arguments[name] = given[flag.name or name]
    return arguments


def in_words(
    error: ValidationError,
    kind: type[BaseModel] | None = None,
    *,
    spelled: Callable[[str], str] = str,
) -> BadInput:
    """The first complaint, as a sentence of ours; ``spelled`` writes names as a user does.

    kind   the settings, where their own checks name what they are about
    """
    for complaint in error.errors():
        own = complaint.get("ctx", {}).get("error")
        if isinstance(own, BadInput) and kind is not None:
            return own
    complaint = error.errors()[0]
    name = spelled(".".join(str(part) for part in complaint["loc"]))
    if complaint["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if kind is None or len(complaint["loc"]) > 1:
            return BadInput(f"there is no setting {name!r}")
        known = ", ".join(kind.model_fields) or "none"
        return BadInput(f"{kind.__name__} has no setting {name!r}; it has {known}")
    if complaint["type"] == "missing":
        return BadInput(f"{name} is needed")
    if complaint["type"] == "value_error":
        own = complaint["ctx"]["error"]
        text, instead = str(own), getattr(own, "instead", None)
        return BadInput(text if text.startswith(name) else f"{name}: {text}", instead=instead)
    wanted = complaint["msg"].removeprefix("Input should ")
    said = f": {wanted}" if wanted == complaint["msg"] else f" must {wanted}"
    return BadInput(f"{name}{said}, got {complaint['input']!r}")


def checked(check: Callable[..., Any], **options: Any) -> BeforeValidator:
    """A check of :mod:`nonvacuous.bounds.checks` on a field, which it calls by its name."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        name = (info.context or {}).get("name", info.field_name)
        return check(name, value, **options)

    return BeforeValidator(validate)


def _scales(name: str, value: Any) -> tuple[float, ...]:
    """One scale, several, or a ScaleGrid, in order."""
    given = getattr(value, "scales", value)
    return tuple(
        sorted(checks.grid_of(name, given if isinstance(given, tuple | list) else (given,)))
    )


def share(name: str, value: Any) -> float:
    """A number from 0, up to and without 1."""
    part = checks.unit_interval(name, value)
    if part == 1.0:
        raise BadInput(f"{name} must be below 1, got {value!r}")
    return part


def sentence(name: str, value: Any) -> str:
    """What a user declares about weights that come from elsewhere."""
    if not isinstance(value, str) or not value.strip():
        raise BadInput(
            f"{name} must be a sentence on where the weights come from, such as 'trained on "
            f"ImageNet by A. N. Other', not {value!r}"
        )
    return value.strip()


Count = Annotated[int, checked(checks.count)]
PositiveCount = Annotated[int, checked(checks.count, minimum=1)]
Positive = Annotated[float, checked(checks.positive)]
NonNegative = Annotated[float, checked(checks.non_negative)]
#: From 0, up to and without 1; and without 0.
Share = Annotated[float, checked(share)]
Inside = Annotated[float, checked(checks.within, low=0.0, high=1.0, open=True)]
Switch = Annotated[bool, Strict()]
Scales = Annotated[tuple[float, ...], checked(_scales)]


class Run(Settings):
    """A run folder with more than its path.

    folder         everything needed to check, resume and report the certificate
    architecture   what the network is called; its class's name by default
    source         where the examples come from; their name by default
    ledger         the file that remembers attempts on the same examples; attempts.jsonl beside the
                   folder by default, and none without either
    different_data where the ledger has examples with the same labels, why these are other data: a
                   sentence that the certificate quotes
    tensorboard    a folder for TensorBoard, where that package is installed
    """

    folder: Path | None = None
    architecture: str | None = None
    source: str | None = None
    ledger: Path | None = None
    different_data: str | None = None
    tensorboard: Path | None = None

    @classmethod
    def of(cls, folder: Any) -> Run:
        """The settings themselves, or those of a plain path."""
        return folder if isinstance(folder, Run) else cls(folder=folder)
