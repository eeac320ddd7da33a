"""Each field of a resealed certificate in turn: changed, it contradicts run, data or network."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nonvacuous.certificate import Certificate
from nonvacuous.verification.numbers import Unsealed
from nonvacuous.verify import verify

from . import forging

MAKERS = {
    "holdout": forging.holdout_run,
    "posterior": forging.posterior_run,
    "post-hoc": forging.post_hoc_run,
    "sparsity": forging.sparsity_run,
    "tilted": forging.progressive_run,
}
#: What follows from other fields, or only says where it was made.
BESIDE = ("format", "statement", "digest", "software", "artifacts")


def places(value: Any, *place: str | int) -> Iterator[tuple[str | int, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in entries:
        yield (*place, key)
        if isinstance(entry, dict | list):
            yield from places(entry, *place, key)


def others(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, str):
        return (f"{value} A notary looked on.",)
    if isinstance(value, list) and len(value) > 1:
        return value[1:], value[:-1]
    if isinstance(value, int):
        return (value + 1,)
    return (0.9 * value,) if isinstance(value, float) else ()


@pytest.mark.slow
@pytest.mark.nightly_if("post-hoc")
@pytest.mark.parametrize("kind", MAKERS)
def test_every_field_is_held_against_the_evidence(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "runs" / "run"
    honest = MAKERS[kind](folder)
    # A plain test is of examples that no test part stands beside.
    data = forging.examples() if kind == "holdout" else forging.data()
    believed, tried, record = [], 0, json.loads(honest.model_dump_json())
    for place in places(record):
        if place[0] in BESIDE:
            continue
        *way, last = place
        changed = copy.deepcopy(record)
        inner = changed
        for key in way:
            inner = inner[key]
        for other in others(inner[last]):
            inner[last] = other
            try:
                forged = Unsealed.model_validate_json(json.dumps(changed))
                names = set(Certificate.model_fields) - {"digest", "format"}
                forging.forged(folder, **{name: getattr(forged, name) for name in names})
            except ValueError:
                continue  # no certificate can say so
            if Certificate.load(folder / "certificate.json") == honest:
                continue  # what follows from other fields
            tried += 1
            if verify(folder, data=data, trials=300).passed:
                believed.append((place, other))
    assert not believed
    assert tried > 80
