"""The networks of the study of measures on disk: one table, from which all statistics come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonvacuous.claims import claim_folder
from nonvacuous.errors import BadInput
from nonvacuous.experiments.measures_study_settings import JUDGING, StudySettings
from nonvacuous.files import write_atomically

TABLE, TIMES = "networks.jsonl", "times.json"


@dataclass(frozen=True)
class NetworkRecord:
    """One network: how it was trained, what it came to, and every measure of it.

    stopped      "loss" where it reached the stopping loss; no other network is judged
    measures     name -> {"number", "log10"}, or {"undefined": why}; empty where not judged
    """

    key: str
    hyperparameters: Mapping[str, Any]
    repetition: int
    stopped: str
    epochs: int
    steps: int
    train_loss: float | None
    train_errors: int
    test_loss: float | None
    test_errors: int
    test_examples: int
    measures: Mapping[str, Mapping[str, Any]]

    @property
    def judged(self) -> bool:
        """Whether it reached the stopping loss."""
        return self.stopped == "loss"

    @property
    def test_error(self) -> float:
        """Share of the test set."""
        return self.test_errors / self.test_examples

    @property
    def gap(self) -> float:
        """Test error minus training error, as shares."""
        return self.test_error - self.train_errors / int(self.hyperparameters["examples"])

    @property
    def loss_gap(self) -> float:
        """The same of the cross-entropy."""
        assert self.test_loss is not None and self.train_loss is not None
        return self.test_loss - self.train_loss


@dataclass(frozen=True)
class Times:
    """How long it took.

    networks, seconds      trained together
    steps                  of all of them
    measuring_seconds      of the processes that computed measures, added up
    alone_*                networks trained one at a time on the same device, and their steps
    """

    networks: int = 0
    steps: int = 0
    seconds: float = 0.0
    measuring_seconds: float = 0.0
    device: str = ""
    method: str = ""
    alone_networks: int = 0
    alone_steps: int = 0
    alone_seconds: float = 0.0

    @property
    def per_minute(self) -> float | None:
        """Networks trained in a minute, together."""
        return 60.0 * self.networks / self.seconds if self.seconds else None

    @property
    def per_minute_alone(self) -> float | None:
        """Networks trained in a minute one after the other, by the time of a step."""
        if not self.alone_steps or not self.steps:
            return None
        return 60.0 * self.networks / (self.alone_seconds / self.alone_steps * self.steps)

    @property
    def speedup(self) -> float | None:
        """How many times longer the same would have taken one after the other."""
        together, alone = self.per_minute, self.per_minute_alone
        return None if together is None or alone is None else together / alone

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, derived ones included."""
        return asdict(self) | {
            "per_minute": self.per_minute,
            "per_minute_alone": self.per_minute_alone,
            "speedup": self.speedup,
        }


class StudyStore:
    """A folder with the settings, the table of networks and the times."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def open(self, settings: StudySettings, *, resume: bool, force: bool) -> None:
        """Write the settings, or find there what was trained with the same ones.

        How networks are judged may change from one call to the next, how they are trained not.
        """
        claim_folder(
            self.folder,
            settings.to_dict(),
            results=(TABLE, TIMES),
            may_change=JUDGING,
            resume=resume,
            force=force,
        )

    def records(self) -> tuple[NetworkRecord, ...]:
        """All networks of the table."""
        path = self.folder / TABLE
        if not path.is_file():
            return ()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return tuple(NetworkRecord(**json.loads(line)) for line in lines)
        except (ValueError, TypeError) as error:
            raise BadInput(
                f"{path} is not a table of networks ({error}); restore it, or start anew (force)"
            ) from error

    def times(self) -> Times:
        """What is known of the time so far."""
        path = self.folder / TIMES
        return Times(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Times()

    def save(self, records: Iterable[NetworkRecord], times: Times) -> None:
        """Write the whole table, and the times."""
        lines: Sequence[str] = [json.dumps(asdict(entry), allow_nan=False) for entry in records]
        self._write(TABLE, "".join(f"{line}\n" for line in lines))
        self._write(TIMES, json.dumps(asdict(times), indent=2) + "\n")

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.folder / name, lambda stream: stream.write(text.encode()))
