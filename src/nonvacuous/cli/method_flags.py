"""The flags of ``nonvacuous certify`` that choose a method's settings: made from its fields."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from nonvacuous.certification.method import Method
from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import whole_number
from nonvacuous.errors import BadInput
from nonvacuous.methods import METHODS
from nonvacuous.settings import Flag, flags_of, from_flags, in_words


def dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def method_flags(groups: Mapping[str, Group]) -> type[BaseModel]:
    """A model with every flag of every method, all of them left open: None says not given."""
    known: dict[str, list[tuple[Flag, FieldInfo]]] = {}
    for kind in METHODS.values():
        for name, flag, (_, field) in flags_of(kind):
            known.setdefault(name, []).append((flag, field))
    fields: dict[str, Any] = {}
    for name, uses in known.items():
        flag, field = uses[0]
        texts = dict.fromkeys(flag.help for flag, _ in uses)
        defaults = {field.default for _, field in uses if not field.is_required()}
        shown = defaults.pop() if len(defaults) == 1 and len(texts) == 1 else None
        parameter = Parameter(
            group=groups[flag.group],
            help=" ".join(texts),
            negative=() if flag.switch else None,
            show_default=_shown(None if flag.switch else shown),
        )
        fields[name] = (Annotated[(_typed(field) | None, parameter, *_reading(field))], None)
    return create_model("MethodFlags", **fields)


def _shown(default: Any) -> Callable[[Any], Any] | bool:
    """What the help says is the default; nothing where it depends on the method."""
    return False if default is None else lambda _none_given: default


def _typed(field: FieldInfo) -> Any:
    """The type that the words of a flag are read as."""
    kind = field.annotation
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return str if kind is Any else kind


def _reading(field: FieldInfo) -> list[Parameter]:
    kind = _typed(field)
    if kind is int:
        return [Parameter(converter=whole_number)]
    if get_origin(kind) is tuple:
        return [Parameter(consume_multiple=True, negative=())]
    return []


def method_of(mode: str, given: Mapping[str, Any]) -> Method:
    """The settings of a method out of the flags that were given, each checked under its name."""
    kind = METHODS[mode]
    own = list(flags_of(kind))
    for name, value in given.items():
        if name not in {known for known, _, _ in own}:
            owners = [
                m for m, other in METHODS.items() if name in {n for n, _, _ in flags_of(other)}
            ]
            raise UsageError(
                f"{said(name, value)} would change nothing in --mode {mode}: it belongs to --mode "
                f"{' or '.join(owners)}. Leave it out."
            )
        field = next(field for known, _, (_, field) in own if known == name)
        checked: Any = Annotated[(field.annotation, *field.metadata)]
        reader: TypeAdapter[Any] = TypeAdapter(checked)
        try:
            reader.validate_python(value, context={"name": dashed(name)})
        except ValidationError as error:
            raise UsageError(str(in_words(error, kind))) from error
    try:
        return kind(**from_flags(kind, dict(given)))
    except BadInput as error:
        raise UsageError(str(error)) from error


def said(name: str, value: Any) -> str:
    """A flag as it was typed, as far as it matters.

    >>> said("rescaling", False), said("trials", 9)
    ('--no-rescaling', '--trials')
    """
    return f"--no-{dashed(name)[2:]}" if value is False else dashed(name)
