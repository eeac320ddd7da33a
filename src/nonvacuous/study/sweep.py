"""The file behind ``nonvacuous sweep``: what to run, what is fixed, and the grid."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.foreign import read_toml
from nonvacuous.seeds import derived_seed

#: Letters of the digest in a cell's name: two of a million cells share them once in 560 sweeps.
_DIGEST_LETTERS = 12
_NAME_LETTERS = 60


@dataclass(frozen=True)
class Cell:
    """What is computed once, and where it goes.

    run       "certify", or "package.module:function"
    settings  by name, without the seed
    seed      the one among the settings, or one derived from them: never from the order of cells
    own_seed  whether it was among the settings
    digest    decides whether two cells are the same; depends on all of the above and nothing else
    name      of the run folder: settings that a person can read, and the digest
    """

    run: str
    settings: Mapping[str, Any]
    seed: int
    digest: str
    name: str
    own_seed: bool = False

    @classmethod
    def of(
        cls,
        run: str,
        settings: Mapping[str, Any],
        *,
        seed: int,
        shown: Iterable[str] = (),
        label: str = "",
    ) -> Cell:
        """The cell with these settings; ``seed`` is the sweep's, ``shown`` what its name shows.

        ``label`` is the readable part of its name where it is not made of settings.

        >>> Cell.of("m:f", {"width": 8, "seed": 3}, seed=0, shown=["width", "seed"]).name
        'width=8,seed=3-8d6c7ccdfb42'
        """
        plain = {normal_name(key): value for key, value in settings.items()}
        for key, value in plain.items():
            _check(key, value)
        given = plain.pop("seed", None)
        own_seed = given is not None
        if given is None:
            own = derived_seed(seed, "cell", _canonical({"run": run, "settings": plain}))
            # 31 bits fit every random generator that a function of the user's may seed.
            given = own >> 32
        _check_seed(given)
        text = _canonical({"run": run, "settings": plain, "seed": given})
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LETTERS]
        named = {**plain, "seed": given} if own_seed else plain
        keys = [key for key in map(normal_name, shown) if key in named]
        parts = [f"{key}={_readable(named[key])}" for key in keys]
        # Letters that every file system, shell and address takes as they are.
        readable = re.sub(r"[^A-Za-z0-9._=,]+", "-", label or ",".join(parts))
        readable = readable[:_NAME_LETTERS].strip("-.,=_ ")
        name = f"{readable}-{digest}" if readable else digest
        return cls(run, plain, given, digest, name, own_seed)

    @property
    def asked(self) -> dict[str, Any]:
        return {**self.settings, "seed": self.seed} if self.own_seed else dict(self.settings)

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "digest", "run", "settings", "seed")
        return {name: getattr(self, name) for name in names}

    def described(self) -> str:
        settings = [f"{key} {_readable(value)}" for key, value in self.settings.items()]
        return ", ".join([*settings, f"seed {self.seed}"])


def normal_name(key: str) -> str:
    """Settings may be written as flags are: learning-rate is learning_rate."""
    return key.replace("-", "_")


def _check(key: str, value: Any) -> None:
    """Only what JSON keeps exactly: the digest and the record of a cell are made of it."""
    if isinstance(value, Mapping):
        for inner, entry in value.items():
            _check(f"{key}.{inner}", entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _check(key, entry)
    elif not isinstance(value, bool | int | float | str | None):
        raise BadInput(
            f"the setting {key} is a {type(value).__name__}: use numbers, texts, true or false, "
            "and lists or tables of them"
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"the setting {key} is {value!r}: settings are finite numbers")


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadInput(f"seed is {seed!r}: it must be a whole number, 0 or more")


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, ensure_ascii=True, allow_nan=False)


def _readable(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_readable, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_TABLES = ("name", "seed", "command", "fixed", "grid", "cells")
#: A grid this large is a slip of the finger.
_MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Sweep:
    """Every cell of an experiment, in the order of the file.

    name  of the experiment: the file's name unless it says otherwise
    run   "certify" or "package.module:function"
    seed  the seeds of cells that have none of their own follow from it
    shown the settings that names of cells show
    """

    name: str
    run: str
    seed: int
    cells: tuple[Cell, ...]
    shown: tuple[str, ...] = ()

    def completed(self, **defaults: Any) -> Sweep:
        """The same sweep with settings added to the cells that do not have them."""
        cells = tuple(
            Cell.of(self.run, {**defaults, **cell.asked}, seed=self.seed, shown=self.shown)
            for cell in self.cells
        )
        return replace(self, cells=cells)


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """The sweep that a TOML file describes.

    [command] says what to run, [fixed] holds settings that every cell shares, [grid] lists of
    values whose every combination is a cell, and each [[cells]] one more cell by itself.
    """
    source = Path(path)
    record = read_toml(source)
    try:
        return sweep_of(record, name=source.stem)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from error


def sweep_of(record: Mapping[str, Any], *, name: str = "sweep") -> Sweep:
    """The sweep of such a record.

    >>> made = sweep_of({"command": {"run": "m:f"}, "fixed": {"a": 1}, "grid": {"b": [1, 2]}})
    >>> [dict(cell.settings) for cell in made.cells]
    [{'a': 1, 'b': 1}, {'a': 1, 'b': 2}]
    """
    unknown = sorted(set(record) - set(_TABLES))
    if unknown:
        raise BadInput(
            f"there is no {', '.join(unknown)} in a sweep; it has {', '.join(_TABLES)}. Settings "
            "of the command belong into [fixed] or [grid]."
        )
    run = _run(record)
    seed = record.get("seed", 0)
    _check_seed(seed)
    fixed, grid = _settings(record, "fixed"), _settings(record, "grid")
    both = sorted(fixed.keys() & grid.keys())
    if both:
        raise BadInput(f"{', '.join(both)} stands in [fixed] and in [grid]; remove one of them.")
    extra = record.get("cells", [])
    if not isinstance(extra, list) or not all(isinstance(entry, Mapping) for entry in extra):
        raise BadInput("cells must be written as [[cells]], one table for each.")
    single = [{normal_name(key): value for key, value in entry.items()} for entry in extra]
    shown = list(dict.fromkeys([*grid, *(key for entry in single for key in entry)]))
    size = math.prod(len(values) for values in grid.values())
    if size > _MOST_CELLS:
        raise BadInput(f"the grid has {size:,} cells; {_MOST_CELLS:,} is the most.")
    # Without a grid there is one combination, of nothing: it counts where nothing else does.
    combined = itertools.product(*grid.values()) if grid or not single else ()
    chosen = [dict(zip(grid, values, strict=True)) for values in combined]
    cells: dict[str, Cell] = {}
    for entry in [*chosen, *single]:
        cell = Cell.of(run, {**fixed, **entry}, seed=seed, shown=shown)
        if cell.digest in cells:
            raise BadInput(
                f"the same cell stands here twice ({cell.described()}); remove one of them."
            )
        cells[cell.digest] = cell
    own = slug(str(record.get("name", name))) or "sweep"
    return Sweep(own, run, seed, tuple(cells.values()), shown=tuple(shown))


def _run(record: Mapping[str, Any]) -> str:
    command = record.get("command")
    run = command.get("run") if isinstance(command, Mapping) else None
    if not isinstance(run, str) or not run:
        raise BadInput(
            'it does not say what to run. Add a table [command] with run = "certify" or '
            'run = "package.module:function".'
        )
    unknown = sorted(set(command or ()) - {"run"})
    if unknown:
        raise BadInput(f"[command] has run only, not {', '.join(unknown)}.")
    return run


def _settings(record: Mapping[str, Any], table: str) -> dict[str, Any]:
    given = record.get(table, {})
    if not isinstance(given, Mapping):
        raise BadInput(f"{table} must be a table: [{table}].")
    settings = {normal_name(key): value for key, value in given.items()}
    if len(settings) != len(given):
        raise BadInput(f"[{table}] names a setting twice, once with - and once with _.")
    if table == "grid":
        for key, values in settings.items():
            if not isinstance(values, list) or not values:
                raise BadInput(
                    f"[grid] {key} must be a list of values to try, not {values!r}; a single "
                    "value belongs into [fixed]."
                )
    return settings


def slug(text: str) -> str:
    """The text in letters that a file name can have everywhere."""
    return "-".join(re.findall(r"[A-Za-z0-9._]+", text)).strip(".-_")[:60]
