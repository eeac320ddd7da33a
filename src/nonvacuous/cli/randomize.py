"""``nonvacuous randomize``: the study, or with --run a certificate's recipe on random labels."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from nonvacuous.cli import exits, study_command
from nonvacuous.studies.randomize import STUDY

_study = study_command.command_of(STUDY)
_RUN = Annotated[
    Path | None,
    Parameter(
        help="The folder of a finished nonvacuous certify: its recipe is repeated on random "
        "labels, and random_labels.json is written beside its certificate. Data or a model of your "
        "own must be named again (--data, --model): nothing that a folder names is opened or "
        "imported."
    ),
]


def randomize(*, run: _RUN = None, **flags: Any) -> int:
    """Train the same network on true and on randomized data, and say what the difference means."""
    if run is None:
        if flags.get("data") is None and flags.get("config") is None:
            raise exits.UsageError(
                "say what to test: --data NAME, such as --data digits, or --run FOLDER with a "
                "finished nonvacuous certify.",
                instead="nonvacuous randomize --data digits",
            )
        return _study(**flags)
    from nonvacuous.cli.randomize_certified import randomize_run

    return randomize_run(run, flags)


_flags = list(inspect.signature(_study).parameters.values())
_run = inspect.Parameter("run", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_RUN)
randomize.__signature__ = inspect.Signature([*_flags[:3], _run, *_flags[3:]])  # type: ignore[attr-defined]
