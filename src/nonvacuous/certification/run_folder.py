"""One folder per run: written so that a kill at any moment loses little, read back on resume."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from nonvacuous.data.files import sha256_of_file
from nonvacuous.errors import BadInput, NonvacuousError
from nonvacuous.files import write_atomically

#: The files that a certificate rests on; it records the digest of each that exists.
EVIDENCE = (
    "config.toml",
    "split.npz",
    "prior.safetensors",
    "posterior.safetensors",
    "drawn.safetensors",
    "network.safetensors",
    "weights.safetensors",
    "log_scales.npz",
)


#: What a run writes before it computes anything.
_CLAIM = ("config.toml", "split.npz", "events.jsonl")

_P = ParamSpec("_P")
_T = TypeVar("_T")


class FolderTaken(BadInput):
    """The folder holds another run: it is neither overwritten nor gone on with unasked."""


def given_back_if_refused(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function with a ``folder`` leaves no claim on it when it refuses before any result.

    Otherwise the corrected call would find the folder taken by a run that never was. A run that
    has computed something keeps its folder, and so has one that was there before.
    """

    @functools.wraps(function)
    def guarded(*arguments: _P.args, **settings: _P.kwargs) -> _T:
        folder = settings.get("folder")
        if not isinstance(folder, str | Path):
            return function(*arguments, **settings)
        path = Path(folder)
        was_there, was_claimed = path.is_dir(), (path / "config.toml").exists()
        try:
            return function(*arguments, **settings)
        except NonvacuousError:
            if not was_claimed or settings.get("force"):
                _give_back(path, keep=was_there)
            raise

    return guarded


def _give_back(folder: Path, *, keep: bool) -> None:
    """Remove a claim that nothing was computed for, and the folder unless it was there before."""
    if not folder.is_dir():
        return
    events = folder / "events.jsonl"
    begun = events.is_file() and events.stat().st_size > 0
    shown = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    if begun or any(name not in _CLAIM for name in shown):
        return
    for name in shown:
        (folder / name).unlink()
    if not keep:
        with contextlib.suppress(OSError):
            folder.rmdir()


class RunFolder:
    """Where a run keeps its files. ``RunFolder(None)`` keeps nothing, with the same calls."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)

    def file(self, name: str) -> Path | None:
        return None if self.path is None else self.path / name

    def existing(self, name: str) -> Path | None:
        """The file if it is there."""
        path = self.file(name)
        return path if path is not None and path.exists() else None

    def open(self, configuration: Mapping[str, Any], *, resume: bool, force: bool) -> None:
        """Claim the folder for this configuration, or find it claimed by the same one."""
        if self.path is None:
            return
        text = to_toml(configuration)
        stored = self.existing("config.toml")
        if stored is not None and not force:
            if not resume:
                raise FolderTaken(
                    f"{self.path} holds a run already. Go on with it (resume), overwrite it "
                    "(force), or name another folder."
                )
            if stored.read_text(encoding="utf-8") != text:
                changed = _changed_keys(stored, text)
                raise FolderTaken(
                    f"{self.path} holds a run with other settings ({changed}). Resume it with the "
                    "settings in its config.toml, overwrite it (force), or name another folder."
                )
            return
        if stored is None and self.existing("certificate.json") is not None and not force:
            raise FolderTaken(
                f"{self.path} holds a certificate but not the settings it was made with. Name "
                "another folder, or overwrite it (force)."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        if force:
            # The certificate goes first: what is left after a kill must not look finished.
            for name in ("certificate.json", "report.html", "events.jsonl", *EVIDENCE):
                (self.path / name).unlink(missing_ok=True)
        # Those of a run with other settings may have seen what this one must not.
        self.drop_checkpoints()
        write_atomically(self.path / "config.toml", lambda stream: stream.write(text.encode()))

    def drop_checkpoints(self) -> None:
        """A finished run needs none, and a new one must not go on from another's."""
        if self.path is not None:
            for checkpoint in self.path.glob("*.checkpoint"):
                checkpoint.unlink()

    def artifacts(self) -> dict[str, str]:
        """The digests of all evidence files that exist."""
        found = ((name, self.existing(name)) for name in EVIDENCE)
        return {name: sha256_of_file(path) for name, path in found if path is not None}


def to_toml(record: Mapping[str, Any], *, prefix: str = "") -> str:
    """A plain record as TOML: scalars and lists first, then one table for each nested record.

    None has no TOML form and is left out.
    """
    lines = [
        f"{_key(key)} = {_value(value)}"
        for key, value in record.items()
        if value is not None and not isinstance(value, Mapping)
    ]
    text = "\n".join(lines) + ("\n" if lines else "")
    for key, value in record.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{_key(key)}"
            text += f"\n[{name}]\n" + to_toml(value, prefix=f"{name}.")
    return text


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the surrogate pairs that ensure_ascii=False avoids.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    raise BadInput(f"a setting of type {type(value).__name__} cannot be stored: {value!r}")


def _changed_keys(stored: Path, text: str) -> str:
    try:
        before = tomllib.loads(stored.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError:
        return "its config.toml cannot be read"
    now = tomllib.loads(text)
    keys = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return ", ".join(keys) or "formatting"


def settings_digest(configuration: Mapping[str, Any]) -> str:
    """Which attempt this is: what was computed, not how it is called or what stands beside it."""
    beside = ("attempts", "architecture", "source", "twin")
    computed = {name: value for name, value in configuration.items() if name not in beside}
    return hashlib.sha256(to_toml(computed).encode()).hexdigest()
