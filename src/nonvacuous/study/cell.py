"""One cell of a sweep: a set of settings, the seed that follows from them, and a name."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nonvacuous.errors import BadInput
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
        """The cell with these settings; ``seed`` is the sweep's, ``shown`` what its name tells.

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
        elif isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise BadInput(f"seed is {given!r}: it must be a whole number, 0 or more")
        text = _canonical({"run": run, "settings": plain, "seed": given})
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LETTERS]
        told = {**plain, "seed": given} if own_seed else plain
        parts = [f"{key}={_readable(told[key])}" for key in map(normal_name, shown) if key in told]
        readable = _short(label or ",".join(parts))
        name = f"{readable}-{digest}" if readable else digest
        return cls(run, plain, given, digest, name, own_seed)

    @property
    def asked(self) -> dict[str, Any]:
        """The settings as they were given to :meth:`of`."""
        return {**self.settings, "seed": self.seed} if self.own_seed else dict(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {
            "name": self.name,
            "digest": self.digest,
            "run": self.run,
            "settings": dict(self.settings),
            "seed": self.seed,
        }

    def described(self) -> str:
        """The settings on one line."""
        told = [f"{key} {_readable(value)}" for key, value in self.settings.items()]
        return ", ".join([*told, f"seed {self.seed}"])


def normal_name(key: str) -> str:
    """Settings may be written as flags are: learning-rate is learning_rate."""
    return key.replace("-", "_")


def _check(key: str, value: Any) -> None:
    """Only what JSON keeps exactly: the digest and the record of a cell are made of it."""
    if value is None or isinstance(value, bool | int | str):
        return
    if isinstance(value, float):
        if math.isfinite(value):
            return
        raise BadInput(f"the setting {key} is {value!r}: settings are finite numbers")
    if isinstance(value, list | tuple):
        for entry in value:
            _check(key, entry)
        return
    if isinstance(value, Mapping):
        for inner, entry in value.items():
            _check(f"{key}.{inner}", entry)
        return
    raise BadInput(
        f"the setting {key} is a {type(value).__name__}: use numbers, texts, true or false, and "
        "lists or tables of them"
    )


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, ensure_ascii=True, allow_nan=False)


def _readable(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_readable, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    """Letters that every file system, shell and address takes as they are."""
    words = re.sub(r"[^A-Za-z0-9._=,]+", "-", text)
    return words[:_NAME_LETTERS].strip("-.,=_ ")
