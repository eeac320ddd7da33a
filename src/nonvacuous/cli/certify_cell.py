"""``nonvacuous certify`` as a cell of a sweep: settings in, numbers of the certificate out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nonvacuous.cli.exits import INTERRUPTED, TERMINATED, CommandError, UsageError, started_with
from nonvacuous.cli.flags import PREFIX
from nonvacuous.foreign import holds_run

#: What the sweep decides, or what makes no sense for many runs at once.
_NOT_HERE = ("out", "resume", "force", "config", "json", "tensorboard", "ledger")
#: Flags without a --no- form.
_SWITCHES = ("unseen", "allow_conditional")
_KEPT = ("NONVACUOUS_DATA",)


def certify_cell(
    *, seed: int, folder: Path, ledger: Path | None = None, **settings: Any
) -> dict[str, Any]:
    """Certify in a run folder, going on with what is there; the settings are the command's flags.

    A refused certificate is a result too: its status says so.
    """
    from nonvacuous.certificate import Certificate
    from nonvacuous.cli.app import app
    from nonvacuous.study.runs import figures_of

    words = words_of(settings, seed=seed, folder=folder)
    if ledger is not None:
        words += ["--ledger", str(ledger)]
    if holds_run(folder):
        words.append("--resume")
    with _own_settings_only(), started_with(words):
        code = app(words, exit_on_error=False, print_error=False)
    if code in (INTERRUPTED, TERMINATED):
        raise KeyboardInterrupt
    path = folder / "certificate.json"
    if not path.is_file():
        raise CommandError(f"certify ended with code {code} and without a certificate.")
    return figures_of(Certificate.load(path))


def words_of(settings: Mapping[str, Any], *, seed: int, folder: Path) -> list[str]:
    """The words of the command for one cell.

    >>> words_of({"data": "digits", "twin": False, "prior_scale": [0.1, 1.0]}, seed=1,
    ...          folder=Path("x"))[1:8]
    ['--no-report', '--data=digits', '--no-twin', '--prior-scale', '0.1', '1.0', '--seed']
    """
    words = ["certify"]
    for name, value in {"report": False, **settings}.items():
        flag = name.replace("_", "-")
        if flag in _NOT_HERE:
            raise UsageError(f"the setting {name} has no place in a sweep: remove it.")
        if isinstance(value, bool):
            if value or name not in _SWITCHES:
                words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        else:
            words.append(f"--{flag}={value}")
    return [*words, "--seed", str(seed), "--out", str(folder)]


@contextmanager
def _own_settings_only() -> Iterator[None]:
    """Without NONVACUOUS_... variables: a cell is the same on every machine of a cluster."""
    hidden = {n: v for n, v in os.environ.items() if n.startswith(PREFIX) and n not in _KEPT}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
