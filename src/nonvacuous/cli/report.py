"""``nonvacuous report``: the page of a run, written again."""

from __future__ import annotations

from pathlib import Path

from nonvacuous.cli.exits import DONE, CommandError
from nonvacuous.cli.flags import Json
from nonvacuous.cli.folders import holds_run
from nonvacuous.cli.output import result_console, write_json


def report(run_folder: Path, /, *, json: Json = False) -> int:
    """Write report.html from the certificate and the history in a run folder.

    Parameters
    ----------
    run_folder
        The folder with certificate.json; a report.html that is there is replaced.
    """
    source = run_folder / "certificate.json"
    if not source.is_file():
        unfinished = holds_run(run_folder)
        raise CommandError(
            f"{run_folder} has no certificate.json"
            + (
                ": its run is not finished. Start the same certify command again with --resume."
                if unfinished
                else "; name the folder of a finished run."
            ),
            next_command=None if not unfinished else "nonvacuous certify --help",
        )

    from nonvacuous.certificate import Certificate
    from nonvacuous.cli.pages import write_page

    page = write_page(Certificate.load(source), run_folder)
    if json:
        write_json({"report": str(page)})
    else:
        result_console().print(str(page), soft_wrap=True)
    return DONE
