"""Where a run is kept and what it is called. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nonvacuous.certification.settings import Settings


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
