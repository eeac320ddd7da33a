"""A certificate in words and pictures: everything that its page says."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nonvacuous.bounds.holdout import holdout
from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.comparison import Comparison
from nonvacuous.foreign import run_settings
from nonvacuous.kinds import DATA_SETS
from nonvacuous.report import html, measured, tables, wording
from nonvacuous.report.plots import Series, lines

#: Below this, everything of interest sits in a corner of the scale and is magnified.
_MAGNIFY_BELOW = 0.2


@dataclass(frozen=True)
class Mark:
    """A mark on the scale from 0 to 100%. ``kind`` decides shape and color."""

    kind: str
    name: str
    value: float
    text: str
    note: str = ""


class View:
    """What the page says beyond the certificate's own fields; what is empty has no section there.

    It is made of what :func:`nonvacuous.report.write_report` is given.
    """

    def __init__(
        self,
        certificate: Certificate,
        *,
        comparison: Comparison | None = None,
        history: Sequence[Mapping[str, Any]] | None = None,
        run_folder: str | os.PathLike[str] | None = None,
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        self.certificate = certificate
        names = certificate.model.architecture, certificate.data.name
        self.title = " on ".join(wording.shortened(wording.clean(name), 48) for name in names)
        self.status = certificate.status
        #: "vacuous" (says nothing: every network satisfies the promise), "unshown" (not shown
        #: better than a constant answer) or "non-vacuous".
        self.weight = "unshown" if certificate.is_vacuous else "non-vacuous"
        if certificate.status == "refused" or certificate.risk_upper >= 1.0:
            self.weight = "vacuous"
        risk, weight = wording.percent_up(certificate.risk_upper), self.weight
        said: dict[str, Any] = {"certificate": certificate, "weight": weight, "risk": risk}
        self.promise = Markup(html.words("headline.html.jinja", **said))
        self.confidence = Markup(html.words("confidence.html.jinja", **said))
        self.verdict = html.words(
            "verdict.txt.jinja",
            **said,
            retrained=measured.twin_name(certificate) == measured.RETRAINED,
            errors=measured.errors_on_test(certificate),
            predictor=measured.PREDICTOR[certificate.predictor],
        )
        #: The command that gives the twin's smaller promise.
        twin = certificate.held_out_twin
        smaller = twin is not None and twin.risk_upper < certificate.risk_upper
        dominated = certificate.dominated and smaller
        self.tighter = wording.clean(certificate.plain_test) if dominated else ""
        self.predictor = measured.PREDICTOR[certificate.predictor].removeprefix("the ")
        #: The given network itself, where the promise is about noise around it: its errors among
        #: the examples that count and in a test, and what that test is worth.
        self.own_counted = measured.own_error(certificate, test=False)
        self.own_tested = tested = measured.own_error(certificate, test=True)
        failure = certificate.budget.failure
        if tested is not None:
            self.own_worth = holdout(errors=tested.errors, examples=tested.trials, failure=failure)
        self.marks = marks_of(certificate)
        self.words = in_words(self.marks)
        self.promised = promised_on(self.marks)
        self.lens = lens(self.marks)
        self.ruled_out = f"ruled out, with {wording.confidence_percent(failure)} confidence"
        if self.promised is None:
            self.ruled_out = "nothing is promised"
        elif self.promised >= 1.0:
            self.ruled_out = "nothing is ruled out"
        # The certificate's own words, with its number rounded as everywhere else on the page.
        self.statement = wording.clean(certificate.statement).replace(
            f"at most {shown_up(certificate.risk_upper)}.",
            f"at most {risk}.",
        )
        self.steps = tables.step_rows(certificate, comparison.steps) if comparison else ()
        self.labels = tables.label_rows(certificate, labels)
        self.rescaling = tables.rescaling_rows(certificate)
        self.earned = tables.earned(certificate)
        self.layers = tables.layer_rows(certificate)
        self.bounds = tables.bound_rows(certificate, comparison.bounds) if comparison else ()
        self.curves = curves(history or ())
        folder = Path("." if run_folder is None else run_folder)
        here, file = wording.visible(str(folder)), wording.visible(str(folder / "certificate.json"))
        missing = _missing(certificate, None if run_folder is None else folder)
        self.verify_command = f"nonvacuous verify {shlex.quote(here)}{missing}"
        self.verify_python = f"nonvacuous.verify({file!r}, {here!r}).raise_if_failed()"


def _missing(certificate: Certificate, folder: Path | None) -> str:
    """What verify has to be told to see data and network of somebody's own."""
    name = certificate.data.name
    known = name.removesuffix(" (test)")
    # A file of one's own may be called digits.npz: the run says where its data came from.
    settings = {} if folder is None else run_settings(folder)
    own = known not in DATA_SETS or settings.get("source", known) not in (known, name)
    model = "" if certificate.model.built_in else " --model MODULE:FUNCTION"
    return f"{' --data SOURCE' if own else ''}{model}"


def render(shown: View) -> str:
    """The whole page; the same view gives the same text."""
    # Drawings are made by ElementTree, which escapes: they alone are not escaped again.
    panels = enumerate(shown.curves.items(), start=1)
    training = [Markup(drawn(number, *panel)) for number, panel in panels]
    return html.page("certificate.html.jinja", view=shown, training=training)


def marks_of(certificate: Certificate) -> tuple[Mark, ...]:
    """What stands on the scale: of a refused certificate, nothing that looks like a promise."""
    rate = measured.measured_risk(certificate)
    held_out = not certificate.kind.prior
    name = "Error counted" if held_out else "Training error"
    counted = [o for o in certificate.observed if not measured.is_test(o)]
    if certificate.sparsity is not None and counted:
        # What the bound starts from is the loss of noise; this is the network's own.
        rate = counted[0].errors / counted[0].trials
    if measured.is_given(certificate):
        name = "Training error, with noise"
    marks = [Mark("training", name, rate, wording.percent(rate))]
    own = measured.own_error(certificate, test=True)
    note = "not part of the promise"
    if own is not None:
        rate = own.errors / own.trials
        marks.append(Mark("test", "Test error, your network", rate, wording.percent(rate), note))
    for error in measured.errors_on_test(certificate)[: 0 if own else 1]:
        # Both errors are the certified predictor's where it was tested; else the mark says whose.
        name = "Test error" if error.own else f"Test error, {error.whose}"
        marks.append(Mark("test", name, error.rate, wording.percent(error.rate), note))
    if certificate.status != "refused":
        twin = certificate.held_out_twin
        if twin is not None:
            text = f"≤ {wording.percent_up(twin.risk_upper)}"
            name = measured.twin_name(certificate)
            marks.append(Mark("twin", name, twin.risk_upper, text))
        if certificate.gate is None:
            name, promised = "Certificate", certificate.risk_upper
        else:
            name = "Gate" if certificate.risk_upper < 1.0 else "Gate, not passed"
            promised = certificate.gate
        text = tables.shown_bound(promised, certificate, "≤ ")
        marks.append(Mark("certificate", name, promised, text))
    baseline = certificate.baseline
    if certificate.counts_errors and baseline is not None:
        name = f"Always “{wording.shortened(wording.clean(baseline.name), 16)}”"
        marks.append(Mark("guessing", name, baseline.rate, wording.percent(baseline.rate)))
    return tuple(marks)


def in_words(marks: Sequence[Mark]) -> str:
    """The scale in words, for readers who cannot see it."""
    parts = [
        f"{mark.name} {mark.text}" + (f" ({mark.note})" if mark.note else "") for mark in marks
    ]
    return f"On a scale from 0% to 100%: {'; '.join(parts)}."


def promised_on(marks: Sequence[Mark]) -> float | None:
    """How far the scale is not ruled out; None where nothing is promised."""
    return next((mark.value for mark in marks if mark.kind == "certificate"), None)


def lens(marks: Sequence[Mark]) -> float | None:
    """How far a magnified axis reaches, or None where nothing needs magnifying."""
    highest = max((m.value for m in marks if m.kind != "guessing"), default=0.0)
    if not 0.0 < highest < _MAGNIFY_BELOW:
        return None
    decade = 10.0 ** math.floor(math.log10(highest))
    steps = (round(step * decade, 12) for step in (1, 2, 4, 8, 10, 20))
    return next(step for step in steps if step >= 1.15 * highest)


#: Metrics worth a curve, the most telling first; a panel shows two of them.
_SHOWN = {
    "objective": "objective",
    "error": "error",
    "loss": "loss",
    "validation_loss": "loss on watched examples",
}
_CURVES_A_PANEL = 2
_PANELS = 3


def curves(history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Series, ...]]:
    """One or two lines for each phase of training, in the order in which they ran.

    What is not a finite number by epoch is left out.
    """
    phases: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for event in history:
        epoch, metrics = wording.finite(event.get("epoch")), event.get("metrics")
        if event.get("event") != "epoch" or epoch is None or not isinstance(metrics, Mapping):
            continue
        panel = phases.setdefault(wording.clean(str(event.get("phase", "training"))), {})
        for name in _SHOWN:
            value = wording.finite(metrics.get(name))
            if value is not None:
                panel.setdefault(name, []).append((epoch + 1.0, value))
    shown = {phase: _lines(panel) for phase, panel in list(phases.items())[:_PANELS]}
    return {phase: series for phase, series in shown.items() if series}


def drawn(number: int, phase: str, series: Sequence[Series]) -> str:
    """The course of one phase; ``number`` tells the drawings of a page apart."""
    lowest = min(0.0, *(value for line in series for value in line.y))
    return lines(series, title=f"{number}: {phase}", x_label="epoch", y_label="", lowest=lowest)


def _lines(panel: Mapping[str, list[tuple[float, float]]]) -> tuple[Series, ...]:
    chosen = [name for name in _SHOWN if len(panel.get(name, ())) > 1][:_CURVES_A_PANEL]
    return tuple(Series(_SHOWN[name], *zip(*panel[name], strict=True)) for name in chosen)
