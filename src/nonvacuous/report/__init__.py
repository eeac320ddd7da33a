"""Certificates and comparisons for people: one self-contained page, and text for a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.certificate import Certificate
    from nonvacuous.comparison import Comparison
    from nonvacuous.evaluation.compare import Comparison as Compared

__all__ = ["report", "write_report"]


def write_report(
    certificate: Certificate | Compared,
    path: str | os.PathLike[str],
    *,
    comparison: Comparison | None = None,
    history: Sequence[Mapping[str, Any]] | None = None,
    run_folder: str | os.PathLike[str] | None = None,
    labels: Mapping[str, Any] | None = None,
) -> Path:
    """Write the certificate, or what ``nv.compare`` gave, as one HTML page; return where it lies.

    path        the file to write; an older one is replaced in one step
    comparison  what :func:`nonvacuous.comparison.compare` gives: the terms one by one, and the
                other theorems; without it the page leaves these two sections out
    history     the events of the run, one mapping for each line of its ``events.jsonl``
    run_folder  the folder that the page tells its reader to verify; the page's own by default
    labels      what ``nonvacuous randomize --run`` found: the same recipe on random labels
    """
    # Imported here: matplotlib is not needed for words.
    from nonvacuous.certificate import Certificate
    from nonvacuous.report import compared, evaluation, html, study, view

    if not isinstance(certificate, Certificate):
        if not hasattr(certificate, "difference_lower"):
            raise BadInput(
                "a page is made of a certificate or a comparison, not of "
                f"{type(certificate).__name__}. Of a file: nv.Certificate.load(FILE); of a run "
                "folder: nonvacuous report FOLDER."
            )
        return study.write_study(compared.comparison_page(certificate), path)
    if certificate.evaluation is not None:
        where = str(run_folder or Path(path).parent)
        return study.write_study(evaluation.page_of(certificate, where=where), path)

    shown = view.View(
        certificate, comparison=comparison, history=history, run_folder=run_folder, labels=labels
    )
    if not Path(path).parent.is_dir():
        raise BadInput(f"Cannot write the report {path}: there is no such folder. Make it first.")
    return html.write(view.render(shown), path, kind="report")


#: The name at the front door: ``nv.report(certificate, "page.html")``.
report = write_report
