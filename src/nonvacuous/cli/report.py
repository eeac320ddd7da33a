"""``nonvacuous report``: the page of a run, or the site of a folder of runs, written again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nonvacuous.cli import exits, flags, output
from nonvacuous.cli.narration import Narration
from nonvacuous.errors import BadInput
from nonvacuous.files import inside
from nonvacuous.foreign import holds_run, read_json
from nonvacuous.report import write_report
from nonvacuous.report.wording import plural

if TYPE_CHECKING:
    from nonvacuous.certificate import Certificate

PAGE = "report.html"
#: Written by ``nonvacuous randomize --run``.
LABELS = "random_labels.json"


def write_page(certificate: Certificate, folder: Path) -> Path:
    """Write report.html from the certificate and the run's history, replacing an older page."""
    from nonvacuous.comparison import compare
    from nonvacuous.training.events import read_events

    events = inside(folder, "events.jsonl")
    history: list[dict[str, Any]] | None = read_events(events) if events.is_file() else None
    labels = None
    with suppress(BadInput):  # what random labels gave, if that was tried and can be read
        labels = read_json(inside(folder, LABELS))
    return write_report(
        certificate,
        folder / PAGE,
        comparison=None if certificate.evaluation else compare(certificate),
        history=history,
        run_folder=folder,
        labels=labels,
    )


def report(run_folder: Path, /, *, json: flags.Json = False) -> int:
    """Write report.html for a run folder, or a site that compares the runs in a folder of them.

    Args:
        run_folder: The folder with certificate.json: a report.html that is there is replaced. Or a
            folder with run folders in it: index.html gets a sortable table of all of them,
            certificates/ one page for each certificate.
    """
    from nonvacuous.certificate import Certificate
    from nonvacuous.study.runs import is_run, read_runs

    source = inside(run_folder, "certificate.json")
    if source.is_file():
        page = str(write_page(Certificate.load(source), run_folder))
        return output.answered({"report": page}, lambda _: output.write_lines(page), as_json=json)
    if holds_run(run_folder):
        raise exits.not_finished(run_folder)
    runs = read_runs(run_folder) if run_folder.is_dir() and not is_run(run_folder) else ()
    if not runs:
        there = run_folder.is_dir()
        why = f"there is no folder {run_folder}: no certificate.json, and no runs. Name"
        if there:
            why = f"{run_folder} has no certificate.json and no runs in it; name"
        raise (exits.CommandError if there else exits.UsageError)(
            f"{why} the folder of a finished run, or a folder of runs.",
            instead=exits.command("runs", run_folder.parent),
        )
    from nonvacuous.study.site import write_site

    with Narration() as narration:
        site = write_site(runs, run_folder, title=run_folder.absolute().name, progress=narration)
    record = {"report": str(site.index), "runs": len(runs), "pages": len(site.pages)}

    def write_text(_record: dict[str, Any]) -> None:
        output.write_lines(str(site.index))
        output.say(f"{plural(len(runs), 'run')}, {plural(len(site.pages), 'page')} of certificates")

    return output.answered(record, write_text, as_json=json)
