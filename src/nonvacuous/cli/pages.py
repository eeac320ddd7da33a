"""The report page of a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nonvacuous.certificate import Certificate
from nonvacuous.comparison import compare
from nonvacuous.errors import BadInput
from nonvacuous.files import inside
from nonvacuous.foreign import read_json
from nonvacuous.report import write_report
from nonvacuous.training.events import read_events

PAGE = "report.html"
#: Written by ``nonvacuous randomize --run``.
LABELS = "random_labels.json"


def write_page(certificate: Certificate, folder: Path) -> Path:
    """Write report.html from the certificate and the run's history, replacing an older page."""
    events = inside(folder, "events.jsonl")
    history: list[dict[str, Any]] | None = read_events(events) if events.is_file() else None
    return write_report(
        certificate,
        folder / PAGE,
        comparison=None if certificate.evaluation else compare(certificate),
        history=history,
        run_folder=folder,
        labels=_labels(inside(folder, LABELS)),
    )


def _labels(path: Path) -> dict[str, Any] | None:
    """What random labels gave, if that was tried; an unreadable file is none of the page's."""
    try:
        record = read_json(path)
    except BadInput:
        return None
    return record if isinstance(record, dict) else None
