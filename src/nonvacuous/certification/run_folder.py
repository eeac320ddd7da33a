"""One folder per run: written so that a kill at any moment loses little, read back on resume."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nonvacuous.claims import Record, claim_folder
from nonvacuous.data.files import sha256_of_file
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.errors import BadInput, FolderTaken
from nonvacuous.files import inside
from nonvacuous.foreign import run_settings

#: Patterns of the files that a certificate rests on; it records the digest of each that exists.
EVIDENCE = (
    "config.toml",
    "split.npz",
    "prior.safetensors",
    "posterior.safetensors",
    "drawn.safetensors",
    "network.safetensors",
    "weights.safetensors",
    "log_scales.npz",
    "twin.safetensors",
    "checkpoint-*.safetensors",
)


#: What the network was like when the run began, in config.toml; see certification.beginning.
BEGINNING = "beginning"
#: Of config.toml: a run that was begun with other keys cannot be gone on with.
FORMAT = 2


class RunFolder:
    """Where a run keeps its files. ``RunFolder(None)`` keeps nothing, with the same calls."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)

    def file(self, name: str) -> Path | None:
        return None if self.path is None else inside(self.path, name)

    def write(self, name: str, work: Callable[[Path], object]) -> None:
        """Have a file written, where files are kept."""
        path = self.file(name)
        if path is not None:
            work(path)

    def tensors(self, name: str, tensors: Mapping[str, Tensor], *, kind: str = "network") -> None:
        self.write(name, lambda path: save_tensors(path, tensors, kind=kind))

    def existing(self, name: str) -> Path | None:
        """The file if it is there."""
        path = self.file(name)
        return path if path is not None and path.exists() else None

    def open(
        self, configuration: Mapping[str, Any], *, resume: bool, force: bool
    ) -> Mapping[str, Any]:
        """Claim the folder for this configuration, or find it claimed by the same one.

        The configuration as the folder has it: what the network answered is what it answered when
        the run began, which another device rounds otherwise.
        """
        if self.path is None:
            return configuration
        begun = self.existing(CONFIG.name) is not None and not force
        now, then = configuration.get(BEGINNING, {}), None
        if begun and resume:
            stored = run_settings(self.path)  # what cannot be read is said where it is compared
            if stored and stored.get("format") != FORMAT:  # a mix of both would be nobody's run
                raise FolderTaken(
                    f"{self.path} holds a run that another version of nonvacuous began. Finish it "
                    "with that version, name another folder, or overwrite it (force)"
                )
            # Runs of older versions do not say.
            then = stored.get(BEGINNING)
            configuration = {k: v for k, v in configuration.items() if k != BEGINNING}
            configuration |= {} if then is None else {BEGINNING: then}
        claim_folder(
            self.path, configuration, results=_RESULTS, resume=resume, force=force, record=CONFIG
        )
        why = "" if then is None else _otherwise(then, now)
        if why:
            raise FolderTaken(
                f"{self.path} holds a run of another network: the one given {why}. Its code or an "
                "attribute changed since the run began, so nothing there is about it. Resume with "
                "the network as it was, name another folder, or overwrite the run (force)"
            )
        if not begun:
            # Those of a run with other settings may have seen what this one must not.
            self.drop_checkpoints()
        return configuration

    def drop_checkpoints(self) -> None:
        """A finished run needs none, and a new one must not go on from another's."""
        if self.path is not None:
            for checkpoint in self.path.glob("*.checkpoint"):
                checkpoint.unlink()

    def artifacts(self) -> dict[str, str]:
        """The digests of all evidence files that exist."""
        if self.path is None:
            return {}
        files = (path for pattern in EVIDENCE for path in sorted(self.path.glob(pattern)))
        return {path.name: sha256_of_file(inside(self.path, path.name)) for path in files}


def _otherwise(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What is not as it was when the run began, in words; nothing where all is."""
    if stored.get("layers") != now.get("layers"):
        return "has other layers, or layers with other settings"
    then, today = stored.get("answers", []), now.get("answers", [])
    slack = _ROUNDING * max(map(abs, then), default=0.0)
    if len(then) != len(today) or any(
        abs(one - other) > slack for one, other in zip(then, today, strict=True)
    ):
        return "answers otherwise with the same weights"
    return ""


#: What another device or number of threads may move an answer by, as a part of the largest.
_ROUNDING = 1e-3


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
    # JSON's values are TOML's, but for the surrogate pairs that ensure_ascii=False avoids, and for
    # null and records inside a list.
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
        tomllib.loads(f"value = {text}")
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        raise BadInput(f"a setting of type {kind} cannot be stored: {value!r}") from error
    return text


def settings_digest(configuration: Mapping[str, Any]) -> str:
    """What was to be computed, not how it is called or what stands beside it."""
    names = ("architecture", "source", "data_name", "preprocessing")
    beside = (*names, "attempts", "twin", "different_data", BEGINNING)
    computed = {name: value for name, value in configuration.items() if name not in beside}
    computed["method"] = {n: v for n, v in computed["method"].items() if n not in beside}
    return hashlib.sha256(to_toml(computed).encode()).hexdigest()


def flat(record: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Settings by name, those of tables within with the table's; a method's go by their own.

    >>> flat({"seed": 1, "method": {"trials": 5, "training": {"epochs": 2}}})
    {'seed': 1, 'trials': 5, 'training.epochs': 2}
    """
    named: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            named |= flat(value, prefix="" if name == "method" else f"{prefix}{name}.")
        else:
            named[prefix + name] = value
    return named


def _read(text: str) -> dict[str, Any]:
    return flat(tomllib.loads(text))


CONFIG = Record("config.toml", to_toml, _read, "run", ("split.npz", "events.jsonl"))
#: The certificate goes first: what is left after a kill must not look finished.
_RESULTS = ("certificate.json", "report.html", "events.jsonl", *EVIDENCE[1:])
