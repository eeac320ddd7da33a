"""What an attack has measured so far, in a file, so that a stopped one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.measures.registry import Measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Result, Undefined, Value

#: Changes when what is written changes.
_FORMAT = 1
Gauge = Mapping[str, Result]


class GaugeStore:
    """The results of every finished gauge; None as the path keeps nothing.

    Numbers are written in hexadecimal: a resumed attack ends with the very same ones.
    """

    def __init__(
        self, path: Path | None, subject: Subject, measures: Sequence[Measure], *, spread: float
    ) -> None:
        self._path = path
        self._gauges: list[dict[str, Any]] = []
        self._key: dict[str, Any] = {}
        if path is None:
            return
        tensors = {f"weights {name}": weight for name, weight in subject.weights.items()}
        tensors |= {f"initial {name}": w for name, w in (subject.initial or {}).items()}
        if subject.inputs is not None and subject.labels is not None:
            tensors |= {"inputs": subject.inputs, "labels": subject.labels}
        self._key = {
            "format": _FORMAT,
            "subject": tensors_digest(tensors),
            "measures": [[measure.name, measure.formula] for measure in measures],
            "spread": spread.hex(),
            "seed": subject.seed,
        }
        if path.exists():
            self._gauges = self._read(path)

    def get(self, number: int) -> Gauge | None:
        """The results in one gauge, where they are known."""
        if number >= len(self._gauges):
            return None
        return {name: _decoded(plain) for name, plain in self._gauges[number].items()}

    def add(self, results: Gauge) -> None:
        """The results in the next gauge."""
        if self._path is None:
            return
        self._gauges.append({name: _encoded(result) for name, result in results.items()})
        text = json.dumps({"key": self._key, "gauges": self._gauges}, allow_nan=False)
        write_atomically(self._path, lambda stream: stream.write(text.encode()))

    def _read(self, path: Path) -> list[dict[str, Any]]:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            key, gauges = stored["key"], list(stored["gauges"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{path} is not the beginning of an attack ({error}); delete it, or name another"
            ) from error
        if key != self._key:
            raise BadInput(
                f"{path} belongs to an attack on another network, or with other measures, spread "
                "or seed; delete it, or name another file"
            )
        return gauges


def _encoded(result: Result) -> Any:
    if isinstance(result, Undefined):
        return {"undefined": result.reason}
    return [float(result.number).hex(), None if result.log is None else float(result.log).hex()]


def _decoded(plain: Any) -> Result:
    if isinstance(plain, dict):
        return Undefined(str(plain["undefined"]))
    number, log = plain
    return Value(float.fromhex(number), None if log is None else float.fromhex(log))
