"""The one call for whatever shows a bound on examples and is no certificate.

A study that shows a bound lets its reader choose by it. So it is an attempt like a certificate, and
the certificates that come after it know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from nonvacuous.data import Examples
from nonvacuous.rules.attempts import FILE_NAME, Attempt, ledger_beside, record_attempt
from nonvacuous.rules.digests import all_examples_digest
from nonvacuous.rules.outcomes import class_sizes

#: The ledger of runs that are not told where to go.
USUAL_LEDGER = Path("runs") / FILE_NAME


def ledger_of(named: Path | None, folder: Path | None) -> Path:
    """The named ledger, else the one beside the folder of the results, else that of all runs."""
    return named or (USUAL_LEDGER if folder is None else ledger_beside(folder))


class Shown:
    """Bounds that one command shows on some examples.

    examples   all that were loaded, before any of them were cut off or scaled: what is shown about
               a part of them or about other clothes of them is known to all
    """

    def __init__(self, ledger: Path, examples: Examples, *, command: str) -> None:
        self._ledger, self._examples, self._command = ledger, examples, command

    def record(self, settings: Mapping[str, Any], *, paid: int = 1) -> None:
        """Enter a bound with these settings, before anybody sees it.

        paid   the number of certificates that it shares the failure probability with
        """
        text = json.dumps({"command": self._command, **settings}, sort_keys=True, default=str)
        config = hashlib.sha256(text.encode()).hexdigest()
        attempt = Attempt(
            examples=self._digest,
            bound=self._examples.content_hash(),
            config=config,
            paid=paid,
            begun=config,
            classes=class_sizes(self._examples),
            command=self._command,
        )
        record_attempt(self._ledger, attempt)

    @cached_property
    def _digest(self) -> str:
        return all_examples_digest(self._examples)
