"""``nonvacuous reproduce``: a figure or table of a paper, computed again, in one command.

To add one, write a study in ``papers/`` and name it in its table of REPRODUCTIONS.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from nonvacuous.cli import app, exits
from nonvacuous.errors import nearest
from nonvacuous.papers import REPRODUCTIONS

_words, _example = app.COMMANDS["Studies"]["reproduce"]
reproduce = App(
    name="reproduce",
    help=_words,
    help_epilogue=f"Example:\n\n{_example}",
    help_format="restructuredtext",
    version_flags=(),
    result_action="return_value",
)
for _name, _entry in REPRODUCTIONS.items():
    # By import path, so that nothing is loaded for the one that is not asked for.
    reproduce.command(
        f"nonvacuous.cli.study_command:{_name.replace('-', '_')}",
        name=_name,
        help=_entry.what,
        help_epilogue=f"Example:\n\nnonvacuous reproduce {_name} {_entry.example}",
    )


@reproduce.default
def _unknown(*words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> int:
    """Say what there is when nothing, or something unknown, was asked for."""
    asked = words[0] if words else None
    name = nearest(asked or "", REPRODUCTIONS, cutoff=0.4) or next(iter(REPRODUCTIONS))
    raise exits.UsageError(
        ("name what to reproduce" if asked is None else f"there is no figure {asked!r} here")
        + "; there is "
        + "; ".join(REPRODUCTIONS)
        + ".",
        instead=f"nonvacuous reproduce {name} --quick",
    )
